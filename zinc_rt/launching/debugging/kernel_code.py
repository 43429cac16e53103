"""The instructions of a kernel that can run, by pc and by source line."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import UsageError
from zinc_rt.isa import Instruction, decode
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.sim.shader.layout import KernelVariant

NEAREST = 4  # lines named in an error
CONTEXT_LINES = 5


@dataclass(frozen=True, slots=True)
class SourceLine:
    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class KernelCode:
    """Reachable instructions by pc: the byte offset from the kernel's entry, as in findings."""

    def __init__(self, variant: KernelVariant, image: CodeImage, kernel: CodeKernel) -> None:
        self.name, self._image = kernel.name, image
        self._variant = variant
        flow = find_control_flow(variant.code, variant.target, variant.entry, running=True)
        self._target = flow.target
        self.instructions: dict[int, Instruction] = {
            pc - variant.entry: instruction
            for block in sorted(flow.blocks.values(), key=lambda block: block.start)
            for pc, instruction in block.instructions
        }
        self.pcs = sorted(self.instructions)
        self.lines = {pc: _parse_line(image.line_at(kernel.entry_at + pc)) for pc in self.pcs}
        files = Counter(line.file for line in self.lines.values() if line is not None)
        self.file = files.most_common(1)[0][0] if files else ""
        self.files = tuple(files)

    def offset(self, pc: int) -> int:
        """Return the offset in the compiled code."""
        return pc + self._variant.entry

    def text(self, pc: int) -> str:
        """Return the instruction's text."""
        known = self.instructions.get(pc) or decode(self._variant.code, self.offset(pc), self._target)
        return known.text if known is not None else "no instruction"

    def mnemonic(self, pc: int) -> str:
        return self.text(pc).partition(" ")[0]

    def line(self, pc: int) -> SourceLine | None:
        return self.lines.get(pc)

    def format_place(self, pc: int) -> str:
        """Return FILE:LINE, or KERNEL+PC without a line."""
        line = self.line(pc)
        return str(line) if line is not None else f"{self.name}+{pc:#x}"

    @property
    def find_ends(self) -> list[int]:
        """Return the pcs of the instructions that end a wave."""
        return [pc for pc in self.pcs if self.mnemonic(pc) in ("s_endpgm", "s_endpgm_saved")]

    # --- locations of breakpoints

    def check_pc(self, pc: int) -> int:
        """Return the pc. Raise UsageError if no instruction starts there."""
        if pc in self.instructions:
            return pc
        first, last = self.pcs[0], self.pcs[-1]
        if not first <= pc <= last:
            raise UsageError(f"pc {pc:#x}: {self.name} only has instructions from pc {first:#x} to {last:#x}")
        before = self.pcs[bisect_right(self.pcs, pc) - 1]
        after = self.pcs[bisect_right(self.pcs, pc)]
        raise UsageError(
            f"pc {pc:#x}: no instruction starts there; the nearest are pc {before:#x} `{self.text(before)}` "
            f"and pc {after:#x} `{self.text(after)}`"
        )

    def find_pcs(self, number: int, file: str = "") -> list[int]:
        """Return the first pc of each piece of the line's code. Raise UsageError if the line has none."""
        chosen = self._find_file(file)
        numbers = {line.number for line in self.lines.values() if line is not None and line.file == chosen}
        if number not in numbers:
            nearest = sorted(sorted(numbers, key=lambda item: abs(item - number))[:NEAREST])
            listed = ", ".join(map(str, nearest))
            raise UsageError(f"{chosen}:{number}: this line has no code; the nearest lines with code are {listed}")
        source_line = SourceLine(chosen, number)
        before: SourceLine | None = None
        starts = []
        for pc in self.pcs:
            if self.lines[pc] == source_line != before:
                starts.append(pc)
            before = self.lines[pc]
        return starts

    def _find_file(self, name: str) -> str:
        if not self.file:
            missing = self._image.lines_missing or "compile it with -g"
            raise UsageError(
                f"{self._image.source}: source lines are not available: {missing}",
                next="break *0x40 stops at a pc",
            )
        if not name:
            return self.file
        matches = [file for file in self.files if file == name or Path(file).name == name]
        if not matches:
            known = ", ".join(self.files)
            raise UsageError(
                f"there is no code from {name}{suggest_word(name, list(self.files))}; the kernel has code of "
                f"{known}"
            )
        return matches[0]

    # --- text

    def disassemble_around(self, pc: int, count: int) -> Iterable[str]:
        """Yield `count` instructions around the pc, which is marked."""
        index = bisect_right(self.pcs, pc) - 1
        first = max(index - count // 2, 0)
        before: SourceLine | None = None
        for item in self.pcs[first : first + count]:
            line = self.lines[item]
            shown = f"{Path(line.file).name}:{line.number}" if line is not None and line != before else ""
            before = line
            yield f"{'=>' if item == pc else '  '} {item:6x}  {self.text(item):48s} {shown}".rstrip()

    def source(self, line: SourceLine, around: int = CONTEXT_LINES) -> Iterable[str]:
        """Yield the lines of the source file around this one, which is marked; none if it cannot be read."""
        try:
            texts = Path(line.file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for number in range(max(line.number - around, 1), min(line.number + around, len(texts)) + 1):
            yield f"{'=>' if number == line.number else '  '} {number:4d}  {texts[number - 1]}".rstrip()


def _parse_line(text: str) -> SourceLine | None:
    file, colon, number = text.rpartition(":")
    return SourceLine(file, int(number)) if colon and number.isdecimal() else None
