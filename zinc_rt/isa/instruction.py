"""A decoded instruction, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zinc_rt.isa.operand import Operand


class Modifier(NamedTuple):
    """What follows the operands: clamp, offset:16, op_sel:[0,1], th:TH_LOAD_NT. A bare mark has no value."""

    name: str
    text: str
    value: int | tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """`operands` are in LLVM's order, the destination first. A VOPD's second half is `second`."""

    encoding: str  # SOP1, VOP3, VGLOBAL, …; _DPP16 and _DPP8 are encodings of their own
    opcode: int
    mnemonic: str
    operands: tuple[Operand, ...]
    modifiers: tuple[Modifier, ...]
    size_bytes: int
    words: tuple[int, ...]
    second: Instruction | None = None

    @property
    def text(self) -> str:
        """The instruction as LLVM writes it."""
        parts = self.mnemonic
        if self.operands:
            parts += " " + ", ".join([operand.text for operand in self.operands])
            if self.encoding == "EXP":
                parts = parts.replace(",", "", 1)  # none after the target
        if self.modifiers:
            parts += " " + " ".join([modifier.text for modifier in self.modifiers])
        return parts if self.second is None else f"{parts} :: {self.second.text}"

    def modifier(self, name: str) -> Modifier | None:
        return next((modifier for modifier in self.modifiers if modifier.name == name), None)
