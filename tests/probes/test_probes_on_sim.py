"""Every probe on the simulated R9700 and others, and every fault of it: found by its probe, named by its cause."""

from __future__ import annotations

import secrets
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from zinc_rt.probes import memory_stress
from zinc_rt.probes.groups import coherence
from zinc_rt.probes.injected import AWAITED, FAULTS, SIM, InjectedFault, run_injected, run_simulated_probes
from zinc_rt.probes.kit import shaders
from zinc_rt.probes.kit.shaders import load_kernel
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.registry import PROBES, select_probes
from zinc_rt.sim.inject import INJECTIONS, PROGRAM
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.memory.vm import GpuVm, VmSpan
from zinc_rt.sim.profiles import LINUX_VERSIONS, PROPOSALS, VERSIONS

SLOW = {"P56"}  # ten thousand fences: once, on t1
FINDINGS = {  # of probes whose waves still run when their queue goes, or that read without a flush
    "P41": "stale-hdp",
    "P45": "still-running",
}
SHADER_PROBES = {f"P{number}" for number in (*range(32, 42), 43, 47, 54, 57)}


ROWS = [(probe, tier) for probe in PROBES for tier in probe.tiers if (probe.id, tier) != ("P56", T2)]


@pytest.mark.parametrize(("probe", "tier"), ROWS, ids=[f"{item.id}-{tier}" for item, tier in ROWS])
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=40)
def test_probe_passes_on_simulated_r9700(probe: Probe, tier: str) -> None:
    result = [item for item in run_simulated_probes((probe,)) if item.tier == tier]
    assert [item.status for item in result] == ["pass"], result[0].reason
    measure = result[0].measure
    assert measure.get("deviations", 0) == 0, measure
    found_by_device = [note for note in measure.get("notes", ()) if "finding" in note]
    assert bool(found_by_device) == (probe.id in FINDINGS)
    assert all(FINDINGS[probe.id] in note for note in found_by_device)
    assert measure["simulated"] is True


@pytest.mark.rest
@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("linux", [*VERSIONS, *(f"{VERSIONS[-1]}+{proposal}" for proposal in PROPOSALS)])
def test_probes_pass_on_every_linux_or_name_what_it_lacks(linux: str) -> None:
    result = run_simulated_probes(
        tuple(probe for probe in PROBES if probe.id not in SLOW), replace(SIM, profile=f"@{linux}")
    )
    failed = [f"{item.id}: {item.reason}" for item in result if item.status == "fail"]
    skipped = {item.id for item in result if item.status == "skip"}
    assert not failed
    if LINUX_VERSIONS[linux.partition("+")[0]].userq:
        assert not skipped
    else:
        assert all(item.endswith("/t2") for item in skipped)
        (reason,) = (item.reason for item in result if item.id == "P05/t2")
        assert "t2 is unavailable: amdgpu 3." in reason and "expected 3.64 or later" in reason


@pytest.mark.rest
@pytest.mark.parametrize(
    "profile",
    [
        "gfx1100@6.12",
        *(pytest.param(item, marks=pytest.mark.slow) for item in ("gfx1151", "gfx1200@6.16", "@6.18.y", "@6.8")),
    ],
)
def test_other_chips_and_kernels_pass_or_give_a_reason(profile: str) -> None:
    probes = tuple(probe for probe in PROBES if probe.id not in SLOW)
    result = run_simulated_probes(probes, replace(SIM, profile=profile))
    assert not [item.reason for item in result if item.status == "fail"]
    for item in result:
        if item.status == "pass":
            continue
        if "gfx11" in profile and item.id.partition("/")[0] in SHADER_PROBES:
            assert "gfx1201 code" in item.reason or "needs P" in item.reason
        elif item.tier == T2:
            assert "t2 is unavailable" in item.reason or "needs" in item.reason
        else:
            raise AssertionError(f"{item.id}: {item.reason}")


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.inject}-{fault.probe}" for fault in FAULTS])
@pytest.mark.rest(keep=5)
@pytest.mark.slow(keep=20)
def test_injected_fault_is_detected_by_its_probe_with_cause_and_advice(fault: InjectedFault) -> None:
    probe = fault.probe.partition("/")[0]
    result = run_injected(fault, shared=f"probes-{secrets.token_hex(4)}" if fault.shared else "")
    assert result.status == fault.status, result.reason
    assert fault.cause in result.cause and fault.advice in result.advice, (result.cause, result.advice)
    assert f"--inject {fault.inject}" in result.repro and "-k " + probe in result.repro


def test_every_injectable_fault_has_a_row() -> None:
    assert {fault.inject for fault in FAULTS} | AWAITED == {
        injection.name for injection in INJECTIONS if injection.probe not in ("accept", PROGRAM)
    }


def test_causes_are_distinguished() -> None:
    """Two faults that one probe finds on one tier do not read the same."""
    assert len({(fault.probe, fault.cause) for fault in FAULTS}) == len(FAULTS)


def test_probe_waits_for_late_page_tables() -> None:
    result = run_simulated_probes(select_probes(PROBES, "P50"), replace(SIM, inject=("page-tables-late",)), (T2,))
    assert [item.status for item in result] == ["pass"]


@pytest.mark.rest
def test_failure_shows_wptr_rptr_fence_and_poison() -> None:
    result = run_simulated_probes(select_probes(PROBES, "P18"), replace(SIM, inject=("lost-doorbell",)), (T1,))
    bad = result[0].first_bad
    assert (bad["wptr"], bad["rptr"], bad["poison"]) == (16, 0, "intact") and bad["fence"]
    assert "rptr>" in bad["report"], "the ring around rptr, disassembled"


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (coherence.LAST_GROUPS - 2, "stale lines"),
        (coherence.LAST_GROUPS + 1, "no workgroup saw itself as the last"),
    ],
)
def test_workgroup_that_sums_too_early_or_never_is_detected(
    monkeypatch: pytest.MonkeyPatch, before: int, cause: str
) -> None:
    wrong = partial(coherence.run_last_workgroup, before=before)
    monkeypatch.setattr(coherence, "run_last_workgroup", wrong)
    (result,) = run_simulated_probes(select_probes(PROBES, "P57"), tiers=(T1,))
    assert result.status == "fail" and cause in result.cause


def test_missing_invalidation_of_the_last_workgroup_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With caches that hold stale lines, the kernel's global_inv replaced by s_nop."""
    right, invalidate = load_kernel("last_workgroup"), struct.pack("<3I", 0xEE0A_C07C, 0x0008_0000, 0)
    assert right.code.count(invalidate) == 1
    wrong = replace(right, code=right.code.replace(invalidate, struct.pack("<3I", *[0xBF80_0000] * 3)))
    probes, spec = select_probes(PROBES, "P57"), replace(SIM, coherence="caches")
    assert [item.status for item in run_simulated_probes(probes, spec, (T1,))] == ["pass"]
    monkeypatch.setattr(shaders, "load_kernel", {"last_workgroup": wrong}.__getitem__)
    (result,) = run_simulated_probes(probes, spec, (T1,))
    assert result.status == "fail" and "stale lines" in result.cause


@pytest.mark.parametrize("probe", memory_stress.PROBES, ids=lambda item: item.id)
@pytest.mark.rest(keep=1)
def test_memory_survives_stress(probe: Probe) -> None:
    result = run_simulated_probes((probe,))
    assert [item.status for item in result] == ["pass", "pass"], [item.reason for item in result]


@pytest.mark.parametrize(
    ("inject", "probe", "message"),
    [("stale-hdp", "P10", "the GPU reads other bytes than the CPU wrote through the BAR")],
)
def test_bar_mismatch_is_detected_by_reading_from_both_sides(inject: str, probe: str, message: str) -> None:
    (result,) = run_simulated_probes(select_probes(PROBES, probe), replace(SIM, inject=(inject,)), (T1,))
    assert (
        result.status == "fail" and message in result.reason and "HDP" in result.cause and "P41" in result.advice
    )


@pytest.mark.parametrize(
    ("probe", "message"), [("M02", "lost its content"), ("M03", "lost its content"), ("M04", "mark")]
)
@pytest.mark.rest
def test_gpu_detects_two_buffers_aliasing_the_same_vram(
    monkeypatch: pytest.MonkeyPatch, probe: str, message: str
) -> None:
    """VRAM that no CPU maps: only the GPU can tell."""
    first: dict[int, Bo] = {}
    right = GpuVm.map

    def map_over_the_first(vm: GpuVm, va: int, size_bytes: int, bo: Bo, **more: Any) -> VmSpan:
        if bo.heap is Heap.VRAM and not bo.public:
            bo.store = first.setdefault(bo.size_bytes, bo).store
        return right(vm, va, size_bytes, bo, **more)

    monkeypatch.setattr(GpuVm, "map", map_over_the_first)
    result = run_simulated_probes(select_probes(memory_stress.PROBES, probe), tiers=(T1,))
    assert [item.status for item in result] == ["fail"] and message in result[0].reason, result[0].reason
    assert result[0].cause == "two buffers share memory, or pages moved while mapped"


def test_small_bar_does_not_break_memory_test() -> None:
    result = run_simulated_probes(
        select_probes(memory_stress.PROBES, "M03"), replace(SIM, inject=("small-bar",)), (T1,)
    )
    assert [item.status for item in result] == ["pass"], result[0].reason
