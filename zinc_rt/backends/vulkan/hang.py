"""Report a replay that does not finish: the stream and value, the executable, and its progress."""

from __future__ import annotations

from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.backends.vulkan.fault import describe_device_fault
from zinc_rt.backends.vulkan.fence import SemaphoreTimeline
from zinc_rt.exec import DeadlineMissed
from zinc_rt.ir.graph import Node


class VulkanHang(DeadlineMissed):
    """A hang. `executable`: the name of the stalled executable. `lost`: the driver lost the device."""

    def __init__(self, message: str, node: Node | None, executable: str, *, lost: bool, next: str) -> None:
        super().__init__(message, next=next)
        self.node = node
        self.executable = executable
        self.lost = lost


def make_hang(
    device: VulkanDevice,
    timeline: SemaphoreTimeline,
    value: int,
    reason: str,
    executable: VulkanExecutable | None,
    *,
    lost: bool = False,
) -> VulkanHang:
    """Create the error for `value` of a stream's timeline, which was not reached for the reason `reason`.
    `executable` is the stalled one."""
    standing = executable.stopped_at() if executable is not None else ()
    node = next((step.node for step in standing if step.node is not None), None)
    parts = [
        f"{device.physical.name}, stream {timeline.name}: value {value} {reason}",
        f"the semaphore is at {min(timeline.seen, timeline.submitted)} of {timeline.submitted} submitted",
    ]
    if executable is not None:
        parts.append(f"{executable.name} runs" if not lost else f"{executable.name} ran")
    if standing:
        kernels = ", ".join(dict.fromkeys(step.launch.kernel for step in standing))
        parts.append(f"not past {kernels}" + (f" of {node!r}" if node is not None else ""))
    if lost and (fault := describe_device_fault(device)):
        parts.append(f"the driver reports: {fault}")
    return VulkanHang(
        "; ".join(parts),
        node,
        executable.name if executable is not None else "",
        lost=lost,
        next=_format_advice(device, lost=lost, known=executable is None or executable.checkpoint is not None),
    )


def _format_advice(device: VulkanDevice, *, lost: bool, known: bool) -> str:
    if lost:
        return "see the kernel log (dmesg) for the cause; this backend is closed, open another"
    advice = "" if known else "use a debug build to find the dispatch; "
    if device.is_cpu:
        return f"{advice}a software driver cannot cancel a dispatch: end the process"
    return f"{advice}the driver's watchdog may still end it; zinc-rt vulkan-test shows what works"
