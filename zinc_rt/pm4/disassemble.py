"""The disassembler: a dword stream as annotated text, one line per dword, similar to umr's output.

0x0000  c0027600  SET_SH_REG
0x0001  0000020c    register=0x20c (COMPUTE_PGM_LO)
0x0002  00001000    COMPUTE_PGM_LO = 0x1000
0x0003  00000000    COMPUTE_PGM_HI = 0x0  code at 0x100000 (rms_norm)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from zinc_rt.pm4.bits import describe
from zinc_rt.pm4.decode import BadPacket, DecodedPacket, decode_stream
from zinc_rt.pm4.fields import Field
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import Nop
from zinc_rt.pm4.registers import register_at, register_name

Symbol = Callable[[int], str | None]
NOP_BODY_SHOWN = 8


@dataclass(frozen=True, slots=True)
class DwordLine:
    """A dword and its meaning; `first` marks a packet's header."""

    offset: int
    word: int
    text: str
    first: bool


def disassemble(
    words: Sequence[int], generation: Generation, *, symbol: Symbol | None = None, offset: int = 0
) -> str:
    """Return the text of every line. `offset` is the dword offset of words[0]; `symbol` maps a VA to a name or
    None."""
    rows = disassemble_lines(words, generation, symbol=symbol)
    return "\n".join(
        f"0x{offset + row.offset:04x}  {row.word:08x}  {'' if row.first else '  '}{row.text}".rstrip()
        for row in rows
    )


def disassemble_lines(
    words: Sequence[int], generation: Generation, *, symbol: Symbol | None = None
) -> Iterator[DwordLine]:
    """Return a line for every dword except the middle of long padding. After a packet that stops the CP, the lines
    state this.
    """
    for item in decode_stream(words, generation, keep_going=True):
        texts = describe_dwords(item, generation, symbol)
        for index in range(item.length):
            text = texts.get(index)
            if text is None and index and type(item.packet) is Nop and index > NOP_BODY_SHOWN:
                continue
            yield DwordLine(item.offset + index, words[item.offset + index], text or "", index == 0)


def describe_dwords(item: DecodedPacket, generation: Generation, symbol: Symbol | None = None) -> dict[int, str]:
    """Return the meaning of each dword of a packet, by its index."""
    unreached = "" if item.reached else "  (a guess: the CP stopped earlier)"
    packet = item.packet
    if isinstance(packet, BadPacket):
        return {0: f"BAD: {packet.text}{unreached}"}
    texts = {0: [packet.NAME]}
    if type(packet) is Nop:
        skipped = item.length - 1 - NOP_BODY_SHOWN
        texts[0].append(
            f"{item.length} dword{'s' * (item.length > 1)}{f', {skipped} not shown' if skipped > 0 else ''}"
        )
    for f in packet.FIELDS:
        _add_field(texts, packet, f, generation)
    for write in packet.register_writes():
        register = register_at(write.address, generation)
        inner = describe(register.fields, write.value) if register is not None and register.fields else ""
        name = register_name(write.address, generation)
        texts.setdefault(write.dword, []).append(f"{name} = {write.value:#x}{f'  {inner}' if inner else ''}")
    for access in packet.accesses():
        shown = symbol(access.va) if symbol is not None else None
        code = access.kind == "execute" and packet.SPACE is not None
        if code or shown:
            where = f"code at {access.va:#x}" if code else ""
            texts.setdefault(access.dword + 1, []).append(
                " ".join(t for t in (where, shown and f"({shown})") if t)
            )
    for dword, extra in packet.reserved:
        texts.setdefault(dword, []).append(f"reserved={extra:#x}")
    texts[0][0] += unreached
    return {index: "  ".join(parts) for index, parts in texts.items()}


def _add_field(texts: dict[int, list[str]], packet: Packet, f: Field, generation: Generation) -> None:
    value, location = getattr(packet, f.name), f.place
    if value is None or generation not in location.on:
        return
    if location.payload:
        for dword, text in packet.payload_texts():
            texts.setdefault(dword, []).append(text)
        return
    dword = location.spans[-1].dword
    if location.inner is not None:
        texts.setdefault(dword, []).append(
            f"{f.label(generation)}={value:#x}  {describe(location.inner[generation], value)}"
        )
        return
    names = location.values(generation)
    named = names.get(value) if names else None
    text = f"{value:#x}" if location.is_address or value > 9 else str(value)
    if f.name == "register" and (space := packet.SPACE) is not None:
        texts.setdefault(dword, []).append(
            f"register={value:#x} ({register_name(space.base + value, generation)})"
        )
        return
    texts.setdefault(dword, []).append(f"{f.label(generation)}={f'{named}({text})' if named else text}")
