"""The GPU's counter before and after each dispatch of a timed graph, which the CP writes to memory.

COPY_DATA of the counter is what Mesa's vkCmdWriteTimestamp emits at the top of the pipe of a compute queue
(radv_CmdWriteTimestamp2). A CS_PARTIAL_FLUSH makes the second reading wait for the dispatch; without a write
confirmation before the dispatch, the way to memory does not count as the dispatch's time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.backends.amd.device_memory import MemoryBlock
from zinc_rt.backends.times import TimedDispatch, Times
from zinc_rt.ir.graph import Node
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import CopyData, EventWrite

STAMPS_BYTES = 16  # two 64-bit readings a dispatch
NS_A_TICK = 10  # 100 MHz: gpu_counter_freq of amdgpu's device info; row "counter" of zinc_rt/host/facts.yaml
GPU_CLOCK = 9  # COPY_DATA's src_sel
CLOCK = "the GPU's counter at 100 MHz"
SIMULATED_CLOCK = "a simulated counter: this machine's clock, no word about hardware"


def make_begin_packet(va: int) -> Packet:
    return CopyData(0, va, src_sel=GPU_CLOCK, count_sel=1)


def make_end_packets(va: int) -> tuple[Packet, ...]:
    return (
        EventWrite.cs_partial_flush(),
        CopyData(0, va + STAMPS_BYTES // 2, src_sel=GPU_CLOCK, count_sel=1, wr_confirm=1),
    )


@dataclass(slots=True)
class Stamps:
    """The location of an executable's timestamps, in host-visible memory. `dispatches`: the dispatch that each
    timestamp belongs to.
    """

    block: MemoryBlock
    simulated: bool
    dispatches: Sequence[tuple[Node | None, str]] = field(default_factory=tuple)

    def clear(self) -> None:
        self.block.device.host.view[:] = bytes(self.block.device.size_bytes)

    def read(self) -> Times:
        """Return the readings of the last replay, which must have finished; nothing before the first replay."""
        size_bytes = STAMPS_BYTES * len(self.dispatches)
        ticks = struct.unpack(f"<{size_bytes // 8}Q", self.block.device.host.view[:size_bytes])
        if not any(ticks):
            return Times(self._read_clock, self.simulated, ())
        readings = zip(self.dispatches, ticks[::2], ticks[1::2], strict=True)
        return Times(
            self._read_clock,
            self.simulated,
            tuple(TimedDispatch(*whose, NS_A_TICK * start, NS_A_TICK * ended) for whose, start, ended in readings),
        )

    @property
    def _read_clock(self) -> str:
        return SIMULATED_CLOCK if self.simulated else CLOCK
