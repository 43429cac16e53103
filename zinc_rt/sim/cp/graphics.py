"""The kernel's graphics ring: what programs that compute send there. State for drawing has no effect; a draw stops
the ring, and the report names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zinc_rt.sim.cp.compute import SHADER_TYPE, ComputeChannel, RegisterFile
from zinc_rt.sim.cp.decode import PacketForms, group_rows
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.execute import EXECUTE, control, registers, sync
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.interfaces import HardwareQueue
from zinc_rt.sim.tables.graphics_packets import CONTEXT_BASE, CONTEXT_END, GRAPHICS_ROWS
from zinc_rt.sim.tables.layout import View
from zinc_rt.sim.tables.packets import CS_PARTIAL_FLUSH
from zinc_rt.sim.tables.registers import SH, UCONFIG, find_register

RESET_FILTER_CAM = 1 << 2  # in the header of a SET packet: forget which registers were written before
_ROWS = group_rows(GRAPHICS_ROWS)


class GraphicsRegisters(RegisterFile):
    """Registers of the graphics engine. Those that the compute engine lacks are stored and have no effect."""

    def write(self, address: int, value: int) -> str | None:
        if CONTEXT_BASE <= address < CONTEXT_END:
            return None
        if find_register(address, self.generation) is None and (
            SH.base <= address < SH.end or UCONFIG.base <= address < UCONFIG.end
        ):
            return None
        return super().write(address, value)


class GraphicsChannel(ComputeChannel):
    """The graphics ring of one context."""

    FREE_HEADER_BITS = SHADER_TYPE | RESET_FILTER_CAM
    CALLS_WITHIN_CALLS = True

    def __init__(self, queue: HardwareQueue, device: DeviceState, number: int) -> None:
        super().__init__(EXECUTE, queue, device, number)
        self._forms = PacketForms(_EXECUTE, device.generation, _ROWS, "not simulated: this device does not draw")
        self.registers = GraphicsRegisters(device.generation)


def _ignore(channel: ComputeChannel, packet: View) -> None:
    """Ignore state for drawing, and the order of the engine's two halves: both run in order here."""


def _execute_indirect(channel: ComputeChannel, packet: View) -> None:
    """Execute INDIRECT_BUFFER, which has no valid bit on this engine."""
    if packet.dwords != 4:
        control.cond_indirect_buffer(channel, packet)
    elif packet.priv:
        raise IllegalPacket("bit 31 (priv) is set, but only the kernel may set it")
    else:
        control.call(channel, packet.address, packet.size_dw, chain=bool(packet.chain))


def _set_context_registers(channel: ComputeChannel, packet: View) -> None:
    for index in range(len(packet.values)):
        address = CONTEXT_BASE + packet.register + index
        if address >= CONTEXT_END:
            raise IllegalPacket(f"context register offset {address - CONTEXT_BASE:#x} does not exist")


def _write_event(channel: ComputeChannel, packet: View) -> None:
    """Wait for waves at CS_PARTIAL_FLUSH; no other event concerns dispatches."""
    if packet.event_type == CS_PARTIAL_FLUSH:
        sync.event_write(channel, packet)


def _acquire(channel: ComputeChannel, packet: View) -> None:
    """Invalidate caches; with PWS, first wait for all earlier work, which includes the release that it names."""
    if not packet.pws_enable:
        sync.acquire_mem(channel, packet)
        return

    def finish() -> None:
        channel.seen = channel.find_launched_clock()
        sync.acquire_mem(channel, packet)

    channel.wait_for(QueueWait(lambda: not channel.pending.busy(), "ACQUIRE_MEM with PWS", then=finish))


def _predicate(channel: ComputeChannel, packet: View) -> None:
    if packet.operation:
        raise IllegalPacket("SET_PREDICATION is not simulated")


_EXECUTE: Mapping[int, Callable[[Any, Any], None]] = {
    **EXECUTE,
    0x12: _ignore,  # CLEAR_STATE
    0x20: _predicate,  # SET_PREDICATION
    0x28: _ignore,  # CONTEXT_CONTROL
    0x3F: _execute_indirect,  # INDIRECT_BUFFER
    0x42: _ignore,  # PFP_SYNC_ME
    0x46: _write_event,  # EVENT_WRITE
    0x4A: _ignore,  # PREAMBLE_CNTL
    0x58: _acquire,  # ACQUIRE_MEM
    0x69: _set_context_registers,  # SET_CONTEXT_REG
    0x7A: registers.set_uconfig_reg,  # SET_UCONFIG_REG_INDEX
    0xB8: _ignore,  # SET_CONTEXT_REG_PAIRS
    0xB9: _ignore,  # SET_CONTEXT_REG_PAIRS_PACKED
    0xEF: _ignore,  # UPDATE_DB_SUMMARIZER_TIMEOUTS
}
