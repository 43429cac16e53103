"""Each fault of the simulated device with the probe that must detect it, and how the probe must name it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zinc_rt.cli.report import Result
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.registry import ALIVE, PROBES, select_probes
from zinc_rt.probes.runner import ProbeRunner, RunPlan

SIM = DeviceSpec(simulated=True, time_scale=0.1)


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """An injection, and the result that a probe must give: words of its cause and of its advice."""

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
AWAITED = frozenset({"page-tables-late"})


def run_simulated_probes(
    probes: tuple[Probe, ...], spec: DeviceSpec = SIM, tiers: tuple[str, ...] = (T1, T2)
) -> list[Result]:
    """Return the results of probes on a simulated device, without a journal."""
    alive = next(probe for probe in PROBES if probe.id == ALIVE)
    plan = RunPlan(spec, tiers, 2, ProbeOptions(tiers, poll_seconds=1.0 if spec.inject else 10.0), alive)
    return list(ProbeRunner(plan, probes, Journal(None, "sim")).run())


def run_injected(fault: InjectedFault, *, shared: str = "") -> Result:
    """Return the result of the fault's probe. `shared`: a name for the device's process, if it needs its own."""
    probe, _, tier = fault.probe.partition("/")
    spec = replace(SIM, inject=(fault.inject,), profile=fault.profile, shared=shared)
    tiers = (tier,) if tier != "host" else (T1, T2)
    results = run_simulated_probes(select_probes(PROBES, probe), spec, tiers)
    return next(item for item in results if item.id == fault.probe)
