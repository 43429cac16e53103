"""A decoded instruction, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zinc_rt.isa.operand import Operand
from zinc_rt.isa.rows import InstructionRow


class Modifier(NamedTuple):
    """A modifier after the operands: clamp, offset:16, op_sel:[0,1], th:TH_LOAD_NT. A bare modifier has no
    value.
    """

    name: str
    text: str
    value: int | tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of a kernel, or the first half of a VOPD, whose other half is `second`.

    `row` is the table row of its opcode. `operands` are in LLVM's order, the destination first. `dpp` is the kind
    of its data-parallel dword: DPP16, DPP8, or empty.
    """

    row: InstructionRow
    operands: tuple[Operand, ...]
    modifiers: tuple[Modifier, ...]
    words: tuple[int, ...]
    second: Instruction | None = None
    dpp: str = ""

    @property
    def encoding(self) -> str:
        """The encoding's name: SOP1, VOP3, GLOBAL, …; VOP3_DPP16 and VOP3_DPP8 are separate encodings."""
        return f"{self.row.encoding}_{self.dpp}" if self.dpp else self.row.encoding

    @property
    def opcode(self) -> int:
        return self.row.opcode

    @property
    def mnemonic(self) -> str:
        """The mnemonic in LLVM's syntax, with the suffixes for its encoding and DPP."""
        if not self.dpp:
            return self.row.mnemonic
        suffix = {"VOP3": "_e64_dpp", "VOP3P": "_e64_dpp", "VOPC": ""}.get(self.row.encoding, "_dpp")
        return self.row.name + suffix

    @property
    def size_bytes(self) -> int:
        return 4 * len(self.words)

    @property
    def text(self) -> str:
        """The instruction in LLVM's syntax."""
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
