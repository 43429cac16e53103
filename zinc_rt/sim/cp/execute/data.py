"""Data moves by the CP itself, in packet order; they do not wait for earlier dispatches (pm4.md §3.7,
§3.8)."""

from __future__ import annotations

import struct

from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.execute.compare import find_function
from zinc_rt.sim.cp.interruptions import IllegalPacket
from zinc_rt.sim.cp.work import LaunchedWork
from zinc_rt.sim.tables.layout import View

REGISTER_MASK = 0x3FFFF


def write_data(channel: ComputeChannel, packet: View) -> None:
    if packet.dst_sel == 0:
        for index, value in enumerate(packet.data):
            step = 0 if packet.same_address else index
            channel.write_register((packet.address & REGISTER_MASK) + step, value)
        return
    if packet.dst_sel not in (2, 5):
        raise IllegalPacket(f"dst_sel {packet.dst_sel} is none of register (0), L2 (2), memory (5)")
    va = channel.align(packet.address, 4)
    if packet.same_address:
        for value in packet.data[:-1]:
            channel.space.write(va, struct.pack("<I", value))
        channel.write(va, struct.pack("<I", packet.data[-1]))
        return
    channel.write(va, struct.pack(f"<{len(packet.data)}I", *packet.data))


def copy_data(channel: ComputeChannel, packet: View) -> None:
    size = 8 if packet.count_sel else 4
    value = _read_source(channel, packet, size) & (1 << 8 * size) - 1
    if packet.dst_sel in (0, 6):
        address = packet.dst & REGISTER_MASK
        channel.write_register(address, value & 0xFFFFFFFF)
        if size == 8:
            channel.write_register(address + 1, value >> 32)
    elif packet.dst_sel in (2, 5):
        channel.write(channel.align(packet.dst, size), value.to_bytes(size, "little"))
    elif packet.dst_sel == 4:
        channel.report_unverified("not-simulated", "performance counters are not simulated")
    else:
        raise IllegalPacket(f"dst_sel {packet.dst_sel} is not a destination on this chip")


def _read_source(channel: ComputeChannel, packet: View, size: int) -> int:
    select = packet.src_sel
    if select in (1, 2):
        if select == 1:
            channel.report_unverified("value-unverified", "src_sel 1 is obsolete, 2 is memory through L2")
        return channel.read(channel.align(packet.src, size), size)
    if select == 0:
        address = packet.src & REGISTER_MASK
        low = channel.registers.read(address)
        return low | channel.registers.read(address + 1) << 32 if size == 8 else low
    if select == 5:
        return packet.src
    if select == 6:
        return channel.atomic_return
    if select in (9, 10):
        return channel.device.kmd.gpu_counter()
    if select == 4:
        channel.report_unverified("not-simulated", "performance counters read as 0 here")
        return 0
    raise IllegalPacket(f"src_sel {select} is not a source on this chip")


def cond_write(channel: ComputeChannel, packet: View) -> None:
    compare = find_function(packet.function)
    if packet.poll_space == 0:
        value = channel.registers.read(packet.poll_address & REGISTER_MASK)
    else:
        value = channel.read(channel.align(packet.poll_address, 4), 4)
    if not compare(value & packet.mask, packet.reference):
        return
    if packet.write_space == 0:
        channel.write_register(packet.write_address & REGISTER_MASK, packet.data)
    elif packet.write_space == 1:
        channel.write(channel.align(packet.write_address, 4), struct.pack("<I", packet.data))
    else:
        raise IllegalPacket(f"write_space {packet.write_space} is neither register (0) nor memory (1)")


def timestamp(channel: ComputeChannel, packet: View) -> None:
    """Store the counter now (top), or after all earlier work has finished (bottom)."""
    if packet.enable_top:
        channel.write(channel.align(packet.top_address, 8), _read_counter(channel))
    if packet.enable_bottom:
        va = channel.align(packet.bottom_address, 8)

        def at_end() -> bool:
            channel.space.write(va, _read_counter(channel))
            return True

        channel.pending.launch(LaunchedWork(None, channel.label(), at_end, at=channel.at))


def _read_counter(channel: ComputeChannel) -> bytes:
    return struct.pack("<Q", channel.device.kmd.gpu_counter() & (1 << 64) - 1)
