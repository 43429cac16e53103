"""Opcode tables: text in tables/, one row an opcode, parsed once per chip generation.

    gfx12 gfx11 mnemonic operands flags

The first two are the opcode in hex, `-` where the generation lacks it. `operands` are kinds split by commas in the
order of the text, `-` for none. What kinds and flags mean is said where the encoding is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module


@dataclass(frozen=True, slots=True)
class InstructionRow:
    opcode: int
    mnemonic: str
    operands: tuple[str, ...]
    flags: tuple[str, ...]

    def mask(self, letter: str) -> int:
        """The number in the flag of a letter and a hex digit, 0 without it."""
        return next((int(flag[1], 16) for flag in self.flags if len(flag) == 2 and flag[0] == letter), 0)


@cache
def rows(table: str, encoding: str, generation: int) -> Mapping[int, InstructionRow]:
    """The rows of `encoding` in tables/<table>.py, by opcode. `generation` is 11 or 12."""
    text = import_module(f"zinc_rt.isa.tables.{table}").ROWS[encoding]
    found: dict[int, InstructionRow] = {}
    for line in text.split("\n"):
        fields = line.split()
        if not fields:
            continue
        opcode = fields[0 if generation == 12 else 1]
        if opcode != "-":
            operands = () if fields[3] == "-" else tuple(fields[3].split(","))
            found[int(opcode, 16)] = InstructionRow(int(opcode, 16), fields[2], operands, tuple(fields[4:]))
    return found
