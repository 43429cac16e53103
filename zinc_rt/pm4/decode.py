"""Decode dwords into packets. Nothing here raises: dwords that the CP could not run become a `BadPacket`.

The compute engine stops permanently at an unknown packet (pm4.md §3.15), and `decode_stream` stops there too
unless `keep_going` is set. Decoding further is a guess for readers of dumps: after a type-3 header it trusts the
count, otherwise it tries the next dword. Every item after the first BadPacket is marked as never reached by the
CP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.opcodes import OTHER_ENGINES
from zinc_rt.pm4.packet import BY_OPCODE, Packet
from zinc_rt.pm4.packets import Nop
from zinc_rt.pm4.packets.control import ONE_DWORD_NOP

NOP_ONE_DWORD_COUNT = 0x3FFF

Why = Literal["type", "opcode", "other-engine", "generation", "count", "truncated"]


@dataclass(frozen=True, slots=True)
class BadPacket:
    """A packet at which the CP stops. `words` are the dwords that its header claims, up to the end of the
    stream.
    """

    why: Why
    text: str
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodedPacket:
    """A packet or BadPacket at a dword offset of the stream."""

    offset: int
    length: int
    packet: Packet | BadPacket
    reached: bool = True


def decode(words: Sequence[int], offset: int, generation: Generation) -> tuple[Packet | BadPacket, int]:
    """Decode the packet at words[offset]. Return it and its length in dwords, at least 1 and never past the end.

    A BadPacket's length is the one its header claims, or 1 without a type-3 header.
    """
    header = words[offset]
    if type(header) is not int:  # NumPy integers would wrap when the halves of a VA are joined
        return decode(_to_ints(words[offset : offset + _read_claimed_length(int(header))]), 0, generation)
    if header >> 30 != 3:
        return _make_bad_packet("type", _describe_type(header), words, offset, 1)
    opcode, count = header >> 8 & 0xFF, header >> 16 & 0x3FFF
    length = count + 2
    classes = BY_OPCODE.get(opcode)
    if classes is None:
        if opcode in OTHER_ENGINES:
            text = f"{OTHER_ENGINES[opcode]} is not a compute packet"
            return _make_bad_packet("other-engine", text, words, offset, length)
        return _make_bad_packet("opcode", f"opcode {opcode:#04x} is not defined", words, offset, length)
    if classes[0] is Nop and count == NOP_ONE_DWORD_COUNT:
        length = 1
    left = len(words) - offset
    for cls in classes:
        if cls.takes(length):
            if generation not in cls.ON:
                text = f"{cls.NAME} is not a compute packet of {Generation(generation).name.lower()}"
                return _make_bad_packet("generation", text, words, offset, length)
            if length > left:
                break
            return cls.read(words, offset, length, generation), length
    else:
        sizes = ", ".join(f"{cls.NAME} has {cls.sizes()}" for cls in classes)
        return _make_bad_packet("count", f"count {count} makes {length} dwords: {sizes}", words, offset, length)
    text = f"{classes[0].NAME} of {length} dwords with {left} left"
    return _make_bad_packet("truncated", text, words, offset, length)


def decode_stream(
    words: Sequence[int], generation: Generation, *, keep_going: bool = False
) -> list[DecodedPacket]:
    """Decode every packet in order, up to the first BadPacket; with `keep_going`, continue after it by
    guessing.
    """
    if len(words) and type(words[0]) is not int:
        words = _to_ints(words)
    items: list[DecodedPacket] = []
    offset, reached = 0, True
    while offset < len(words):
        packet, length = decode(words, offset, generation)
        items.append(DecodedPacket(offset, length, packet, reached))
        if type(packet) is BadPacket:
            if not keep_going:
                break
            reached = False
        offset += length
    return items


def _to_ints(words: Sequence[int]) -> list[int]:
    return [int(word) for word in words]


def _read_claimed_length(header: int) -> int:
    """Return the number of dwords that a header claims, with the special count of the one-dword NOP resolved."""
    return 1 if header & 0xFFFFFF00 == ONE_DWORD_NOP else (header >> 16 & 0x3FFF) + 2


def _make_bad_packet(
    reason: Why, text: str, words: Sequence[int], offset: int, length: int
) -> tuple[BadPacket, int]:
    held = tuple(words[offset : offset + length])
    return BadPacket(reason, text, held), len(held)


def _describe_type(header: int) -> str:
    if header >> 30 == 2:
        return f"{header:#010x} is a type-2 packet: padding for graphics only, on compute write 0xffff1000"
    return f"{header:#010x} is not a packet header: it has type {header >> 30}, expected 3"
