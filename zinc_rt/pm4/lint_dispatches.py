"""Linter rules for dispatches and the state set before them: registers, workgroups, the fence after a dispatch.

Only packets of this stream are considered. An INDIRECT_BUFFER runs packets that the linter does not see and that
may set any state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.bits import Bits
from zinc_rt.pm4.decode import BadPacket, DecodedPacket
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint_rules import Complaint
from zinc_rt.pm4.packets import (
    AcquireMem,
    DispatchDirect,
    DispatchIndirect,
    IndirectBuffer,
    LoadShRegIndex,
    ReleaseMem,
)
from zinc_rt.pm4.registers import SH, Sh

THREADS_MAXIMUM = 1024  # of a workgroup: 32 waves of 32, 16 of 64
FULL_THREADS = {Generation.GFX11: 0xFFFF, Generation.GFX12: 0x1FFF}  # NUM_THREAD_FULL
# Registers that a launch requires: program address, resources and workgroup size.
NEEDED = {
    "PGM_LO": Sh.PGM_LO,
    "PGM_HI": Sh.PGM_HI,
    "PGM_RSRC1": Sh.PGM_RSRC1,
    "PGM_RSRC2": Sh.PGM_RSRC2,
    "NUM_THREAD_X": Sh.NUM_THREAD_X,
    "NUM_THREAD_Y": Sh.NUM_THREAD_X + 1,
    "NUM_THREAD_Z": Sh.NUM_THREAD_X + 2,
}


@dataclass(slots=True)
class DispatchState:
    """The state set by the packets so far. `elsewhere`: unseen packets may have set other state."""

    generation: Generation
    registers: dict[int, int] = field(default_factory=dict)  # SH offset -> value
    elsewhere: bool = False
    unwritten: bool = False  # a dispatch's stores may still be in L2

    def threads(self) -> tuple[int, int, int] | None:
        """The workgroup size, or None until it is known."""
        values = [self.registers.get(Sh.NUM_THREAD_X + axis) for axis in range(3)]
        full = FULL_THREADS[self.generation]
        x, y, z = (None if value is None else value & full for value in values)
        return None if x is None or y is None or z is None else (x, y, z)

    def apply(self, item: DecodedPacket) -> None:
        """Apply the state changes of a packet."""
        packet = item.packet
        match packet:
            case IndirectBuffer() | LoadShRegIndex():
                self.elsewhere = True
            case DispatchDirect() | DispatchIndirect():
                self.unwritten = True
            case AcquireMem():
                if _has(gcr.ACQUIRE[self.generation], packet.gcr_cntl, "GL2_WB"):
                    self.unwritten = False
            case ReleaseMem():
                if _has(gcr.RELEASE[self.generation], packet.gcr_cntl, "GL2_WB"):
                    self.unwritten = False
            case _:
                for write in () if isinstance(packet, BadPacket) else packet.register_writes():
                    if SH.base <= write.address < SH.end:
                        self.registers[write.address - SH.base] = write.value


def lint_dispatches(
    items: Sequence[DecodedPacket], generation: Generation
) -> Iterator[tuple[DecodedPacket, Complaint]]:
    """Yield each packet that violates a rule, with the finding."""
    state = DispatchState(generation)
    for item in items:
        match item.packet:
            case DispatchDirect() | DispatchIndirect():
                for complaint in _lint_dispatch(state):
                    yield item, complaint
            case ReleaseMem(data_sel=sel, gcr_cntl=cntl) if sel and state.unwritten:
                if not _has(gcr.RELEASE[generation], cntl, "GL2_WB"):
                    text = "the fence is written without an L2 write-back after the last dispatch"
                    yield (
                        item,
                        (
                            1,
                            "fence-write-back",
                            text,
                            "set GL2_WB: otherwise readers of the fence may see old data",
                        ),
                    )
        state.apply(item)


def _lint_dispatch(state: DispatchState) -> Iterator[Complaint]:
    missing = [name for name, offset in NEEDED.items() if offset not in state.registers]
    if missing and not state.elsewhere:
        text = f"nothing in this stream sets {', '.join(f'COMPUTE_{name}' for name in missing)}"
        yield (
            0,
            "dispatch-state",
            text,
            "set them: the values left by an earlier stream may belong to another kernel",
        )
    threads = state.threads()
    if threads is None:
        return
    x, y, z = threads
    if 0 in threads or x * y * z > THREADS_MAXIMUM:
        text = f"a workgroup of {x} x {y} x {z} work-items: expected 1 to {THREADS_MAXIMUM}"
        yield 0, "workgroup-size", text, "NUM_THREAD_X, _Y and _Z are the workgroup's size, not the grid's"


def _has(fields: tuple[Bits, ...], value: int, name: str) -> bool:
    return any(field.name == name and field.of(value) for field in fields)
