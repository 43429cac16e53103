"""The verdict on a milestone: every criterion is PASS, FAIL or BLOCKED, with its evidence.

A gate passes if every criterion does. One failure fails it. Anything else blocks it: a criterion without evidence
never passes, and a rejected report is no evidence.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zinc_rt.cli.report import Report, Result, Status
from zinc_rt.perf.gate.figures import TIMED, compute_figure
from zinc_rt.perf.gate.milestones import Criterion, Milestone
from zinc_rt.perf.gate.offered import GateInput, SubmittedReport
from zinc_rt.perf.predict.outlook import outlook_of
from zinc_rt.perf.refusals.rules import find_refusals, find_timed_refusals
from zinc_rt.perf.structure.lab import CannotMeasure, Lab
from zinc_rt.perf.structure.measures import MEASURES

VERDICTS = {0: "PASS", 1: "FAIL", 77: "BLOCKED"}


class GateReport(Report):
    """A report with the verdict of a gate: blocked if any criterion is blocked."""

    def exit_code(self, *, strict: bool | None = None) -> int:
        """Return 0 if every criterion passed, 1 if any failed, 77 if any has no evidence."""
        counts = self.counts()
        if counts.get("fail"):
            return 1
        return 0 if self.results and counts.get("pass") == len(self.results) else 77

    def verdict(self, *, strict: bool | None = None) -> dict[str, Any]:
        code = self.exit_code(strict=strict)
        return {"status": VERDICTS[code], "exit": code, "counts": self.counts()}


def evaluate(milestone: Milestone, lab: Lab, given: GateInput, *, only: str = "") -> Iterator[Result]:
    """Yield the verdict on every criterion of the milestone, or on the criterion `only`, as soon as it is
    decided.
    """
    judge = {
        "structural": _evaluate_structural,
        "measured": _evaluate_measured,
        "timed": _evaluate_timed,
        "manual": _evaluate_manual,
    }
    for criterion in milestone.criteria:
        if only in ("", criterion.id):
            started = time.monotonic()
            result = judge[criterion.type](criterion, lab, given)
            result.measure["seconds"] = round(time.monotonic() - started, 3)
            yield result


def _evaluate_structural(criterion: Criterion, lab: Lab, given: GateInput) -> Result:
    if clamps := lab.settings.list_shortcuts():
        return _make_result(criterion, "blocked", f"a shortcut is active: {'; '.join(clamps)}")
    try:
        measured_value = MEASURES[criterion.measure](lab, **criterion.arguments)
    except CannotMeasure as error:
        return _make_result(criterion, "blocked", str(error).partition("\n")[0])
    except Exception as error:  # a hang or a crash is this criterion's answer, and the others still get theirs
        result = _make_result(criterion, "fail", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        result.cause = traceback.format_exc()
        return result
    tiers = criterion.arguments.get("tiers") or [criterion.arguments.get("tier", "")]
    simulated = any(tier in lab.devices and lab.devices[tier].simulated for tier in tiers)
    passed = criterion.bound.is_satisfied(measured_value.value)
    how = measured_value.how + (", on a simulated device" if simulated else "")
    result = _make_result(criterion, "pass" if passed else "fail", how, value=measured_value.value)
    result.tier = ",".join(tiers)
    result.measure |= {"simulated": simulated, "detail": dict(measured_value.detail)}
    return result


def _evaluate_measured(criterion: Criterion, lab: Lab, given: GateInput) -> Result:
    def read_value(measured: Mapping[str, Any]) -> float:
        measured_value = compute_figure(criterion, measured)
        assert measured_value is not None  # the rule `samples` asks for it
        return measured_value

    return _evaluate_reports(criterion, given, "perf bench", find_refusals, read_value)


def _evaluate_timed(criterion: Criterion, lab: Lab, given: GateInput) -> Result:
    value = TIMED[criterion.figure]
    return _evaluate_reports(
        criterion, given, "perf native", find_timed_refusals, lambda result: value(result["measure"])
    )


def _evaluate_reports(
    criterion: Criterion,
    given: GateInput,
    command: str,
    refusals_of: Callable[[SubmittedReport], list[str]],
    value_of: Callable[[Mapping[str, Any]], float],
) -> Result:
    """Decide from the latest accepted report of `command`. Otherwise the caller could choose the result by
    choosing a report.
    """
    refused: list[str] = []
    for evidence in sorted(given.reports, key=lambda report: report.started, reverse=True):
        result = evidence.result(criterion.measure)
        if evidence.command != command or result is None:
            continue
        reasons = refusals_of(SubmittedReport(criterion, evidence, result, given))
        if not reasons:
            value = value_of(result)
            ordering = evidence.report.get("ordering", "")
            where = f"{evidence.device.get('name')}{f' in {ordering}' if ordering else ''}"
            how = f"{evidence.path.name} of {evidence.started}, {where}"
            passed_result = _make_result(
                criterion, "pass" if criterion.bound.is_satisfied(value) else "fail", how, value=value
            )
            passed_result.artifacts = [str(evidence.path)]
            passed_result.tier = criterion.tier if criterion.type == "measured" else str(result.get("tier", ""))
            return passed_result
        refused.append(f"{evidence.path.name} refused: {'; '.join(reasons)}")
    reason = f"needs {criterion.needs}"
    blocked = _make_result(criterion, "blocked", f"{reason}; " + ". ".join(refused) if refused else reason)
    blocked.measure["refused"] = refused
    return blocked


def _evaluate_manual(criterion: Criterion, lab: Lab, given: GateInput) -> Result:
    for statement in given.statements:
        if statement.criterion == criterion.name:
            return _make_result(criterion, "pass", f"{statement.by}, {statement.on}: {statement.saw}", value=1.0)
    return _make_result(criterion, "blocked", f"needs a statement for {criterion.name}")


def _make_result(criterion: Criterion, status: Status, reason: str, *, value: float | None = None) -> Result:
    outlook = outlook_of(criterion)
    measured = {} if value is None else {"value": value, "unit": criterion.unit}
    return Result(
        id=criterion.name,
        kind=criterion.type,
        status=status,
        reason=reason,
        measure={"what": criterion.what} | measured | ({} if outlook is None else {"forecast": outlook.as_dict()}),
        limit={"compare": str(criterion.bound), "unit": criterion.unit, "source": list(criterion.source)},
        repro=criterion.command,
    )
