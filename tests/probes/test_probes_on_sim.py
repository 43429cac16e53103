"""Every probe on the simulated R9700 and others, and every fault of it: found by its probe, named by its cause."""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from zinc_rt.cli.report import Result
from zinc_rt.probes import memory_stress
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.groups import coherence
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit import shaders
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.kit.shaders import load_kernel
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.registry import ALIVE, PROBES, select_probes
from zinc_rt.probes.runner import ProbeRunner, RunPlan
from zinc_rt.sim.inject import INJECTIONS
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.memory.vm import GpuVm, VmSpan
from zinc_rt.sim.profiles import LINUX_VERSIONS, PROPOSALS, VERSIONS

SIM = DeviceSpec(simulated=True, time_scale=0.1)
SLOW = {"P56"}  # ten thousand fences: once, on t1
FINDINGS = {  # of probes whose waves still run when their queue goes, or that read without a flush
    "P41": "stale-hdp",
    "P45": "still-running",
    "P55": "still-running",
}
SHADER_PROBES = {f"P{number}" for number in (*range(32, 42), 43, 47, 54, 57)}


def run_probes(
    probes: tuple[Probe, ...], spec: DeviceSpec = SIM, tiers: tuple[str, ...] = (T1, T2)
) -> list[Result]:
    alive = next(probe for probe in PROBES if probe.id == ALIVE)
    plan = RunPlan(spec, tiers, 2, ProbeOptions(tiers, poll_seconds=1.0 if spec.inject else 10.0), alive)
    return list(ProbeRunner(plan, probes, Journal(None, "sim")).run())


ROWS = [(probe, tier) for probe in PROBES for tier in probe.tiers if (probe.id, tier) != ("P56", T2)]


@pytest.mark.parametrize(("probe", "tier"), ROWS, ids=[f"{item.id}-{tier}" for item, tier in ROWS])
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=40)
def test_probe_passes_on_simulated_r9700(probe: Probe, tier: str) -> None:
    result = [item for item in run_probes((probe,)) if item.tier == tier]
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
    result = run_probes(
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
    result = run_probes(probes, replace(SIM, profile=profile))
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


@dataclass(frozen=True)
class InjectedFault:
    """An injection, and what must come of it."""

    inject: str
    probe: str  # id and tier of the result
    cause: str  # words of it
    advice: str
    profile: str = ""
    status: str = "fail"
    shared: bool = False  # needs the device in a process of its own, which it ends


FAULTS = (
    InjectedFault("no-kfd-node", "P02/host", "no KFD device", "CONFIG_HSA_AMD"),
    InjectedFault("no-access", "P02/host", "may not open it", "usermod -aG render"),
    InjectedFault("reset-in-progress", "P02/host", "being reset", "dmesg"),
    InjectedFault("old-kfd", "P03/t1", "older than event ages", "Linux 6.6"),
    InjectedFault("hidden-gpu", "P04/t1", "device cgroup", "--device=/dev/kfd"),
    InjectedFault("unknown-target", "P04/t1", "no packets for", "--device /dev/dri/renderDN"),
    InjectedFault("user-queue-off", "P06/t2", "amdgpu.user_queue=-1", "amdgpu.user_queue=1", status="skip"),
    InjectedFault("firmware-old", "P06/t2", "MES 100 < 123", "linux-firmware", status="skip"),
    InjectedFault("vm-busy", "P07/t1", "another fd", "ROCm"),
    InjectedFault("counter-stuck", "P08/t1", "suspended", "runpm=0"),
    InjectedFault("gpu-gone", "P08/t1", "disappeared from the bus", "power-cycle"),
    InjectedFault("small-bar", "P10/t1", "small BAR", "Resizable BAR"),
    InjectedFault("out-of-memory", "P10/t1", "other clients use the memory", "close other programs"),
    InjectedFault("no-doorbell-domain", "P12/t2", "no doorbell domain", "6.17"),
    InjectedFault("event-page-refused", "P13/t1", "rejects the event page", "one KFD user"),
    InjectedFault("cwsr-mismatch", "P15/t1", "context save area", "ctl_stack_size"),
    InjectedFault("mes-add-failure", "P15/t1", "ADD_QUEUE", "linux-firmware"),
    InjectedFault("mes-add-failure", "P48/t2", "ADD_QUEUE", "linux-firmware"),
    InjectedFault("doorbell-offset", "P17/t1", "doorbell offset", "masked with"),
    InjectedFault("lost-doorbell", "P18/t1", "doorbell does not reach", "P17"),
    InjectedFault("lost-doorbell", "P18/t2", "doorbell does not reach", "P48"),
    InjectedFault("fence-never-written", "P20/t1", "end of the pipe does not write", "P21"),
    InjectedFault("no-eop", "P20/t1", "no EOP buffer", "4096"),
    InjectedFault("no-eop", "P20/t2", "no EOP buffer", "2048"),
    InjectedFault("device-crash", "P20/t1", "disappeared", "power-cycle"),
    InjectedFault("device-crash", "P20/t2", "disappeared", "power-cycle"),
    InjectedFault("no-interrupt", "P22/t1", "no interrupt came", "amdgpu.msi"),
    InjectedFault("ring-size-off-by-one", "P29/t1", "another size than ours", "power of two"),
    InjectedFault("ring-size-off-by-one", "P29/t2", "another size than ours", "power of two"),
    InjectedFault("shader-crash", "P32/t1", "disappeared when waves started", "crash record", shared=True),
    InjectedFault("shader-crash", "P32/t2", "disappeared when waves started", "crash record", shared=True),
    InjectedFault("stale-icache", "P40/t1", "GLI_INV was ignored", "-k P41"),
    InjectedFault("stale-icache", "P40/t2", "GLI_INV was ignored", "-k P41"),
    InjectedFault("stale-hdp", "P41/t1", "stay in HDP", "stage uploads"),
    InjectedFault("stale-hdp", "P41/t2", "stay in HDP", "stage uploads"),
    InjectedFault("no-write-back", "P41/t1", "stay in GL2", "copied to host memory"),
    InjectedFault("lost-memory-event", "P42/t1", "not delivered", "noretry"),
    InjectedFault("no-reset", "P44/t1", "reset failed", "reboot", profile="@6.12"),
    InjectedFault("mes-remove-failure", "P45/t1", "REMOVE_QUEUE", "linux-firmware"),
    InjectedFault("wptr-rejected", "P48/t2", "exactly one page", "P49"),
    InjectedFault("vmid-not-inherited", "P51/t2", "bit 30", "linux-firmware"),
    InjectedFault("fence-interrupt-lost", "P52/t2", "PROTECTED_FENCE_SIGNAL", "interrupts"),
    InjectedFault("signal-before-wptr", "P52/t2", "wptr from before", "publish, then SIGNAL"),
)
# what our transport never does wrong
AWAITED = {"page-tables-late"}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.inject}-{fault.probe}" for fault in FAULTS])
@pytest.mark.rest(keep=5)
@pytest.mark.slow(keep=20)
def test_injected_fault_is_detected_by_its_probe_with_cause_and_advice(fault: InjectedFault) -> None:
    probe, _, tier = fault.probe.partition("/")
    shared = f"probes-{secrets.token_hex(4)}" if fault.shared else ""
    spec = replace(SIM, inject=(fault.inject,), profile=fault.profile, shared=shared)
    results = {
        item.id: item
        for item in run_probes(select_probes(PROBES, probe), spec, (tier,) if tier != "host" else (T1, T2))
    }
    result = results[fault.probe]
    assert result.status == fault.status, result.reason
    assert fault.cause in result.cause and fault.advice in result.advice, (result.cause, result.advice)
    assert f"--inject {fault.inject}" in result.repro and "-k " + probe in result.repro


def test_every_injectable_fault_has_a_row() -> None:
    assert {fault.inject for fault in FAULTS} | AWAITED == {
        injection.name for injection in INJECTIONS if injection.probe != "accept"
    }


def test_causes_are_distinguished() -> None:
    """Two faults that one probe finds on one tier do not read the same."""
    assert len({(fault.probe, fault.cause) for fault in FAULTS}) == len(FAULTS)


def test_probe_waits_for_late_page_tables() -> None:
    result = run_probes(select_probes(PROBES, "P50"), replace(SIM, inject=("page-tables-late",)), (T2,))
    assert [item.status for item in result] == ["pass"]


@pytest.mark.rest
def test_failure_shows_wptr_rptr_fence_and_poison() -> None:
    result = run_probes(select_probes(PROBES, "P18"), replace(SIM, inject=("lost-doorbell",)), (T1,))
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
    (result,) = run_probes(select_probes(PROBES, "P57"), tiers=(T1,))
    assert result.status == "fail" and cause in result.cause


def test_missing_invalidation_of_the_last_workgroup_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """With caches that hold stale lines, the kernel's global_inv replaced by s_nop."""
    right, invalidate = load_kernel("last_workgroup"), struct.pack("<3I", 0xEE0A_C07C, 0x0008_0000, 0)
    assert right.code.count(invalidate) == 1
    wrong = replace(right, code=right.code.replace(invalidate, struct.pack("<3I", *[0xBF80_0000] * 3)))
    probes, spec = select_probes(PROBES, "P57"), replace(SIM, coherence="caches")
    assert [item.status for item in run_probes(probes, spec, (T1,))] == ["pass"]
    monkeypatch.setattr(shaders, "load_kernel", {"last_workgroup": wrong}.__getitem__)
    (result,) = run_probes(probes, spec, (T1,))
    assert result.status == "fail" and "stale lines" in result.cause


@pytest.mark.parametrize("probe", memory_stress.PROBES, ids=lambda item: item.id)
@pytest.mark.rest(keep=1)
def test_memory_survives_stress(probe: Probe) -> None:
    result = run_probes((probe,))
    assert [item.status for item in result] == ["pass", "pass"], [item.reason for item in result]


@pytest.mark.parametrize(
    ("inject", "probe", "message"),
    [("stale-hdp", "P10", "the GPU reads other bytes than the CPU wrote through the BAR")],
)
def test_bar_mismatch_is_detected_by_reading_from_both_sides(inject: str, probe: str, message: str) -> None:
    (result,) = run_probes(select_probes(PROBES, probe), replace(SIM, inject=(inject,)), (T1,))
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
    result = run_probes(select_probes(memory_stress.PROBES, probe), tiers=(T1,))
    assert [item.status for item in result] == ["fail"] and message in result[0].reason, result[0].reason
    assert result[0].cause == "two buffers share memory, or pages moved while mapped"


def test_small_bar_does_not_break_memory_test() -> None:
    result = run_probes(select_probes(memory_stress.PROBES, "M03"), replace(SIM, inject=("small-bar",)), (T1,))
    assert [item.status for item in result] == ["pass"], result[0].reason
