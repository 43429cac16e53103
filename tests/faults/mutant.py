"""Mutants of the product: one small change of a file, chosen by seed, in each of its languages."""

from __future__ import annotations

import ast
import difflib
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fault_plant import ROOT

KINDS = {
    ".py": "python",
    ".s": "kernel",
    ".inc": "kernel",
    ".c": "C",
    ".h": "C",
    ".comp": "GLSL",
    ".glsl": "GLSL",
    ".yaml": "table",
}
LEFT_OUT = re.compile(r"(^|/)(tests|ci|docs|examples|deploy|build|\.[^/]*|__pycache__)/|_moved\.py$|/uapi/.*\.h$")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
               "in": "not in", "not in": "in"}  # fmt: skip
Replacement = str | Callable[[re.Match[str]], str]


def add_one(match: re.Match[str]) -> str:
    return str(int(match[1]) + 1)


# pattern, its replacement, the name of the change; a line is changed at one match
LINES: dict[str, tuple[tuple[str, Replacement, str], ...]] = {
    "kernel": (
        (r"^\s*s_wait_\w+.*$", "", "dropped wait"),
        (r"^\s*s_barrier_\w+.*$", "", "dropped barrier"),
        (r"(cmpx?)_lt_", r"\1_le_", "bound"),
        (r"(cmpx?)_gt_", r"\1_ge_", "bound"),
        (r"(?<=\bv)(\d+)(?=\s*$)", add_one, "register"),
    ),
    "C": (
        (r" < ", " <= ", "comparison"),
        (r" \+ ", " - ", "operator"),
        (r"\b(\d+)(?=\])", add_one, "index"),
        (r"= 0;", "= 1;", "constant"),
    ),
    "GLSL": (
        (r" < ", " <= ", "comparison"),
        (r" \+ ", " - ", "operator"),
        (r"^\s*barrier\(\);.*$", "", "dropped barrier"),
        (r"\b(\d+)(?=u\b)", add_one, "constant"),
    ),
    "table": ((r"(?<=: )(\d+)(?=\s*(?:#.*)?$)", add_one, "number"),),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file, relative to the tree. `kind`: language and change, "python: comparison"."""

    package: str
    file: str
    kind: str
    line: int
    text: str  # the whole file after the change

    @property
    def diff(self) -> str:
        before = (ROOT / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), self.file, self.file, lineterm="", n=1)
        return "\n".join(lines)


def list_sources() -> dict[str, list[str]]:
    """Return the product's files by package: the folder below zinc_rt/, or the harness folder."""
    packages: dict[str, list[str]] = {}
    for folder in ("zinc_rt", "doctor", "golden", "perf", "probes", "replay", "trace", "validate"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in KINDS and path.is_file() and not LEFT_OUT.search(name):
                package = "/".join(name.split("/")[: 2 if folder == "zinc_rt" else 1])
                packages.setdefault(package.removesuffix(".py"), []).append(name)
    return packages


def draw_mutants(seed: int, count: int) -> list[Mutant]:
    """Return `count` different mutants, the same number from each package as far as possible."""
    chance, packages = random.Random(seed), list_sources()
    drawn: dict[tuple[str, int, str], Mutant] = {}
    names = sorted(packages)
    while len(drawn) < count:
        chance.shuffle(names)
        for package in names[: count - len(drawn)]:
            file = chance.choice(packages[package])
            if changes := list(mutate_file(package, file)):
                mutant = chance.choice(changes)
                drawn[file, mutant.line, mutant.kind] = mutant
    return list(drawn.values())


def mutate_file(package: str, file: str) -> Iterator[Mutant]:
    text = (ROOT / file).read_text(encoding="utf-8")
    language = KINDS[Path(file).suffix]
    changes = mutate_python(text) if language == "python" else mutate_lines(text, language)
    for what, line, changed in changes:
        yield Mutant(package, file, f"{language}: {what}", line, changed)


def mutate_lines(text: str, language: str) -> Iterator[tuple[str, int, str]]:
    """Yield the change, its line and the changed text, for each line and pattern of LINES."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        for pattern, replacement, what in LINES[language]:
            changed = re.sub(pattern, replacement, line, count=1)
            if changed != line:
                yield what, index + 1, "\n".join([*lines[:index], changed, *lines[index + 1 :]])


def mutate_python(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield the same for each comparison, number, index and call without a value of a module."""
    source = text.encode()
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def replaced(first: tuple[int, int], last: tuple[int, int], new: str) -> str:
        begin, end = (starts[line - 1] + column for line, column in (first, last))
        return (source[:begin] + new.encode() + source[end:]).decode()

    def between(first: tuple[int, int], last: tuple[int, int]) -> str:
        return source[starts[first[0] - 1] + first[1] : starts[last[0] - 1] + last[1]].decode()

    tree = ast.parse(text)
    indices = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = end_of(node.left), (node.comparators[0].lineno, node.comparators[0].col_offset)
            words = between(left, right)
            if words.strip() in COMPARISONS:
                new = words.replace(words.strip(), COMPARISONS[words.strip()])
                yield "comparison", node.lineno, replaced(left, right, new)
        elif (
            isinstance(node, ast.Constant)
            and not isinstance(node.value, bool)
            and isinstance(node.value, int | float)
        ):
            what = "index" if id(node) in indices else "constant"
            yield what, node.lineno, replaced((node.lineno, node.col_offset), end_of(node), repr(node.value + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield "dropped call", node.lineno, replaced((node.lineno, node.col_offset), end_of(node), "pass")


def end_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset
