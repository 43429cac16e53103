"""Evaluate a night: a chip's expected results (ci/expectations/*.yaml), a stage's row, the night's summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import comb
from pathlib import Path
from typing import Any

import yaml
from nightly_stages import FLAKES, STAGES, Night, NightlyStage, last_line, read_json, timestamp

FOLDER = Path(__file__).resolve().parent / "expectations"
SCHEMA = "zinc-rt-expectations/1"
SURPRISE = 0.01  # less likely than this is not chance
NOT_PASSING = ("fail", "blocked", "skip")


@dataclass(frozen=True)
class Flake:
    """A check that fails intermittently, in a fraction `rate` of all nights, for a known reason."""

    rate: float
    reason: str

    def exceeds_rate(self, nights: int, failures: int) -> bool:
        """Return whether this number of failures is implausibly high for the rate."""
        return is_probable(nights, failures, self.rate) < SURPRISE

    def is_fixed(self, nights: int, failures: int) -> bool:
        """Return whether the check should have failed by now."""
        return not failures and (1 - self.rate) ** nights < SURPRISE


def is_probable(nights: int, failures: int, rate: float) -> float:
    """Return the probability of at least this number of failures, with equal probability in each night."""
    return sum(comb(nights, k) * rate**k * (1 - rate) ** (nights - k) for k in range(failures, nights + 1))


@dataclass(frozen=True)
class StageJudgement:
    """A stage's results compared with the expectations. `tally` counts nights and failures of each flake,
    including this night.
    """

    wrong: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    flakes: list[str] = field(default_factory=list)
    tally: dict[str, tuple[int, int]] = field(default_factory=dict)


class UnusableExpectations(Exception):
    """The file cannot be used; the message states the reason."""


@dataclass(frozen=True)
class ChipExpectations:
    """A chip's expected results. `may` are patterns of result ids with the reason, by status; `flakes` are by
    pattern; `least` are minimum passes by stage.
    """

    path: Path
    chip: str
    simulated: bool
    required: Mapping[str, bool]
    least: Mapping[str, int]
    may: Mapping[str, Mapping[str, str]]
    verdicts: Mapping[str, str]
    flakes: Mapping[str, Flake] = field(default_factory=dict)

    def flake(self, id_: str) -> Flake | None:
        return next((item for glob, item in self.flakes.items() if fnmatchcase(id_, glob)), None)

    def reason(self, status: str, id_: str) -> str:
        """Return the reason why a result does not have to pass; empty if it must pass."""
        return next((reason for glob, reason in self.may.get(status, {}).items() if fnmatchcase(id_, glob)), "")

    def judge(
        self,
        stage: str,
        results: list[dict[str, Any]],
        *,
        whole: bool = True,
        known: Mapping[str, tuple[int, int]] | None = None,
        could: Collection[str] = (),
    ) -> StageJudgement:
        """Evaluate a stage's results. `whole`: the stage ran completely. `known` are earlier nights and failures
        of flakes. `could` are results whose requirements are met, which must not be blocked. A result that passes
        although a row of `may` allows it to fail is unexpected: the row would hide its next failure.
        """
        judged = StageJudgement()
        for result in results:
            self._judge_one(result, judged, dict(known or {}), could)
        passes = Counter(result["status"] for result in results)["pass"]
        if whole and passes < self.least.get(stage, 0):
            judged.wrong.append(f"{passes} results passed, expected {self.least[stage]} or more")
        return judged

    def _judge_one(
        self,
        result: dict[str, Any],
        judged: StageJudgement,
        known: dict[str, tuple[int, int]],
        could: Collection[str],
    ) -> None:
        status, id_ = result["status"], result["id"]
        reason = result.get("reason") or result.get("cause") or "no reason given"
        flake = self.flake(id_)
        if flake is not None and status in ("pass", "fail"):
            nights, failures = known.get(id_, (0, 0))
            nights, failures = nights + 1, failures + (status == "fail")
            judged.tally[id_] = nights, failures
            seen = f"{id_}: failed in {failures} of {nights} nights, expected {flake.rate:.0%}"
            if status == "fail":
                (judged.wrong if flake.exceeds_rate(nights, failures) else judged.flakes).append(
                    f"{seen}: {reason}"
                )
            elif flake.is_fixed(nights, failures):
                judged.better.append(f"{seen}: not a flake any more")
        elif status == "blocked" and id_ in could:
            judged.wrong.append(f"{id_}: could have run but has no result: {reason}")
        elif status in NOT_PASSING and not self.reason(status, id_):
            judged.wrong.append(f"{id_}: {status}: {reason}")
        elif status == "pass" and id_ not in could:
            judged.wrong.extend(
                f"{id_} passes, and {self.path.name} allows {s}: remove the row"
                for s in NOT_PASSING
                if self.reason(s, id_)
            )


def load(name: str) -> ChipExpectations:
    """Load a chip's file by name, or any file by path. Raise UnusableExpectations."""
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    try:
        row = yaml.safe_load(path.read_text(encoding="utf-8"))
        if row["schema"] != SCHEMA:
            raise ValueError(f"schema is {row['schema']!r}, expected {SCHEMA!r}")
        may = {status: dict(globs or {}) for status, globs in row["may"].items()}
        if unknown := set(may) - set(NOT_PASSING):
            raise ValueError(f"may: unknown status {sorted(unknown)}")
        if any(not reason for globs in may.values() for reason in globs.values()):
            raise ValueError("may: expected a reason for every pattern")
        flakes = {
            glob: Flake(float(item["rate"]), str(item["reason"]))
            for glob, item in (row.get("flakes") or {}).items()
        }
        for glob, flake in flakes.items():
            if not 0 < flake.rate < 1 or not flake.reason:
                raise ValueError(f"flakes: {glob}: expected a rate between 0 and 1, and a reason")
        stages = row["stages"]
        return ChipExpectations(
            path,
            row["chip"],
            bool(row["simulated"]),
            {stage: bool(item["required"]) for stage, item in stages.items()},
            {stage: int(item["at_least"]) for stage, item in stages.items()},
            may,
            dict(row["verdicts"]),
            flakes,
        )
    except FileNotFoundError as error:
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise UnusableExpectations(f"{path}: no expectations of this name; available: {names}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UnusableExpectations(f"{path}: {error!r}") from error


def judge(night: Night, stage: NightlyStage, state: dict[str, Any], expected: ChipExpectations) -> dict[str, Any]:
    """Return a stage's row: its counts and unexpected results."""
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    wrong: list[str] = []
    verdicts: dict[str, str] = {}
    for command in state["commands"]:
        report = read_json(night.of(stage.name) / f"{command['name']}.json")
        if command["note"] or command["exit"] not in (0, 1, 77) or (command["judged"] and not report):
            last = last_line(night.of(stage.name) / command["log"])
            wrong.append(f"{command['name']}: {command['note'] or 'exit ' + str(command['exit'])}: {last}")
        elif not command["judged"] and command["exit"]:
            wrong.append(f"{command['name']}: exit {command['exit']}")
        results += report.get("results", [])
        shown += [junit_cases(result, command["name"]) for result in report.get("results", [])]
        if report.get("command") == "perf gate":
            verdicts = gate_verdicts(report)
    if state["why_not"]:
        must_run = expected.required.get(stage.name) or stage.name in night.required
        wrong += [state["why_not"]] if must_run else []
        judged = StageJudgement()
    else:
        known = {name: tuple(row) for name, row in read_json(night.folder / FLAKES).items()}
        could = {name for speed in night.required_speeds for name in speed.shows} if stage.name == "gates" else ()
        judged = expected.judge(stage.name, results, whole=not night.quick, known=known, could=could)
        wrong += judged.wrong
    if state.get("card"):
        wrong.append(state["card"])
    for name, verdict in verdicts.items():
        if expected.verdicts.get(name, "PASS") not in (verdict, ""):
            wrong.append(f"{name} is {verdict}, expected {expected.verdicts.get(name, 'PASS')}")
    return {
        "stage": stage.name,
        "status": "FAIL" if wrong else "SKIP" if state["why_not"] else "PASS",
        "why_not": state["why_not"],
        "counts": dict(Counter(result["status"] for result in results)),
        "seconds": state.get("seconds", 0.0),
        "unexpected": wrong,
        "mended": judged.better,
        "flakes": judged.flakes,
        "headlines": [text for result in results if (text := result.get("measure", {}).get("headline"))],
        "tally": judged.tally,
        "verdicts": verdicts,
        "results": shown,
    }


def junit_cases(result: dict[str, Any], command: str) -> dict[str, Any]:
    """Return the JUnit cases of a command's result."""
    measure = result.get("measure", {})
    return {
        "id": result["id"],
        "command": command,
        "status": result["status"],
        "reason": result.get("reason") or result.get("cause") or "",
        "seconds": measure.get("seconds", 0.0) if isinstance(measure.get("seconds"), int | float) else 0.0,
    }


def gate_verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Return each milestone's own verdict, from its criteria."""
    statuses: dict[str, set[str]] = {}
    for result in report["results"]:
        statuses.setdefault(result["id"].partition("/")[0], set()).add(result["status"])
    return {
        name: "FAIL" if "fail" in seen else "PASS" if seen == {"pass"} else "BLOCKED"
        for name, seen in statuses.items()
    }


def night_summary(
    night: Night,
    rows: list[dict[str, Any]],
    expected: ChipExpectations,
    *,
    finished: bool,
    lost: str = "",
) -> dict[str, Any]:
    """Return the night's summary. `lost` is a head recorded by an earlier night that the history does not
    contain.
    """
    ran = [row for row in rows if row["status"] != "SKIP"]
    code = 1 if lost or any(row["status"] == "FAIL" for row in rows) else 0 if ran else 77
    return {
        "schema": "zinc-rt-nightly/1",
        "finished": finished,
        "started": read_json(night.folder / "run.json").get("started", ""),
        "ended": timestamp(),
        "device": night.device,
        "expectations": expected.path.name,
        "simulated": night.device == "sim",
        "models": [str(model) for model in night.models],
        "history_head": night.head,
        "history_lost": lost,
        "verdict": {0: "PASS", 1: "FAIL", 77: "NOTHING RAN"}[code],
        "exit": code,
        "stages_total": len(STAGES),
        "stages": rows,
    }
