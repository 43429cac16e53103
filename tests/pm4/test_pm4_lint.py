"""One illegal stream a rule, and the streams of pm4.md that must pass."""

from __future__ import annotations

from typing import Any

import pytest

from zinc_rt.pm4 import Generation, Sh
from zinc_rt.pm4.gcr import acquire, release
from zinc_rt.pm4.lint import errors, lint
from zinc_rt.pm4.lint_rules import RULES
from zinc_rt.pm4.packets import (
    AcquireMem,
    AtomicMem,
    CondExec,
    CopyData,
    DispatchDirect,
    DmaData,
    EventWrite,
    FenceWaitMulti,
    HdpFlush,
    IndirectBuffer,
    Nop,
    PredExec,
    ProtectedFenceSignal,
    ReleaseMem,
    SetConfigReg,
    SetQueueReg,
    SetShReg,
    SetShRegPairsPacked,
    Timestamp,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)

G11, G12 = Generation.GFX11, Generation.GFX12
VA = 0x7F12_3456_7800
USERQ = {"queue": "userq"}
IB = {"is_ib": True}


def make_stream(*packets: Any, generation: Generation = G12) -> list[int]:
    return [word for packet in packets for word in packet.words(generation)]


def report_unmapped(va: int, size_bytes: int, kind: str) -> str | None:
    return "nothing is mapped there"


# rule -> (dwords, where they would run, the dword complained of)
ILLEGAL: list[tuple[str, list[int], dict[str, Any], int]] = [
    ("type", [0xFFFF1000, 0x80000000], {}, 1),
    ("type", [0x00000000], {}, 0),
    ("type", [0x40000000], {}, 0),
    ("opcode", [0xC000F200, 0], {}, 0),
    ("opcode", [0xC000CC00, 0], {}, 0),
    ("other-engine", [0xC0016900, 0, 0], {}, 0),
    ("generation", [0xC000D200, 0], {"generation": G11}, 0),
    ("count", [0xC0021500, 1, 1, 1, 1], {}, 0),
    ("count", [0xC0074900, *[0] * 8], {}, 0),
    ("count", [0xFFFF4600, *[0] * 20], {}, 0),
    ("truncated", [0xC0031500, 1, 1, 1], {}, 0),
    ("truncated", [0xFFFF1000, 0xC0101000, 0], {}, 1),
    ("predicate", [0xC0004601, 0x407], {}, 0),
    ("shader-type", [0xC0004602, 0x407], {}, 0),
    ("reserved-bits", [0xC0004604, 0x407], {}, 0),
    ("reserved-bits", [0xC0004600, 0x407 | 1 << 12], {}, 1),
    ("reserved-bits", [0xC0065800, 1, 0xFFFFFFFF, 0xFF, 0, 0, 4, 0], {}, 1),
    ("reserved-bits", [0xC0023F00, 0x20, 0x7F00, 8 | 1 << 23 | 1 << 22], {}, 3),
    ("value", make_stream(WaitRegMem(VA, 1, function=7)), {}, 1),
    ("value", make_stream(ReleaseMem(VA, 1, data_sel=7)), {}, 2),
    ("value", make_stream(WriteData(VA, (1,), dst_sel=3)), {}, 1),
    ("value-unverified", make_stream(AtomicMem(VA, 1, 1)), {}, 1),
    ("gcr-reserved", make_stream(AcquireMem(1 << 9)), {}, 7),
    ("gcr-reserved", make_stream(ReleaseMem(VA, 1, gcr_cntl=1)), {}, 1),
    ("event", make_stream(EventWrite(7, 0)), {}, 1),
    ("event", make_stream(EventWrite(7, 4, address=VA)), {}, 1),
    ("event", make_stream(EventWrite(0x1E, 2)), {}, 1),
    ("event", make_stream(EventWrite(0x2F, 4)), {}, 1),
    ("event", make_stream(ReleaseMem(VA, 1, event_index=6)), {}, 1),
    ("event", make_stream(ReleaseMem(VA, 1, event_type=0x2F, event_index=5)), {}, 1),
    ("alignment", make_stream(ReleaseMem(VA + 2, 1)), {}, 3),
    ("alignment", make_stream(ReleaseMem(VA + 4, 1, data_sel=2)), {}, 3),
    ("alignment", make_stream(WriteData(VA + 1, (1,))), {}, 2),
    ("alignment", make_stream(WaitRegMem64(VA + 4, 1)), {}, 2),
    ("alignment", make_stream(CopyData(VA, VA + 4, count_sel=1)), {}, 4),
    ("alignment", make_stream(IndirectBuffer(VA + 2, 8)), {}, 1),
    ("alignment", make_stream(Timestamp(VA + 4, 0)), {}, 2),
    ("alignment", make_stream(CondExec(VA + 1, 0)), {}, 1),
    ("address-range", make_stream(ReleaseMem(0, 1)), {}, 3),
    ("address-range", make_stream(WriteData(1 << 47, (1,))), {}, 2),
    ("address-range", make_stream(WriteData((1 << 47) - 4, (1, 2))), {}, 2),
    ("unmapped", make_stream(WriteData(VA, (1,))), {"mapped": report_unmapped}, 2),
    (
        "unmapped",
        make_stream(SetShReg(Sh.PGM_LO, (VA >> 8 & 0xFFFFFFFF, VA >> 40))),
        {"mapped": report_unmapped},
        2,
    ),
    ("ib-valid", make_stream(IndirectBuffer(VA, 8, valid=0)), {}, 3),
    ("ib-inherit-vmid", make_stream(IndirectBuffer(VA, 8)), USERQ, 3),
    ("ib-inherit-vmid-kfd", make_stream(IndirectBuffer(VA, 8, inherit_vmid=1)), {}, 3),
    ("ib-vmid", make_stream(IndirectBuffer(VA, 8, vmid=3)), {}, 3),
    ("ib-vmid", make_stream(IndirectBuffer(VA, 8, priv=1)), {}, 3),
    ("ib-size", make_stream(IndirectBuffer(VA, 0)), {}, 3),
    ("ib-alignment", make_stream(IndirectBuffer(VA, 7)), {}, 1),
    ("ib-alignment", make_stream(IndirectBuffer(VA + 4, 8)), {}, 1),
    ("ib-nesting", make_stream(IndirectBuffer(VA, 8)), IB, 0),
    ("ib-chain", make_stream(IndirectBuffer(VA, 8, chain=1)), {}, 3),
    ("register-range", make_stream(SetShReg(0x3FF, (0, 0))), {}, 3),
    ("register-privileged", make_stream(SetShReg(0x214, (1,))), {}, 2),
    ("register-unknown", make_stream(SetShReg(0x300, (1,))), {}, 2),
    ("register-bits", make_stream(SetShReg(Sh.PGM_HI, (0x100,))), {}, 2),
    ("register-bits", make_stream(SetShReg(Sh.PGM_RSRC1, (1 << 6,))), {}, 2),
    ("register-bits", make_stream(DispatchDirect(1, 1, 1, 0x81)), {}, 4),
    ("register-count", make_stream(SetShRegPairsPacked(1, ((0x240, 1), (0x241, 1)))), {}, 1),
    ("user-data", make_stream(SetShReg(0x24F, (1, 2))), {}, 3),
    ("user-data", make_stream(SetShReg(Sh.PGM_RSRC2, (17 << 1,))), {}, 2),
    ("dynamic-vgpr", make_stream(SetShReg(Sh.PGM_RSRC2, (1 << 6,))), {}, 2),
    ("rsrc1-priv", make_stream(SetShReg(Sh.PGM_RSRC1, (1 << 20,))), {}, 2),
    ("dispatch-disabled", make_stream(DispatchDirect(1, 1, 1, 0x8004)), {}, 4),
    ("dispatch-empty", make_stream(DispatchDirect(0, 1, 1, 0x8005)), {}, 1),
    ("dispatch-state", make_stream(DispatchDirect(1, 1, 1, 0x8005)), {}, 0),
    ("workgroup-size", make_stream(SetShReg(Sh.NUM_THREAD_X, (64, 0, 1)), DispatchDirect(1, 1, 1, 0x8005)), {}, 5),
    (
        "workgroup-size",
        make_stream(SetShReg(Sh.NUM_THREAD_X, (64, 32, 1)), DispatchDirect(1, 1, 1, 0x8005)),
        {},
        5,
    ),
    ("fence-write-back", make_stream(DispatchDirect(1, 1, 1, 0x8005), ReleaseMem(VA, 1)), {}, 6),
    ("skip-range", make_stream(CondExec(VA, 3), EventWrite(7, 4)), {}, 4),
    ("skip-range", make_stream(CondExec(VA, 1), EventWrite(7, 4)), {}, 4),
    ("pred-exec-ring", make_stream(PredExec(2, 1), EventWrite(7, 4)), {}, 0),
    ("unlisted", make_stream(PredExec(2, 1), EventWrite(7, 4)), IB, 0),
    ("privileged", make_stream(SetQueueReg(0, (1,))), {}, 0),
    ("privileged", make_stream(SetConfigReg(0, (1,))), {}, 0),
    ("fence-queue", make_stream(ReleaseMem(VA, 1), ProtectedFenceSignal()), {}, 8),
    ("fence-order", make_stream(ReleaseMem(VA, 1), ProtectedFenceSignal(), EventWrite(7, 4)), USERQ, 8),
    ("fence-order", make_stream(ProtectedFenceSignal()), USERQ, 0),
    ("fence-wait", make_stream(FenceWaitMulti(1, ((VA, 1),))), USERQ, 1),
    ("fence-wait-many", make_stream(FenceWaitMulti(1, ((VA, 1),) * 33)), USERQ, 0),
    ("empty", make_stream(DmaData(VA, VA, 0)), {}, 6),
    ("empty", make_stream(ReleaseMem(VA, 1, data_sel=0)), {}, 2),
]


@pytest.mark.parametrize(
    ("rule", "words", "expected", "offset"),
    ILLEGAL,
    ids=[f"{row[0]}-{index}" for index, row in enumerate(ILLEGAL)],
)
def test_rule_fires_on_its_stream(rule: str, words: list[int], expected: dict[str, Any], offset: int) -> None:
    expected = dict(expected)
    findings = [
        finding for finding in lint(words, expected.pop("generation", G12), **expected) if finding.rule == rule
    ]
    assert findings, rule
    assert findings[0].offset == offset and findings[0].severity == RULES[rule].severity
    assert findings[0].text and findings[0].next


def test_every_rule_has_a_stream() -> None:
    assert {row[0] for row in ILLEGAL} == set(RULES)


def dispatch_stream(generation: Generation) -> list[int]:
    """The minimal stream of section 6, in its order."""
    return make_stream(
        AcquireMem(acquire(generation, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL2_INV=1)),
        SetShReg(Sh.PGM_LO, (VA >> 8 & 0xFFFFFFFF, VA >> 40)),
        SetShReg(Sh.PGM_RSRC1, (0x200C0000, 0x84 | 0x380)),
        SetShReg(Sh.PGM_RSRC3, (0,)),
        SetShReg(Sh.TMPRING_SIZE, (0,)),
        SetShReg(Sh.DISPATCH_SCRATCH_BASE_LO, (0, 0)),
        SetShReg(Sh.RESTART_X, (0, 0, 0)),
        SetShReg(Sh.USER_DATA_0, (1, 2)),
        SetShReg(Sh.RESOURCE_LIMITS, (0,)),
        SetShReg(Sh.START_X, (0, 0, 0, 64, 1, 1, 0, 0)),
        DispatchDirect(4, 1, 1, 0x8005),
        EventWrite.cs_partial_flush(),
        ReleaseMem(VA, 1, release(generation, GLV_INV=1, GL2_INV=1, GL2_WB=1, SEQ=1)),
        generation=generation,
    )


@pytest.mark.parametrize("queue", ["kfd", "userq"])
@pytest.mark.parametrize("generation", [G11, G12])
def test_minimal_dispatch_stream_is_clean(generation: Generation, queue: Any) -> None:
    assert lint(dispatch_stream(generation), generation, queue=queue) == []
    assert lint(dispatch_stream(generation), generation, queue=queue, is_ib=True) == []


def test_user_queue_submission_is_clean_and_kfd_form_is_reported() -> None:
    words = make_stream(HdpFlush(), IndirectBuffer(VA, 64, inherit_vmid=1), ReleaseMem(VA, 1, data_sel=2))
    words += make_stream(ProtectedFenceSignal(), Nop(), Nop((0,)))
    assert lint(words, G12, queue="userq") == []
    assert [finding.rule for finding in errors(lint(words, G12, queue="kfd"))] == ["fence-queue"]


def test_resolver_receives_every_access() -> None:
    asked = []

    def is_mapped(va: int, size_bytes: int, kind: str) -> str | None:
        asked.append((va, size_bytes, kind))
        return None

    words = make_stream(WriteData(VA, (1, 2)), CopyData(VA, VA + 8), IndirectBuffer(VA, 16), AtomicMem(VA, 1, 47))
    assert lint(words, G12, mapped=is_mapped) == []
    assert asked == [
        (VA, 8, "write"),
        (VA, 4, "read"),
        (VA + 8, 4, "write"),
        (VA, 64, "execute"),
        (VA, 8, "write"),
    ]


def test_linter_stops_where_the_cp_would() -> None:
    words = [0xC000F200, 0, *make_stream(DispatchDirect(1, 1, 1, 0))]
    assert [finding.rule for finding in lint(words, G12)] == ["opcode"]


def test_tinygrad_gfx12_fence_has_findings_but_no_errors() -> None:
    """It sets GLM and GL1 bits on gfx12 too, and works."""
    gcr = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8 | 1 << 9 | 1 << 10
    findings = lint(make_stream(ReleaseMem(VA, 1, gcr)), G12)
    assert [finding.rule for finding in findings] == ["gcr-reserved"] and not errors(findings)
    assert lint(make_stream(ReleaseMem(VA, 1, gcr), generation=G11), G11) == []
