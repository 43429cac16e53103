"""What only a simulated device tells of a page fault: access and byte, packet, instruction, wave.

Silicon gives the page, and whether it was missing, read-only or not executable (KFD's MEMORY event, INFO's
GPUVM_FAULT). Nothing here is known of a real GPU, and a report says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.base import Finding
from zinc_rt.ir.graph import Node

DIGITS = 12  # of a digest, in text

UNSEEN = (
    "nothing more: a GPU tells the page and why, not who. `zinc-rt replay LOG --tiers t1 --device sim --bisect` "
    "of a recorded run names node, kernel, instruction and wave"
)


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """`allocation` is where `va` lies by this backend's names, `near` by the device's, which knows a plan's
    buffers and what was freed. `dispatch` counts from 0 the dispatches of `program`, its indirect buffer; None
    where the packet is no dispatch. What follows is empty where the access was no wave's. `lanes` a bit each."""

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
    def summary(self) -> str:
        """In one clause, for the reason of a hang."""
        who = [f"node {self.node}"] if self.node else []
        who += [f"kernel {self._code()}", self._wave()] if self.pc is not None else [self.packet]
        return f"{self.access} at {self.va:#x} by {', '.join(who)}"

    def lines(self) -> list[str]:
        """Rows of a report: what, then the words."""
        rows = [f"access    {self.access} at {self.va:#x}, {self.why}: {self.allocation}"]
        if self.near != self.allocation:
            rows.append(f"near      {self.near}")
        if self.node:
            rows.append(f"node      {self.node}")
        place = (
            f"dispatch {self.dispatch} (from 0) of {self.dispatches} in {self.program}: "
            if self.dispatch is not None
            else ""
        )
        rows.append(f"packet    {place}{self.packet}")
        if self.pc is not None:
            digest = f", sha256 {self.kernel_sha256[:DIGITS]}…" if self.kernel_sha256 else ""
            rows.append(f"kernel    {self._code()}{digest}")
            rows.append(f"wave      {self._wave().removeprefix('wave ')}")
        return rows

    def _code(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.kernel or '(no kernel of ours)'} pc {self.pc:#x}{source} `{self.instruction}`"

    def _wave(self) -> str:
        lanes = [lane for lane in range(64) if self.lanes >> lane & 1]
        said = (
            f", lane {lanes[0]}" if len(lanes) == 1 else f", {len(lanes)} lanes from {lanes[0]}" if lanes else ""
        )
        return f"wave {self.wave} of workgroup {self.group}{said}"


def simulated_fault(
    finding: Finding,
    addresses: AddressMap,
    *,
    program: str = "",
    dispatch: int | None = None,
    dispatches: int = 0,
    kernel_sha256: str = "",
) -> SimulatedFault:
    """Of a finding that is a page fault's."""
    fault = finding.fault
    assert fault is not None
    node: Node | None = finding.node
    return SimulatedFault(
        fault.va,
        fault.access,
        fault.why,
        addresses.describe(fault.va),
        fault.near,
        fault.by,
        program,
        dispatch,
        dispatches,
        repr(node) if node is not None else "",
        finding.kernel,
        kernel_sha256,
        finding.pc,
        finding.source,
        finding.instruction,
        finding.group,
        finding.wave,
        finding.lanes,
    )
