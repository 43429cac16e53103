"""V14 and V15: measure the cost of submissions, dispatches, barriers, copies and reads, without limits."""

from __future__ import annotations

from zinc_rt.backends.vulkan.commands import CmdCopyBuffer, VulkanCommand
from zinc_rt.backends.vulkan.memory import VulkanBlock
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.probes.outcome import VULKAN, Outcome, check, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves
from zinc_rt.probes.vulkan.bench import Address, chain_commands
from zinc_rt.probes.vulkan.context import VulkanProbeContext

RUNS, FEW, DISPATCHES = 50, 5, 500
COPY_BYTES, READ_GROUPS = 64 << 20, 1024
SOFTWARE = "a software driver: not the speed of a GPU"


@probe("V14", "submit, dispatch, barrier", (VULKAN,), hazard=0, needs=("V11", "V13"))
@proves(
    "cost of a submission, a dispatch and a barrier", passes_when="the times are measured; there are no limits"
)
@fails(symptom("no-time"), "the clock did not advance", "run it again")
def probe_submissions(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    mark = bench.dispatch("probe_mark", (bench.words(1), 1, 1), (1, 1, 1))
    empty = bench.seconds([], RUNS)
    many = bench.seconds([command for _ in range(DISPATCHES) for command in mark], FEW)
    apart = bench.seconds(chain_commands([mark] * DISPATCHES), FEW)
    check(empty > 0, "no-time", "an empty submission took no time")
    return passed(
        *describe_software(c),
        submit_us=1e6 * empty,
        dispatch_us=1e6 * max(0.0, many - empty) / DISPATCHES,
        dispatch_and_barrier_us=1e6 * max(0.0, apart - empty) / DISPATCHES,
    )


@probe("V15", "copy and read bandwidth", (VULKAN,), hazard=0, needs=("V08",), seconds=60.0)
@proves("speed of copies and reads by kernels", passes_when="the times are measured; there are no limits")
@fails(symptom("no-time"), "the clock did not advance", "run it again")
def probe_bandwidth(c: VulkanProbeContext) -> Outcome:
    bench = c.bench
    source, target = (allocate_block(c, name) for name in ("source", "target"))
    copy: list[VulkanCommand] = [CmdCopyBuffer(source.handle, 0, target.handle, 0, COPY_BYTES)]
    sums = bench.words(128 * READ_GROUPS)
    quads = COPY_BYTES // 16
    read = bench.dispatch(
        "probe_read", (Address(source.gpu_va), sums, quads, 128 * READ_GROUPS), (READ_GROUPS, 1, 1)
    )
    copied, was_read = bench.seconds(copy, FEW), bench.seconds(read, FEW)
    check(min(copied, was_read) > 0, "no-time", "a copy took no time")
    return passed(
        *describe_software(c),
        copy_gb_s=2e-9 * COPY_BYTES / copied,  # bytes read and bytes written
        read_gb_s=1e-9 * COPY_BYTES / was_read,
        bytes=COPY_BYTES,
    )


def allocate_block(c: VulkanProbeContext, name: str) -> VulkanBlock:
    return c.bench.memory.block(COPY_BYTES, BufferHeap.DEVICE_LOCAL, name)


def describe_software(c: VulkanProbeContext) -> list[str]:
    return [SOFTWARE] if c.physical.is_cpu else []
