"""Which instructions the engine executes, and the basis of their results (evidence.yaml)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path

from zinc_rt.host.files import load_yaml
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.rows import SEGMENTS, InstructionRow, make_rows, strip_suffix
from zinc_rt.isa.target import Target
from zinc_rt.sim.shader.unsimulated import find_reason

FILE = Path(__file__).with_name("evidence.yaml")
CLASSES = ("manual", "ieee", "captured", "assumed", "approximate")
_ENCODINGS_OF = {"VMEM": tuple(SEGMENTS), "VIMAGE": ("VIMAGE", "MIMG")}  # of rows of both generations
EXACT = frozenset(("manual", "ieee", "captured"))
TABLES = ("scalar", "vector", "packed", "memory", "vopd", "graphics")
REFUSED = "refused"
MEANING = {
    "manual": "exact: determined bit by bit by the ISA guide",
    "ieee": "exact: determined by IEEE 754 and the float mode",
    "captured": "exact: results captured on gfx1201 cards are reproduced",
    "assumed": "in at least one case this project's reading of the guide",
    "approximate": "the guide allows 1 ULP or more",
    REFUSED: "decoded but not executed: a wave that reaches it ends with its name",
}


@dataclass(frozen=True, slots=True)
class ResultBasis:
    """`kind`: one of CLASSES. `why`: the source, or what is open."""

    kind: str
    why: str

    @property
    def exact(self) -> bool:
        return self.kind in EXACT


@dataclass(frozen=True, slots=True)
class InstructionSupport:
    """An instruction of one chip. `kind`: one of CLASSES, or REFUSED."""

    encoding: str
    mnemonic: str
    kind: str
    why: str = ""


@cache
def read_rows(generation: int) -> tuple[tuple[ResultBasis, tuple[str, ...]], ...]:
    """Return the rows of evidence.yaml that apply to a generation, with their patterns."""
    document = load_yaml(FILE.read_text(encoding="utf-8"))
    return tuple(
        (ResultBasis(row["class"], row["why"]), tuple(row["instructions"].split()))
        for row in document["rows"]
        if row.get("generation", generation) == generation
    )


@cache
def find_evidence(mnemonic: str, generation: int = 12) -> ResultBasis:
    """Return the basis of an instruction's result; the mnemonic may end in _e32, _e64 or _dpp."""
    name = strip_suffix(mnemonic)
    rows = read_rows(generation)
    return next(row for row, patterns in rows if any(fnmatchcase(name, pattern) for pattern in patterns))


def find_basis(instruction: Instruction, generation: int = 12) -> ResultBasis:
    """Return the basis of an instruction's results; for a dual instruction, that of the less certain half."""
    basis = find_evidence(instruction.row.name, generation)
    if instruction.second is None:
        return basis
    second = find_evidence(instruction.second.row.name, generation)
    return max(basis, second, key=lambda item: CLASSES.index(item.kind))


def list_support(target: Target) -> list[InstructionSupport]:
    """Return every instruction that the decoder knows for a chip, by encoding, each mnemonic once per encoding."""
    seen: dict[tuple[str, str], InstructionSupport] = {}
    for encoding, decoded in list_decoded_rows(target):
        name = strip_suffix(decoded.mnemonic)
        if kind := find_reason(decoded):
            row = InstructionSupport(encoding, name, REFUSED, kind)
        else:
            known = find_evidence(name, target.generation)
            row = InstructionSupport(encoding, name, known.kind, known.why)
        seen.setdefault((encoding, name), row)
    return list(seen.values())


def list_decoded_rows(target: Target) -> Iterator[tuple[str, InstructionRow]]:
    """Return every row of a chip with its encoding, in both readings of 16-bit operands."""
    for table in TABLES:
        for written in import_module(f"zinc_rt.isa.tables.{table}").ROWS:
            for encoding in _ENCODINGS_OF.get(written, (written,)):
                for halves in (False, True):
                    for row in make_rows(table, encoding, target.isa, halves).values():
                        yield encoding, row


def count_by_class(instructions: Iterable[InstructionSupport]) -> dict[str, Counter[str]]:
    """Return the numbers of instructions by encoding and class."""
    table: dict[str, Counter[str]] = {}
    for instruction in instructions:
        table.setdefault(instruction.encoding, Counter())[instruction.kind] += 1
    return table


def list_refusals(instructions: Iterable[InstructionSupport]) -> dict[tuple[str, str], list[str]]:
    """Return the rejected mnemonics, by encoding and reason."""
    table: dict[tuple[str, str], list[str]] = {}
    for instruction in instructions:
        if instruction.kind == REFUSED:
            table.setdefault((instruction.encoding, instruction.why), []).append(instruction.mnemonic)
    return table
