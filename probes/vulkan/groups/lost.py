"""V16: a kernel that never ends. A deliberate hang, run with --may-hang."""

from __future__ import annotations

from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.exec import DeadlineMissed
from zinc_rt.probes.outcome import VULKAN, Outcome, ProbeFailed, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.context import VulkanProbeContext

SECONDS = 15.0  # longer than the watchdogs of Windows (2 s), amdgpu (10 s) and i915


@probe("V16", "a kernel that never ends", (VULKAN,), hazard=2, needs=("V05", "V13"), seconds=40.0)
@proves(
    (
        "a kernel that never ends is detected by the driver's watchdog or by the deadline, and the next "
        "process works"
    ),
    passes_when="the wait ends with an error, and V05 passes in a new process",
)
@fails(
    symptom("ended"),
    "the kernel ended: the driver's compiler removed an endless loop",
    "report this with --json; there are no other consequences",
)
def probe_endless_dispatch(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    stop, turns = bench.words(1), bench.words(32)
    try:
        bench.run(bench.dispatch("probe_endless", (stop, turns), (1, 1, 1)), SECONDS)
    except VulkanError as error:
        return passed(f"the driver's watchdog: {error.message}", how="lost")
    except DeadlineMissed as missed:
        how = "lost" if bench.streams.lost is not None else "deadline"
        bench.abandon()
        return passed(missed.message, how=how)
    raise ProbeFailed("ended", f"it ended after {turns.words[0]} turns")
