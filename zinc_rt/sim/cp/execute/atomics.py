"""GL2's atomics (pm4.md §3.11): the new value that each operation computes from the old one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.tables.layout import View
from zinc_rt.sim.tables.packets import ATOMIC_NO_RETURN, ATOMIC_QWORD

READ, CMPSWAP = 0, 8
WRITE = 32  # without the 64-bit offset: it would be 64-bit "read"
NOTHING = (91, 123)
LOOP = 1

Operation = Callable[[int, int, int, int], int]
"""(old, source, compare, size in bits) -> new, before truncation to the size."""


def _to_signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _keep(old: int, source: int, compare: int, bits: int) -> int:
    return old


def _swap(old: int, source: int, compare: int, bits: int) -> int:
    return source


OPERATIONS: Mapping[int, Operation] = {
    READ: _keep,
    7: _swap,
    CMPSWAP: lambda old, source, compare, bits: source if old == compare else old,
    15: lambda old, source, compare, bits: old + source,
    16: lambda old, source, compare, bits: old - source,
    17: lambda old, source, compare, bits: min(old, source, key=lambda v: _to_signed(v, bits)),
    18: lambda old, source, compare, bits: min(old, source),
    19: lambda old, source, compare, bits: max(old, source, key=lambda v: _to_signed(v, bits)),
    20: lambda old, source, compare, bits: max(old, source),
    21: lambda old, source, compare, bits: old & source,
    22: lambda old, source, compare, bits: old | source,
    23: lambda old, source, compare, bits: old ^ source,
    24: lambda old, source, compare, bits: 0 if old >= source else old + 1,
    25: lambda old, source, compare, bits: source if old == 0 or old > source else old - 1,
    26: lambda old, source, compare, bits: max(old - source, 0),
    27: lambda old, source, compare, bits: old - source if old >= source else old,
}
NARROW_ONLY = (READ, 26, 27)


def find_operation(number: int) -> tuple[Operation, int]:
    """Return the operation and size in bits of opcode `number`. Raises Illegal for an operation that does not
    exist.
    """
    if number == WRITE:
        return _swap, 32
    if number in NOTHING:
        return _keep, 32
    base = number & ~(ATOMIC_NO_RETURN | ATOMIC_QWORD)
    plain = number == base
    if base not in OPERATIONS or (base in NARROW_ONLY and not plain):
        raise IllegalPacket(f"atomic {number} is not a GL2 operation")
    return OPERATIONS[base], 64 if number & ATOMIC_QWORD else 32


def atomic_mem(channel: ComputeChannel, packet: View) -> None:
    """Execute one pass, or with command 1 repeat until the memory contained `compare`. The old value is
    kept for COPY_DATA."""
    if packet.command > 3:
        raise IllegalPacket(f"command {packet.command} does not exist, expected 0 to 3")
    make, bits = find_operation(packet.atomic)
    size = bits // 8
    mask = (1 << bits) - 1
    va = channel.align(packet.address, size)
    source, compare = packet.source & mask, packet.compare & mask

    def run_once() -> bool:
        old = int.from_bytes(channel.space.read(va, size), "little")
        new = make(old, source, compare, bits) & mask
        if new != old:
            channel.space.write(va, new.to_bytes(size, "little"))
        channel.atomic_return = old
        return packet.command != LOOP or old == compare

    def finish() -> None:
        channel.record_accesses(atomics=((va, size),))

    if packet.command == LOOP and packet.atomic & ~(ATOMIC_NO_RETURN | ATOMIC_QWORD) != CMPSWAP:
        channel.report_unverified("value-unverified", "looping is known for compare-and-swap only")
    channel.wait_for(
        QueueWait(run_once, f"ATOMIC_MEM until 0x{va:x} holds {compare:#x}", not channel.is_user, finish)
    )
