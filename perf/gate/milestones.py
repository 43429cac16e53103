"""The criteria of each milestone as data: reads and checks every field of perf/gate/milestones.yaml."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import load_yaml

FILE = Path(__file__).resolve().parent / "milestones.yaml"
SCHEMA = "zinc-rt-milestones/2"
Kind = Literal["structural", "measured", "timed", "manual"]
REQUESTS = ("ttft_warm", "idle_to_stream", "fairness", "endurance")  # results of perf bench --requests
RANGES = ("architectures", "parameters", "bits_a_weight")  # lists in the file
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class CriterionBound:
    """An operator and a limit: `is_satisfied(value)`."""

    sign: str
    limit: float

    def is_satisfied(self, value: float) -> bool:
        """Compare a value with the limit. Return False for NaN, whatever the operator."""
        return value == value and OPERATORS[self.sign](value, self.limit)

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class RequiredModel:
    """A class of models by shape: a file of another shape is another model, whatever its name. `width` is 0 if the
    source does not state it. `parameters` and `bits_a_weight` are ranges (from, to). `active` is the minimum
    number of weights that a token reads. `digest` is None if the file is not pinned.
    `shape` is a row of SHAPES in perf/synthetic.py with the class's graph, "" if there is none.
    """

    key: str
    name: str
    architectures: tuple[str, ...]
    layers: int
    vocab: int
    parameters: tuple[float, float]
    bits_a_weight: tuple[float, float]
    active: float
    source: str
    digest: str | None
    ctx: int
    width: int = 0
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion, one row of the file. `arguments` are passed to the structural measure; the fields below them
    belong to a measured criterion.
    """

    milestone: str
    id: str
    what: str
    type: Kind
    unit: str
    bound: CriterionBound
    source: tuple[str, ...]
    measure: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    figure: str = ""
    model: RequiredModel | None = None
    tier: str = ""
    slots: int = 1
    hardware: Mapping[str, str] = field(default_factory=dict)
    forbids: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.milestone}/{self.id}"

    @property
    def command(self) -> str:
        """Return the command that measures it."""
        if self.type == "structural":
            return f"zinc-rt perf gate --milestone {self.milestone} --only {self.id}"
        if self.type == "measured":
            slots = f" --slots {self.slots}" if self.slots > 1 else ""
            against = " --vs 'llama-bench ...'" if self.measure == "against" else ""
            requests = " --requests" if self.measure in REQUESTS else ""
            return f"zinc-rt perf bench --model M.gguf --tier {self.tier}{slots}{against}{requests} --json F.json"
        if self.type == "timed":
            return "zinc-rt perf native --json F.json --history H.jsonl"
        return "a statement: docs/perf.md says what it holds"

    @property
    def needs(self) -> str:
        """Describe the required hardware."""
        if self.type == "timed":
            return "a report of zinc-rt perf native, on a quiet machine"
        if self.type != "measured":
            return "any device" if self.type == "structural" else "a person"
        return f"{self.hardware['arch']} hardware ({self.hardware['device']})"


@dataclass(frozen=True, slots=True)
class Milestone:
    """A milestone. `predicted` are the original's figures by quantity, in tok/s except ttft (s) and power (W)."""

    id: str
    title: str
    scope: str
    predicted: Mapping[str, float]
    notes: tuple[str, ...]
    criteria: tuple[Criterion, ...]


def parse_bound(text: str) -> CriterionBound:
    """Parse a bound like ">= 140". Raise ValueError for anything else."""
    sign, _, limit = text.partition(" ")
    if sign not in OPERATORS:
        raise ValueError(f"{text!r}: expected one of {', '.join(OPERATORS)} and a number")
    return CriterionBound(sign, float(limit))


@cache
def load_milestones() -> tuple[Milestone, ...]:
    """Return the project's own milestones."""
    return read_milestones(FILE)


def find_milestone(name: str) -> Milestone:
    """Return the milestone of that name. Raise UsageError with the known names."""
    for milestone in load_milestones():
        if milestone.id.lower() == name.lower():
            return milestone
    raise UsageError(
        f"no milestone {name!r}", next="one of " + ", ".join(milestone.id for milestone in load_milestones())
    )


def read_milestones(path: Path) -> tuple[Milestone, ...]:
    """Read the milestones of a file. Raise InputError for anything unknown, missing or of the wrong type."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            raise ValueError(f"schema is {document.get('schema')!r}; this build reads {SCHEMA!r}")
        models = {
            key: RequiredModel(key, **{**row, **{name: tuple(row[name]) for name in RANGES}})
            for key, row in document["models"].items()
        }
        units = {name: unit for unit, names in document["units"].items() for name in names}
        return tuple(_parse_milestone(row, models, units) for row in document["milestones"])
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: {error}", next="docs/perf.md describes the file") from error


def _parse_milestone(
    row: Mapping[str, Any], models: Mapping[str, RequiredModel], units: Mapping[str, str]
) -> Milestone:
    criteria = tuple(_parse_criterion(row["id"], criterion, models, units) for criterion in row["criteria"])
    names = [criterion.id for criterion in criteria]
    if len(set(names)) < len(names):
        raise ValueError(f"{row['id']}: duplicate criterion id")
    predicted = {str(key): float(value) for key, value in row["predicted"].items()}
    return Milestone(row["id"], row["title"], row["scope"], predicted, tuple(row.get("notes", ())), criteria)


def _parse_criterion(
    milestone: str, row: Mapping[str, Any], models: Mapping[str, RequiredModel], units: Mapping[str, str]
) -> Criterion:
    argument = {"type": "structural", "compare": "== 0", **row}
    where = f"{milestone}/{argument.get('id')}"
    counted = str(argument.get("figure") or argument.get("measure"))
    if counted in units:
        argument.setdefault("unit", units[counted])
    argument["bound"] = parse_bound(argument.pop("compare"))
    argument["arguments"] = argument.pop("with", {})
    argument["model"] = models[argument["model"]] if "model" in argument else None
    for name in ("source", "forbids"):
        argument[name] = tuple(argument.get(name, ()))
    unknown = set(argument) - {field.name for field in fields(Criterion)}
    needed = {field.name for field in fields(Criterion) if field.default is field.default_factory is MISSING}
    missing = needed - set(argument) - {"milestone"}
    if unknown or missing:
        raise ValueError(f"{where}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
    if argument["type"] not in get_args(Kind):
        raise ValueError(f"{where}: unknown type {argument['type']!r}")
    if not argument["source"]:
        raise ValueError(f"{where}: no source")
    if argument["type"] == "structural" and not argument.get("measure"):
        raise ValueError(f"{where}: a structural criterion needs a measure")
    if argument["type"] == "timed" and not all(argument.get(name) for name in ("measure", "figure", "tier")):
        raise ValueError(f"{where}: a timed criterion needs a measure, a figure and a tier")
    if argument["type"] == "measured":
        lacking = [n for n in ("measure", "figure", "model", "tier", "hardware", "forbids") if not argument.get(n)]
        if lacking:
            raise ValueError(f"{where}: a measured criterion needs {', '.join(lacking)}")
    return Criterion(milestone=milestone, **argument)
