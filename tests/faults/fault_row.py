"""A fault: what is planted, what a user would run, and which words name its cause. The rows are corpus/*.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zinc_rt.host.files import load_yaml

CORPUS = Path(__file__).parent / "corpus"
GUILTY = ("kernel", "runtime", "packets", "driver", "oracle", "model code", "file", "golden", "harness")
EDITS = {  # kind of edit: the keys it needs beside the file, and those it may have
    "text": ({"file", "find", "replace"}, set[str]()),
    "bytes": ({"file", "after", "skip", "write"}, {"copy", "add"}),
    "tensor": ({"file", "tensor", "at", "write"}, {"copy", "add", "swap"}),
    "cut": ({"file", "keep"}, {"copy"}),
    "array": ({"file", "array", "at", "write"}, {"copy", "add"}),
}


class BadRow(ValueError):
    """A row that says what no row may say."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the tree. `kind` is a key of EDITS, `file` is relative to the tree; for a `copy`, the source
    file comes first.
    """

    kind: str
    file: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `run`: commands one after the other, as behind `zinc-rt`, until one fails. `follow`: how many of
    those that a failure advises are run too. `place`, `named`: regexes that must all be found for the fault to
    count as located, or named. `innocent`: what no output may accuse."""

    name: str
    room: str
    kind: str  # the class of fault: "off by one", "swapped operands"
    cause: str
    guilty: str
    edits: tuple[Edit, ...]
    run: tuple[str, ...]
    place: tuple[str, ...]
    named: tuple[str, ...]
    follow: int = 0
    innocent: tuple[str, ...] = ()
    waits_for: str = ""  # what the product lacks to name it; counted against the score all the same

    def __str__(self) -> str:
        return self.name


def load_faults() -> tuple[Fault, ...]:
    """The whole corpus, by room. Raises BadRow for a malformed or duplicate row."""
    result: dict[str, Fault] = {}
    for path in sorted(CORPUS.glob("*.yaml")):
        for data in load_yaml(path.read_text(encoding="utf-8")):
            fault = parse_fault(path.stem, data)
            if fault.name in result:
                raise BadRow(f"{fault.name}: in {result[fault.name].room} and in {fault.room}")
            result[fault.name] = fault
    return tuple(result.values())


def parse_fault(room: str, data: dict[str, Any]) -> Fault:
    name = str(data.get("name", "a row without a name"))
    known = {"name", "kind", "cause", "guilty", "edits", "run", "place", "named"}
    extra = {"follow", "innocent", "waits_for"}
    if missing := known - data.keys():
        raise BadRow(f"{room}.yaml: {name}: missing keys {', '.join(sorted(missing))}")
    if unknown := data.keys() - known - extra:
        raise BadRow(f"{room}.yaml: {name}: unknown keys {', '.join(sorted(unknown))}")
    if data["guilty"] not in GUILTY:
        raise BadRow(f"{room}.yaml: {name}: guilty is {data['guilty']}, expected one of {', '.join(GUILTY)}")
    lists = {key: tuple(flatten_texts(data.get(key, ()))) for key in ("run", "place", "named", "innocent")}
    for regex in (*lists["place"], *lists["named"], *lists["innocent"]):
        try:
            re.compile(regex)
        except re.error as error:
            raise BadRow(f"{room}.yaml: {name}: {regex!r} is not a regular expression: {error}") from error
    rest = {key: data[key] for key in ("name", "kind", "cause", "guilty") if key in data}
    more = {key: data[key] for key in ("follow", "waits_for") if key in data}
    return Fault(room=room, edits=tuple(parse_edits(room, name, data["edits"])), **rest, **lists, **more)


def flatten_texts(value: Any) -> Iterator[str]:
    yield from [value] if isinstance(value, str) else map(str, value)


def parse_edits(room: str, name: str, rows: Any) -> Iterator[Edit]:
    for row in [rows] if isinstance(rows, dict) else rows:
        argument = set(row) - {"kind"}
        kind = str(row.get("kind", "text"))
        needed, allowed = EDITS.get(kind, (set[str](), set[str]()))
        if kind not in EDITS or needed - argument or argument - needed - allowed:
            raise BadRow(
                f"{room}.yaml: {name}: an edit of kind {kind} does not accept {', '.join(sorted(argument))}"
            )
        yield Edit(kind, str(row["file"]), {key: row[key] for key in argument if key != "file"})
