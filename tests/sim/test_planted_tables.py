"""Faults planted in the runtime's tables and packets: the simulated device refuses each or says what is odd.

Before the device had tables of its own it read what the runtime wrote by the runtime's rules: such faults passed.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sim.cp.cp_support import FENCE, CpBench, make_fence
from sim.lives import Swap, lives_without_findings, plant_struct, run_kfd_life, run_user_queue_life, swap_members

from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.kmd.uapi import amdgpu, kfd
from zinc_rt.kmd.uapi.structs import Ioctl
from zinc_rt.pm4 import Sh
from zinc_rt.pm4.gcr import acquire, release
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    CopyData,
    DispatchDirect,
    EventWrite,
    ReleaseMem,
    SetShReg,
    WaitRegMem,
    WriteData,
)
from zinc_rt.sim.interfaces import QueueState

# Swaps of two members that hold the same value in every call: the bytes are the same.
ALIKE: dict[str, frozenset[Swap]] = {
    "CREATE_QUEUE": frozenset(
        {
            ("queue_type", "sdma_engine_id"),
            ("queue_type", "metadata_ring_size"),
            ("sdma_engine_id", "metadata_ring_size"),
        }
    ),
    "GEM_VA": frozenset(
        {("_pad", "num_syncobj_handles"), ("offset_in_bo", "input_fence_syncobj_handles")}  # no fences to wait for
    ),
}
STRUCTS = [
    (kfd, "CREATE_QUEUE"),
    (kfd, "ALLOC_MEMORY_OF_GPU"),
    (kfd, "MAP_MEMORY_TO_GPU"),
    (kfd, "UNMAP_MEMORY_FROM_GPU"),
    (kfd, "ACQUIRE_VM"),
    (kfd, "DESTROY_QUEUE"),
    (amdgpu, "GEM_CREATE"),
    (amdgpu, "USERQ"),
    (amdgpu, "GEM_VA"),
]


def test_unmodified_tables_have_no_findings() -> None:
    assert run_kfd_life() == "" and run_user_queue_life() == ""


@pytest.mark.rest
@pytest.mark.parametrize(("module", "name"), STRUCTS, ids=[name for _, name in STRUCTS])
def test_two_swapped_members_are_always_detected(module: ModuleType, name: str) -> None:
    life = run_kfd_life if module is kfd else run_user_queue_life
    assert lives_without_findings(life, module, name, ALIKE.get(name, frozenset())) == []


@pytest.mark.parametrize(
    ("swap", "message"),
    [
        (("ring_size", "gpu_id"), "EINVAL"),
        (("queue_percentage", "queue_priority"), "EINVAL"),
        (("write_pointer_address", "read_pointer_address"), "wptr-not-published"),
        (("queue_priority", "sdma_engine_id"), "argument-unused: CREATE_QUEUE.sdma_engine_id is 0x7"),
        (("eop_buffer_address", "ctx_save_restore_address"), "EINVAL"),
    ],
    ids=lambda item: "-".join(item) if isinstance(item, tuple) else "",
)
def test_device_reports_swapped_create_queue_members(
    swap: Swap, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_struct(monkeypatch, kfd, "CREATE_QUEUE", swap_members(kfd.CREATE_QUEUE, swap))
    assert message in run_kfd_life()


@pytest.mark.parametrize("name", ["CREATE_QUEUE", "ALLOC_MEMORY_OF_GPU", "MAP_MEMORY_TO_GPU", "CREATE_EVENT"])
@pytest.mark.parametrize("shift", [1, 8, 0x40])
def test_wrong_ioctl_number_is_always_detected(name: str, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Ioctl = getattr(kfd, f"IOC_{name}")
    wrong = Ioctl(right.name, right.direction, right.type_, right.number + shift, right.struct)
    monkeypatch.setattr(kfd, f"IOC_{name}", wrong)
    assert run_kfd_life()


# --- packets ---


def change_default(packet: type[Packet], field: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the class's default for a field, as stored by `@packet`."""
    result: Any = packet.__init__
    assert f"_default_{field}" in result.__globals__
    monkeypatch.setitem(result.__globals__, f"_default_{field}", value)
    parameters = list(result.__code__.co_varnames[: result.__code__.co_argcount])
    defaults = list(result.__defaults__)
    defaults[parameters.index(field) - len(parameters)] = value
    monkeypatch.setattr(result, "__defaults__", tuple(defaults))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("event_index", 0, "event_index 0 is neither end of pipe (5) nor shader done (6)"),
        ("event_index", 6, "event-index"),
        ("event_type", 0x2F, "event-index"),
        ("event_type", 0x16, "value-unverified"),
        ("data_sel", 5, "data_sel 5 does not exist"),
        ("data_sel", 0, "no fence"),
        ("int_sel", 7, "int_sel 7 does not exist"),
        ("dst_sel", 2, "the queue's own registers"),
    ],
)
def test_wrong_fence_default_is_detected(
    field: str, value: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_default(ReleaseMem, field, value, monkeypatch)
    bench = CpBench()
    queue = bench.queue()
    queue.submit(ReleaseMem(FENCE, 7))
    text = " ".join([queue.report, *bench.kmd.rules()])
    assert message in text or (message == "no fence" and bench.space.u32(FENCE) == 0)


def test_wrong_event_index_is_an_error() -> None:
    bench = CpBench()
    bench.queue().submit(make_fence(7, event_index=6))
    (result,) = bench.kmd.findings
    assert (result.rule, result.severity) == ("event-index", Severity.ERROR)
    assert "event type 0x14, which goes with 5" in result.sentence


def test_cache_discard_is_an_error_in_fence_and_acquire() -> None:
    for packet in (
        make_fence(7, gcr_cntl=release(Generation.GFX12, GL2_DISCARD=1)),
        AcquireMem(acquire(Generation.GFX12, GL2_DISCARD=1)),
    ):
        bench = CpBench()
        bench.queue().submit(packet)
        (result,) = bench.kmd.findings
        assert (result.rule, result.severity) == ("cache-discard", Severity.ERROR)


def test_shader_done_requires_its_own_event_index() -> None:
    bench = CpBench()
    bench.queue().submit(make_fence(7, event_type=0x2F, event_index=6))
    assert bench.kmd.rules() == [] and bench.space.u32(FENCE) == 7


PROGRAM = 0x10F000


@pytest.mark.parametrize(
    "packet",
    [
        ReleaseMem(FENCE, 7),
        AcquireMem(0),
        WriteData(FENCE, (1,)),
        WaitRegMem(FENCE, 0),
        EventWrite.cs_partial_flush(),
        CopyData(FENCE, FENCE + 8),
        DispatchDirect(1, 1, 1, 0x8005),
        SetShReg(Sh.PGM_LO, (1, 0)),
    ],
    ids=lambda packet: packet.NAME,
)
def test_wrong_opcode_is_always_detected(packet: Packet) -> None:
    """An opcode one bit away is no other packet of that size: it stops the queue, or a finding names it."""
    for bit in range(8):
        bench = CpBench()
        queue = bench.queue()
        words = packet.words(bench.generation)
        queue.send([words[0] ^ 1 << 8 + bit, *words[1:], *make_fence(9).words(bench.generation)])
        assert queue.state is QueueState.HUNG or bench.kmd.findings, f"bit {bit}"


@pytest.mark.parametrize("register", [Sh.PGM_LO + 1, Sh.PGM_LO - 2, Sh.PGM_LO + 0x40, 0x0C])
def test_wrong_program_register_address_faults(register: int) -> None:
    bench = CpBench()
    queue = bench.queue()
    queue.submit(
        SetShReg(register, (PROGRAM >> 8, 0)),
        SetShReg(Sh.NUM_THREAD_X, (32, 1, 1)),
        DispatchDirect(1, 1, 1, 0x8005),
    )
    assert queue.state is QueueState.HUNG
    assert any(kind == "vm_fault" for kind, _ in bench.kmd.heard)


def test_wrong_workgroup_size_register_is_reported() -> None:
    bench = CpBench()
    bench.queue().submit(
        SetShReg(Sh.PGM_LO, (PROGRAM >> 8, 0)),
        SetShReg(Sh.NUM_THREAD_X + 3, (32, 1, 1)),
        DispatchDirect(1, 1, 1, 0x8005),
    )
    assert "group-size" in bench.kmd.rules()


@pytest.mark.parametrize("register", [0x214, 0x230, 0x3FF0, 0x1F0])
def test_privileged_and_undefined_registers_are_rejected_or_reported(register: int) -> None:
    bench = CpBench()
    queue = bench.queue()
    queue.submit(SetShReg(register, (0,)))
    assert queue.state is QueueState.HUNG or "register-unknown" in bench.kmd.rules()
