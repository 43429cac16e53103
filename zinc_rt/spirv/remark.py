"""Lint remarks about a module: one line each."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.spirv.module import SpirvInstruction, SpirvModule


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark. `where`: the instruction and its function; `advice`: how to fix it."""

    rule: str
    where: str
    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.message}\n  next: {self.advice}"


def place(module: SpirvModule, instruction: SpirvInstruction) -> str:
    """Return "word 812, OpFAdd %47 in main": the instruction, its result's name or number, and its function."""
    text = str(instruction).partition(" ")[0]
    if (result := instruction.result) is not None:
        text += f" %{module.names.get(result) or result}"
    function = find_function(module, instruction.at)
    return f"word {instruction.at}, {text}" + (f" in {function}" if function else "")


def find_function(module: SpirvModule, offset: int) -> str:
    """Return the GLSL name, without parameters, of the function that contains a word; empty outside functions."""
    for function in module.functions:
        if function.instructions[0].at <= offset <= function.instructions[-1].at:
            return function.name.partition("(")[0]
    return ""
