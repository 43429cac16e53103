"""Details of a page fault that only a simulated device has: access and byte, packet, instruction, wave.

Hardware reports the page, and whether it was missing, read-only or not executable (KFD's MEMORY event, INFO's
GPUVM_FAULT). None of the data here is available on a real GPU, and reports state that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.instrument import AmdInstrument, QueueFinding
from zinc_rt.backends.amd.packet_list import AmdExecutable
from zinc_rt.ir.graph import Node
from zinc_rt.kmd.syscalls import PAGE_BYTES
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import DispatchDirect, DispatchIndirect

DIGITS = 12  # of a digest, in text
FAULTED = ("page-fault",)
DISPATCHES = (DispatchDirect, DispatchIndirect)

UNSEEN = (
    "nothing more: a GPU tells the page and why, not who. `zinc-rt replay LOG --tiers t1 --device sim --bisect` "
    "of a recorded run names node, kernel, instruction and wave"
)


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """The details of one fault. `allocation` names `va` by this backend's names, `near` by the device's, which
    include a plan's buffers and freed memory. `dispatch` counts the dispatches of `program`, its indirect buffer,
    from 0; None if the packet is no dispatch. The following fields are empty if the access was not made by a wave.
    `lanes` has one bit per lane."""

    va: int
    access: str
    why: str
    allocation: str
    near: str
    packet: str
    program: str = ""
    dispatch: int | None = None
    dispatches: int = 0
    node: str = ""
    kernel: str = ""
    kernel_sha256: str = ""
    pc: int | None = None
    source: str = ""
    instruction: str = ""
    group: tuple[int, int, int] | None = None
    wave: int | None = None
    lanes: int = 0

    @property
    def format_summary(self) -> str:
        """Summarise the fault in one clause, for the reason of a hang."""
        who = [f"node {self.node}"] if self.node else []
        who += [f"kernel {self._format_code()}", self._format_wave()] if self.pc is not None else [self.packet]
        return f"{self.access} at {self.va:#x} by {', '.join(who)}"

    def lines(self) -> list[str]:
        """Return rows of a report, each a label and its text."""
        rows = [f"access    {self.access} at {self.va:#x}, {self.why}: {self.allocation}"]
        if self.near != self.allocation:
            rows.append(f"near      {self.near}")
        if self.node:
            rows.append(f"node      {self.node}")
        text = (
            f"dispatch {self.dispatch} (from 0) of {self.dispatches} in {self.program}: "
            if self.dispatch is not None
            else ""
        )
        rows.append(f"packet    {text}{self.packet}")
        if self.pc is not None:
            digest = f", sha256 {self.kernel_sha256[:DIGITS]}…" if self.kernel_sha256 else ""
            rows.append(f"kernel    {self._format_code()}{digest}")
            rows.append(f"wave      {self._format_wave().removeprefix('wave ')}")
        return rows

    def _format_code(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.kernel or '(no kernel of ours)'} pc {self.pc:#x}{source} `{self.instruction}`"

    def _format_wave(self) -> str:
        lanes = [lane for lane in range(64) if self.lanes >> lane & 1]
        message = (
            f", lane {lanes[0]}" if len(lanes) == 1 else f", {len(lanes)} lanes from {lanes[0]}" if lanes else ""
        )
        return f"wave {self.wave} of workgroup {self.group}{message}"


class FaultFinder:
    """Finder of a simulated device's data about a backend's page fault. Queues of other backends, with other ids,
    may share the device; findings from before the backend was created are ignored."""

    def __init__(
        self,
        instrument: AmdInstrument,
        addresses: AddressMap,
        executable_at: Callable[[int], tuple[AmdExecutable | None, int]],
        queue_ids: Callable[[], Collection[int]],
        generation: Generation,
    ) -> None:
        """Attach to `instrument`. `executable_at` returns the program that contains a packet's address, and the
        dword. `queue_ids` returns the backend's own queues."""
        self._instrument = instrument
        self._addresses = addresses
        self._executable_at = executable_at
        self._queue_ids = queue_ids
        self._generation = generation
        self._before = instrument.count(FAULTED)

    def __call__(self, queue_id: int, page_va: int) -> tuple[SimulatedFault, Node | None] | None:
        """Return the latest fault of that queue in that page, else of another queue of the backend, and its
        queue.
        """
        queue_findings = [
            queue_finding
            for queue_finding in self._instrument.queue_findings(FAULTED, self._before)
            if queue_finding.finding.fault is not None
            and queue_finding.finding.fault.va // PAGE_BYTES == page_va // PAGE_BYTES
        ]
        ours = self._queue_ids()
        queue_findings = [item for item in queue_findings if item.queue_id == queue_id] or [
            item for item in queue_findings if item.queue_id in ours
        ]
        if not queue_findings:
            return None
        return self._locate_dispatch(queue_findings[-1]), queue_findings[-1].finding.node

    def _locate_dispatch(self, found: QueueFinding) -> SimulatedFault:
        """Add the dispatch and the kernel if the packet is in one of our executables."""
        finding, fault = found.finding, found.finding.fault
        assert fault is not None
        seen = SimulatedFault(
            fault.va,
            fault.access,
            fault.why,
            self._addresses.describe(fault.va),
            fault.near,
            fault.by,
            node=repr(finding.node) if finding.node is not None else "",
            kernel=finding.kernel,
            pc=finding.pc,
            source=finding.source,
            instruction=finding.instruction,
            group=finding.group,
            wave=finding.wave,
            lanes=finding.lanes,
        )
        executable, offset_dw = self._executable_at(found.packet_va)
        if executable is None:
            return seen
        stream = decode_stream(executable.ib.words, self._generation)
        dispatches = [item.offset for item in stream if isinstance(item.packet, DISPATCHES)]
        code = executable.kernels().get(finding.kernel, b"")
        return replace(
            seen,
            program=executable.name,
            dispatch=dispatches.index(offset_dw) if offset_dw in dispatches else None,
            dispatches=len(dispatches),
            kernel_sha256=hashlib.sha256(code).hexdigest() if code else "",
        )
