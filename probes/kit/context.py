"""The context of a probe: the device, opened as far as needed, and all resources released at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.hang_reporter import HangReporter
from zinc_rt.backends.amd.kmd_side import KfdSide, KmdSide, UserqSide
from zinc_rt.backends.base import Device
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.driver import Driver, list_folder
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.kfd import KfdGpu, KfdProcess
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.topology import TopologyNode, format_arch_name, read_topology
from zinc_rt.kmd.transport import Placement, Queue
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4.generation import ARCHITECTURES
from zinc_rt.probes.child import CLOSE_SECONDS, ChildEnd, run_in_child
from zinc_rt.probes.device import open_device
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.kit.mapped_buffer import MappedBuffer
from zinc_rt.probes.kit.probe_queue import SCRATCH_BYTES, ProbeQueue
from zinc_rt.probes.outcome import T1, T2

if TYPE_CHECKING:
    from zinc_rt.probes.simulated import DeviceNews
    from zinc_rt.sim.interfaces import DeviceFinding

POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Options of probes. `forced`: the tiers were selected by name, so a missing one is a failure."""

    tiers: tuple[str, ...] = (T1, T2)
    forced: bool = False
    soak_minutes: float = 0.0
    manual: bool = False
    poll_seconds: float = POLL_SECONDS


class ProbeContext:
    """One tier of one device, in one process. A context manager."""

    def __init__(self, spec: DeviceSpec, tier: str, options: ProbeOptions) -> None:
        self.spec = spec
        self.tier = tier
        self.options = options
        self.poll_seconds = options.poll_seconds
        self.addresses = AddressMap()  # what faults are named by
        self.expected: set[str] = set()  # rules of findings that this probe makes on purpose
        self._since: DeviceNews | None = None
        self._marks_apart: list[str] = []  # from processes that ended in order
        self._stack = ExitStack()

    # --- the device ---

    @cached_property
    def driver(self) -> Driver:
        driver = open_device(self.spec)
        if self.spec.simulated:
            from zinc_rt.probes.simulated import DeviceNews

            self._since = DeviceNews(driver)
        return driver

    def news(self) -> tuple[list[DeviceFinding], list[str]]:
        """Return a simulated device's findings and log lines since this context was opened, except
        expected ones."""
        findings, log = self._since.news() if self._since is not None else ([], [])
        return [finding for finding in findings if finding.rule not in self.expected], log

    def marks(self) -> list[str]:
        """Return the coverage marks of a simulated device since this context was opened
        (zinc_rt/host/facts.py)."""
        return [*(self._since.marks() if self._since is not None else []), *self._marks_apart]

    @cached_property
    def chosen(self) -> tuple[TopologyNode | None, str]:
        return choose_gpu(self.driver, self.spec)

    @property
    def node(self) -> TopologyNode:
        """Return the GPU's node in KFD's topology."""
        node, path = self.chosen
        if node is None:
            raise UnsupportedError(f"{path}: no KFD topology node for this device")
        return node

    @property
    def render_path(self) -> str:
        return self.chosen[1]

    @cached_property
    def process(self) -> KfdProcess:
        return self._stack.enter_context(KfdProcess(self.driver))

    @cached_property
    def gpu(self) -> KfdGpu:
        return self.process.open_gpu(self.node)

    @cached_property
    def userq(self) -> UserqGpu:
        return self._stack.enter_context(UserqGpu(self.driver, self.render_path))

    @cached_property
    def render(self) -> RenderNode:
        """Open a separate render node, for queries only."""
        node = RenderNode(self.driver, self.render_path)
        self._stack.callback(node.close)
        return node

    # --- what both tiers have ---

    @property
    def transport(self) -> KfdGpu | UserqGpu:
        return self.userq if self.tier == T2 else self.gpu

    @cached_property
    def side(self) -> KmdSide:
        kmd_side: KmdSide = UserqSide(self.userq) if self.tier == T2 else KfdSide(self.gpu)
        self._stack.callback(kmd_side.close)
        return kmd_side

    @cached_property
    def reporter(self) -> HangReporter:
        arch = format_arch_name(self.transport.generation)
        device = Device(name=arch, arch=arch, simulated=self.driver.simulated, profile=self.spec.profile)
        hang_reporter = HangReporter(self.side, self.addresses, self.tier, device, folder=None)
        self._stack.callback(hang_reporter.close)
        return hang_reporter

    def memory(
        self, size_bytes: int, name: str, placement: Placement = Placement.GTT, **more: Any
    ) -> MappedBuffer:
        """Allocate GPU memory with host access; it is mapped for the GPU when this returns."""
        buffer = self.transport.alloc(size_bytes, placement, name, **more)
        self.side.settle()
        self.addresses.add(buffer.gpu_va, buffer.size_bytes, name)
        return MappedBuffer(buffer)

    def queue(self, name: str = "ring", *, ring_bytes: int = 1 << 16, priority: int = 0) -> ProbeQueue:
        """Create a queue on this tier with its ring, fence and scratch memory."""
        kmd_queue: Queue = self.side.create_queue(ring_bytes=ring_bytes, priority=priority)
        memory = self.memory(SCRATCH_BYTES, f"{name} scratch")
        for part in (kmd_queue.ring, kmd_queue.rptr, kmd_queue.wptr, kmd_queue.eop):
            self.addresses.add(part.gpu_va, part.size_bytes, part.name)
        queue = ProbeQueue(
            kmd_queue,
            memory,
            name=name,
            side=self.side,
            reporter=self.reporter,  # made with the first queue: it knows from then on what is new in the log
            poll_seconds=self.poll_seconds,
            gone=self.find_lost_reason,
        )
        self._stack.callback(queue.close)
        return queue

    def find_lost_reason(self) -> str:
        """Return the reply of the GPU's driver to a simple query if it does not respond; otherwise empty."""
        try:
            if self.tier == T2:
                self.userq.node.device()
            else:
                self.gpu.read_clocks()
        except DriverError as error:
            return str(error).partition("\n")[0]
        return ""

    def scale_timeout(self, seconds: float) -> float:
        return self.spec.scale_timeout(seconds)

    def run_in_child(self, function: Callable[[ProbeContext], Any], timeout_seconds: float) -> ChildEnd:
        """Run `function`, which may be a generator (zinc_rt.probes.child), in a separate process with its own
        context, which it closes.

        This context must not have opened anything yet, because a driver does not survive the fork.
        """
        if "driver" in self.__dict__:
            raise ValueError("this process has already opened the device")
        context = ProbeContext(self.spec, self.tier, self.options)

        def run() -> Iterator[Any]:
            value = function(context)
            for item in value if isinstance(value, Generator) else (value,):
                yield item, context.marks()

        ended = run_in_child(
            run,
            timeout_seconds,
            close_seconds=self.scale_timeout(CLOSE_SECONDS),
            exclude_queued=self.spec.simulated,
        )
        if ended.value is None:
            return ended
        value, marks = ended.value
        self._marks_apart += marks
        return replace(ended, value=value)

    def leave_open(self) -> None:
        """Release nothing at the end: the kernel does so when this process, which must be a separate one, ends."""
        self._stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> ProbeContext:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the context. A failure to release is added to a pending error as a note, otherwise raised."""
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and: {failure}")


def choose_gpu(driver: Driver, spec: DeviceSpec) -> tuple[TopologyNode | None, str]:
    """Return the selected GPU in KFD and DRM. Raises ZincError if there is no GPU that this version supports."""
    try:
        topology = read_topology(driver)
    except Exception:
        if not spec.render_path and not find_render_nodes(driver):
            raise
        return None, spec.render_path or find_render_nodes(driver)[0]
    for node in topology.gpus:
        if spec.render_path in ("", node.render_path) and (spec.render_path or node.arch in ARCHITECTURES):
            return node, node.render_path
    if spec.render_path:
        return None, spec.render_path
    seen = [node.arch for node in topology.gpus] + list(topology.hidden)
    if not topology.gpus and find_render_nodes(driver):
        return None, find_render_nodes(driver)[0]
    raise UnsupportedError(
        f"no GPU that this version supports: KFD lists {', '.join(seen) or 'none'}",
        next="--device /dev/dri/renderDN selects one regardless",
    )


def find_render_nodes(driver: Driver) -> list[str]:
    return [f"/dev/dri/{name}" for name in list_folder(driver, "/dev/dri") if name.startswith("renderD")]


def wait_until(reached: Callable[[], bool], timeout_seconds: float, pause_seconds: float = 0.002) -> bool:
    """Return whether the condition became true in time; it is checked once more after the deadline."""
    end = time.monotonic() + timeout_seconds
    while not reached():
        if time.monotonic() > end:
            return reached()
        time.sleep(pause_seconds)
    return True
