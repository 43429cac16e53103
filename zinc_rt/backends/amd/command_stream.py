"""Encode a dispatch plan as PM4 packets, given the addresses of the plan's block and of the kernels."""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.backends.amd.loaded_kernels import LoadedKernel
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.stamps import STAMPS_BYTES, make_begin_packet, make_end_packets
from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan, GridInBlock
from zinc_rt.lower.lowered_graph import Barrier
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, EventWrite, SetShReg
from zinc_rt.pm4.registers import WAVE32, Sh

STORES_OF_BEFORE = {  # caches that may hold older bytes: stores have gone through to L2
    Generation.GFX11: gcr.acquire(Generation.GFX11, GLK_INV=1, GLV_INV=1, GL1_INV=1),
    Generation.GFX12: gcr.acquire(Generation.GFX12, GLK_INV=1, GLV_INV=1),
}


def build_packets(
    plan: DispatchPlan,
    va: int,
    kernels: Mapping[str, LoadedKernel],
    generation: Generation,
    *,
    stamps_va: int = 0,
) -> PacketList:
    """Return the command stream, which must run after a cache invalidation that includes instructions, and
    the node of each dispatch. `stamps_va`: address at which the counter is stored before and after each dispatch,
    which then runs alone (stamps.py). Raise ValueError if a kernel's arguments differ from its table row.
    """
    wait = (EventWrite.cs_partial_flush(), AcquireMem(STORES_OF_BEFORE[generation]))
    registers = _Registers()
    stream: list[Packet] = [*registers.set(Sh.RESTART_X, 0, 0, 0), *registers.set(Sh.RESOURCE_LIMITS, 0)]
    dispatches: dict[int, Dispatch] = {}
    for step in plan.steps:
        if isinstance(step, Barrier):
            stream += wait
            continue
        kernel = kernels[step.launch.kernel]
        argument = len(step.launch.buffers), len(step.launch.constants)
        if argument != (kernel.buffers, kernel.constants):
            raise ValueError(
                f"{step.node!r}: {kernel.name} takes {kernel.buffers} buffers and {kernel.constants} constants, "
                f"but its row passes {argument[0]} and {argument[1]}"
            )
        arguments = va + step.arguments_offset
        stream += registers.set(Sh.PGM_LO, kernel.program_va >> 8 & 0xFFFFFFFF, kernel.program_va >> 40)
        stream += registers.set(Sh.PGM_RSRC1, *kernel.rsrc[:2])
        stream += registers.set(Sh.PGM_RSRC3, kernel.rsrc[2])
        stream += registers.set(Sh.TMPRING_SIZE, 0)
        stream += registers.set(Sh.START_X, 0, 0, 0, *kernel.threads, 0, 0)
        stream += registers.set(Sh.USER_DATA_0, arguments & 0xFFFFFFFF, arguments >> 32)
        stamp = stamps_va + STAMPS_BYTES * len(dispatches)
        if stamps_va:
            stream.append(make_begin_packet(stamp))
        dispatches[len(stream)] = step
        if isinstance(step.grid, GridInBlock):
            stream.append(DispatchIndirect(va + step.grid.offset_bytes, WAVE32))
        else:
            stream.append(DispatchDirect(*step.grid, WAVE32))
        if stamps_va:
            stream += make_end_packets(stamp)
    return PacketList(tuple(stream), plan.name, dispatches)


class _Registers:
    """The registers that the stream has set so far. A dispatch sets only registers that change."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[int, ...]] = {}

    def set(self, register: int, *values: int) -> list[Packet]:
        if self._values.get(register) == values:
            return []
        self._values[register] = values
        return [SetShReg(register, values)]
