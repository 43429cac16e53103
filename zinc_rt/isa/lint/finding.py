"""Findings of the static sanitizer."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa.control_flow import Flow
from zinc_rt.isa.effects import Effects
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.target import Target


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A fault at byte `pc` of the code, where the disassembled instruction is `text`.

    `producer_pc` is the instruction whose result or effect is concerned, on the path that was checked.
    """

    rule: str
    pc: int
    text: str
    message: str
    producer_pc: int | None = None
    producer_text: str = ""

    def sentence(self) -> str:
        """Return the finding as one line: location, rule, reason."""
        other = "" if self.producer_pc is None else f"  [{self.producer_pc:#06x} {self.producer_text}]"
        return f"{self.pc:#06x} {self.text}: {self.message}{other}"


@dataclass(frozen=True, slots=True)
class LintSubject:
    """A kernel in the form that all rules use."""

    flow: Flow
    order: tuple[int, ...]  # blocks in reverse postorder
    effects: dict[int, Effects]  # by pc
    at: dict[int, Instruction]
    target: Target

    def format_wait(self, counter: str, count: int) -> str:
        """Return the chip's instruction that waits until at most `count` operations of a counter are pending."""
        return self.target.rules.format_wait(counter, count)

    def finding(self, rule: str, pc: int, message: str, producer: int | None = None) -> LintFinding:
        instruction = self.at.get(pc)
        other = None if producer is None else self.at.get(producer)
        return LintFinding(
            rule,
            pc,
            "" if instruction is None else instruction.text,
            message,
            producer,
            "" if other is None else other.text,
        )
