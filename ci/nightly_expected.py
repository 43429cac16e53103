"""What a chip is expected to show, and whether a stage's results are that: ci/expectations/*.yaml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent / "expectations"
SCHEMA = "zinc-rt-expectations/1"
NOT_PASSING = ("fail", "blocked", "skip")


class Unusable(Exception):
    """The file cannot be used, with the reason."""


@dataclass(frozen=True)
class Expected:
    """`may`: by status, patterns of result ids with the reason; `least`: passes by stage."""

    path: Path
    chip: str
    simulated: bool
    required: Mapping[str, bool]
    least: Mapping[str, int]
    may: Mapping[str, Mapping[str, str]]
    verdicts: Mapping[str, str]

    def reason(self, status: str, id_: str) -> str:
        """Why a result need not pass; empty where it must."""
        return next((why for glob, why in self.may.get(status, {}).items() if fnmatchcase(id_, glob)), "")

    def judge(
        self, stage: str, results: list[dict[str, Any]], *, whole: bool = True
    ) -> tuple[list[str], list[str]]:
        """(what is not as expected, what is better than expected), in words. `whole`: the stage ran all it has."""
        wrong, better = [], []
        for result in results:
            status, id_ = result["status"], result["id"]
            if status in NOT_PASSING and not self.reason(status, id_):
                why = result.get("reason") or result.get("cause") or "no reason given"
                wrong.append(f"{id_}: {status}: {why}")
            elif status == "pass":
                better += [f"{id_} passes, expected: {s}" for s in NOT_PASSING if self.reason(s, id_)]
        passes = Counter(result["status"] for result in results)["pass"]
        if whole and passes < self.least.get(stage, 0):
            wrong.append(f"{passes} results passed, expected {self.least[stage]} or more")
        return wrong, better


def load(name: str) -> Expected:
    """A chip's file by name, or any file by path. Raises Unusable."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    try:
        row = yaml.safe_load(path.read_text(encoding="utf-8"))
        if row["schema"] != SCHEMA:
            raise ValueError(f"schema {row['schema']!r}, wanted {SCHEMA!r}")
        may = {status: dict(globs or {}) for status, globs in row["may"].items()}
        if unknown := set(may) - set(NOT_PASSING):
            raise ValueError(f"may: unknown status {sorted(unknown)}")
        if any(not reason for globs in may.values() for reason in globs.values()):
            raise ValueError("may: every pattern has a reason")
        stages = row["stages"]
        return Expected(
            path,
            row["chip"],
            bool(row["simulated"]),
            {stage: bool(each["required"]) for stage, each in stages.items()},
            {stage: int(each["at_least"]) for stage, each in stages.items()},
            may,
            dict(row["verdicts"]),
        )
    except FileNotFoundError as error:
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise Unusable(f"{path}: no such expectations; there are {names}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise Unusable(f"{path}: {error!r}") from error
