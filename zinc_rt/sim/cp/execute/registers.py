"""Register writes (pm4.md §3.1): registers keep their values for the queue's life; nothing launches."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.interruptions import IllegalPacket
from zinc_rt.sim.tables.layout import View
from zinc_rt.sim.tables.registers import CONFIG, SH, UCONFIG, RegisterSpace, format_register

APPLY_KERNEL_CU_MASK = 3


def set_uconfig_reg(channel: ComputeChannel, packet: View) -> None:
    _set_all(channel, UCONFIG, enumerate(packet.values, packet.register))


def set_config_reg(channel: ComputeChannel, packet: View) -> None:
    """Reject SET_CONFIG_REG: every register in this range is privileged."""
    _set_all(channel, CONFIG, enumerate(packet.values, packet.register))


def set_sh_pairs(channel: ComputeChannel, packet: View) -> None:
    _set_all(channel, SH, packet.writes)


def set_uconfig_pairs(channel: ComputeChannel, packet: View) -> None:
    _set_all(channel, UCONFIG, packet.writes)


def _set_all(channel: ComputeChannel, space: RegisterSpace, writes: Iterable[tuple[int, int]]) -> None:
    for offset, value in writes:
        _set(channel, space, space.base + offset, value)


def _set(channel: ComputeChannel, space: RegisterSpace, address: int, value: int) -> None:
    if not space.base <= address < space.end:
        raise IllegalPacket(
            f"register offset {address - space.base:#x} is outside {space.name}: expected 0 to "
            f"{space.end - space.base - 1:#x}"
        )
    channel.write_register(address, value)


def set_sh_reg(channel: ComputeChannel, packet: View) -> None:
    if packet.index == 1:
        raise IllegalPacket("index 1 (insert VMID) is reserved for the kernel's queues")
    registers = channel.registers
    offset = packet.register
    for value in packet.values:
        unnamed = registers.open_sh.get(offset)
        if unnamed is None:
            _set(channel, SH, SH.base + offset, value)
        else:
            registers.sh[offset] = value
            if value & unnamed:
                name = format_register(SH.base + offset, channel.generation)
                channel.report_unverified("register-bits", f"{name}: bits {value & unnamed:#x} have no field")
        offset += 1


def set_sh_reg_index(channel: ComputeChannel, packet: View) -> None:
    """Write SH registers. Index 3 ANDs a CU mask with the kernel's, which the driver may have stored in
    the queue's `extra`."""
    if packet.index == 1:
        raise IllegalPacket("index 1 (insert VMID) is reserved for the kernel's queues")
    for index, value in enumerate(packet.values):
        offset = packet.register + index
        if packet.index == APPLY_KERNEL_CU_MASK:
            value &= channel.queue.extra.get(f"cu_mask_{offset:#x}", 0xFFFFFFFF)
        _set(channel, SH, SH.base + offset, value)


def set_packed(channel: ComputeChannel, packet: View) -> None:
    if packet.writes_count != len(packet.writes):
        channel.report_unverified(
            "writes-count",
            (f"{packet.name} specifies {packet.writes_count} registers but contains {len(packet.writes)}"),
        )
    set_sh_pairs(channel, packet)


def load_sh_reg_index(channel: ComputeChannel, packet: View) -> None:
    """Load registers from memory: consecutive ones, or (offset, value) pairs. Only direct addresses are
    simulated."""
    if packet.index != 0:
        raise IllegalPacket(f"index {packet.index}: this device loads from direct addresses only")
    va = channel.align(packet.address_dw << 2 | packet.address_hi << 32, 4)
    count = packet.num_dwords
    words = memoryview(channel.space.read(va, 4 * count)).cast("I").tolist() if count else []
    channel.record_accesses(reads=((va, 4 * count),))
    if packet.data_format == 0:
        for index, value in enumerate(words):
            _set(channel, SH, SH.base + packet.register + index, value)
    else:
        channel.report_unverified("packet-unverified", "offset-and-data lists are unverified")
        for offset, value in zip(words[0::2], words[1::2], strict=False):
            _set(channel, SH, SH.base + offset, value)


def ignore_packet(channel: ComputeChannel, packet: View) -> None:
    """Ignore counters and hints: no state that a program can read changes."""
    channel.report_unverified("not-simulated", f"{packet.name} has no effect on this device")
