"""Decode packet headers with this device's own tables: the packet's size, its view class, and its
function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.opcodes import OTHER_ENGINES  # names for reports; these packets stop the queue in any case
from zinc_rt.sim.cp.interruptions import IllegalPacket
from zinc_rt.sim.tables.layout import MakeView, PacketRow, select_fields
from zinc_rt.sim.tables.packets import ONE_DWORD_NOP, ROWS

KEPT = 4096  # headers remembered: a stream of ever new sizes must not grow without end


def group_rows(rows: Iterable[PacketRow]) -> dict[int, tuple[PacketRow, ...]]:
    """Return the rows by opcode."""
    grouped: dict[int, tuple[PacketRow, ...]] = {}
    for row in rows:
        grouped[row.opcode] = (*grouped.get(row.opcode, ()), row)
    return grouped


COMPUTE_ROWS: Mapping[int, tuple[PacketRow, ...]] = group_rows(ROWS)


@dataclass(frozen=True, slots=True)
class PacketForm:
    """A packet of one size. `run` is None if the device cannot execute it."""

    row: PacketRow
    dwords: int
    view: MakeView
    run: Callable[[Any, Any], None] | None
    mark: str


class PacketForms:
    """The packet forms of an engine. `run`: the function of each packet, by opcode. `refusal`: what the other
    engines' packets are."""

    def __init__(
        self,
        run: Mapping[int, Callable[[Any, Any], None]],
        generation: Generation,
        rows: Mapping[int, tuple[PacketRow, ...]] = COMPUTE_ROWS,
        refusal: str = "not a compute packet",
    ) -> None:
        self.generation, self.refusal = generation, refusal
        self._run, self._rows = run, rows
        self._kept: dict[int, PacketForm] = {}

    def of(self, header: int) -> PacketForm:
        """Return the form for a header. Raises Illegal for a header that stops the compute engine."""
        form = self._kept.get(header >> 8)
        if form is None:
            form = self._make_form(header)
            if len(self._kept) < KEPT:
                self._kept[header >> 8] = form
        return form

    def _make_form(self, header: int) -> PacketForm:
        if header >> 30 != 3:
            raise IllegalPacket(f"type: unexpected {_describe_type(header)}")
        opcode, count = header >> 8 & 0xFF, header >> 16 & 0x3FFF
        length = 1 if header >> 8 == ONE_DWORD_NOP else count + 2
        rows = self._rows.get(opcode)
        if rows is None:
            if opcode in OTHER_ENGINES:
                raise IllegalPacket(f"other-engine: {OTHER_ENGINES[opcode]} is {self.refusal}")
            raise IllegalPacket(f"opcode: {opcode:#04x} is not defined")
        for row in rows:
            if row.takes(length):
                if self.generation not in row.on:
                    chip = self.generation.name.lower()
                    raise IllegalPacket(f"generation: {row.name} is not a compute packet of {chip}")
                result = select_fields(row, length, self.generation)
                return PacketForm(row, length, result, self._run.get(opcode), f"packet {row.name}")
        sizes = ", ".join(f"{row.name} has {row.format_sizes()}" for row in rows)
        raise IllegalPacket(f"count: {count} gives a length of {length} dwords: {sizes}")


def _describe_type(header: int) -> str:
    if header >> 30 == 2:
        return f"{header:#010x} is a type-2 packet: padding for graphics only, on compute write 0xffff1000"
    return f"{header:#010x} is not a packet header: its type is {header >> 30}, and only type 3 is executed"
