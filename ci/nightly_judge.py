"""A stage's row and the night's summary: what was counted, and what is not as expected."""

from __future__ import annotations

from collections import Counter
from typing import Any

import nightly_expected
from nightly_files import FLAKES, now, read_json, tail
from nightly_stages import Night, NightlyStage


def judge(
    night: Night, stage: NightlyStage, state: dict[str, Any], expected: nightly_expected.ChipExpectations
) -> dict[str, Any]:
    """A stage's row: what it counted, what is not as expected."""
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    wrong: list[str] = []
    verdicts: dict[str, str] = {}
    for command in state["commands"]:
        report = read_json(night.of(stage.name) / f"{command['name']}.json")
        if command["note"] or command["exit"] not in (0, 1, 77) or (command["judged"] and not report):
            last = tail(night.of(stage.name) / command["log"])
            wrong.append(f"{command['name']}: {command['note'] or 'exit ' + str(command['exit'])}: {last}")
        elif not command["judged"] and command["exit"]:
            wrong.append(f"{command['name']}: exit {command['exit']}")
        results += report.get("results", [])
        shown += [cases(result, command["name"]) for result in report.get("results", [])]
        if report.get("command") == "perf gate":
            verdicts = gate_verdicts(report)
    if state["why_not"]:
        wrong += [state["why_not"]] if expected.required.get(stage.name) else []
        found = nightly_expected.Judged()
    else:
        known = {name: tuple(row) for name, row in read_json(night.folder / FLAKES).items()}
        could = {name for speed in night.speeds for name in speed.shows} if stage.name == "gates" else ()
        found = expected.judge(stage.name, results, whole=not night.quick, known=known, could=could)
        wrong += found.wrong
    for name, verdict in verdicts.items():
        if expected.verdicts.get(name, "PASS") not in (verdict, "") and verdict != "PASS":
            wrong.append(f"{name} is {verdict}, expected {expected.verdicts.get(name, 'PASS')}")
    return {
        "stage": stage.name,
        "status": "FAIL" if wrong else "SKIP" if state["why_not"] else "PASS",
        "why_not": state["why_not"],
        "counts": dict(Counter(result["status"] for result in results)),
        "seconds": state.get("seconds", 0.0),
        "unexpected": wrong,
        "mended": found.better,
        "flakes": found.flakes,
        "tally": found.tally,
        "verdicts": verdicts,
        "results": shown,
    }


def cases(result: dict[str, Any], command: str) -> dict[str, Any]:
    """What JUnit shows of a command's result."""
    measure = result.get("measure", {})
    return {
        "id": result["id"],
        "command": command,
        "status": result["status"],
        "reason": result.get("reason") or result.get("cause") or "",
        "seconds": measure.get("seconds", 0.0) if isinstance(measure.get("seconds"), int | float) else 0.0,
    }


def gate_verdicts(report: dict[str, Any]) -> dict[str, str]:
    """Each milestone's own verdict, from its criteria."""
    found: dict[str, set[str]] = {}
    for result in report["results"]:
        found.setdefault(result["id"].partition("/")[0], set()).add(result["status"])
    return {
        name: "FAIL" if "fail" in seen else "PASS" if seen == {"pass"} else "BLOCKED"
        for name, seen in found.items()
    }


def summary(
    night: Night,
    rows: list[dict[str, Any]],
    expected: nightly_expected.ChipExpectations,
    *,
    finished: bool,
    lost: str = "",
) -> dict[str, Any]:
    """The night's summary. `lost`: a head that an earlier night noted and the history does not hold."""
    ran = [row for row in rows if row["status"] != "SKIP"]
    code = 1 if lost or any(row["status"] == "FAIL" for row in rows) else 0 if ran else 77
    return {
        "schema": "zinc-rt-nightly/1",
        "finished": finished,
        "started": read_json(night.folder / "run.json").get("started", ""),
        "ended": now(),
        "device": night.device,
        "expectations": expected.path.name,
        "simulated": night.device == "sim",
        "models": [str(model) for model in night.models],
        "history_head": night.head,
        "history_lost": lost,
        "verdict": {0: "PASS", 1: "FAIL", 77: "NOTHING RAN"}[code],
        "exit": code,
        "stages": rows,
    }
