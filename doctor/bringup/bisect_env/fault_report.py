"""The report of a fault bisection: its runs, suspects and confirmation, for --json."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.output import finish_report, start_report
from zinc_rt.doctor.bringup.bisect_env.output import find_journal, format_variable_names

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.propose import Proposal
    from zinc_rt.doctor.bringup.bisect_env.state import Confirmation, SessionState
    from zinc_rt.doctor.bringup.bisect_env.variables import Assignment


def write_fault_report(
    arguments: argparse.Namespace,
    state: SessionState,
    *,
    run: Assignment | None = None,
    proposal: Proposal | None = None,
) -> int:
    """Finish the report. The exit code is 0 whether the bisection has ended or not: --json states which."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env import wording

    session, confirmation = state.session, state.confirmation
    details: dict[str, Any] = {"variables": session.source, "journal": str(find_journal(arguments))}
    details["ended"], details["verdict"] = state.ended, state.verdict
    details["torn_lines"] = session.torn
    details["now"] = wording.format_setting(session, session.now)
    details["runs"] = wording.describe_runs(session)
    details["suspects"] = [
        {"variables": format_variable_names(session, cause.variables), "text": cause.text, "confidence": belief}
        for cause, belief in state.likeliest_causes()
    ]
    details["confirmation"] = _describe_arms(state, confirmation) if confirmation else None
    details["refuted"] = [
        {**_describe_arms(state, confirmation), "finding": wording.describe_refutation(state, confirmation)}
        for confirmation in state.refuted
    ]
    if run is not None:
        details["next"] = wording.describe_next_run(session, run)
        if proposal is not None:
            details["next"] |= {
                "bits": round(proposal.bits, 4),
                "minutes": proposal.minutes,
                "new_boot": proposal.new_boot,
            }
    best, guilty = state.best_cause, state.verdict == "guilty"
    report = start_report(Report("bisect-env", details=details), arguments)
    report.results.append(Result("journal", "bisection", "pass", measure={"runs": len(session.runs)}))
    names = format_variable_names(session, best.variables if guilty or not state.ended else ())
    text = state.verdict.replace("-", " ") if state.verdict == "not-explained" else best.text
    report.results.append(
        Result(
            "guilty",
            "bisection",
            "pass" if guilty else "skip",
            reason="" if guilty else text if state.ended else "more runs are needed",
            measure={"guilty": names, "text": text, "confidence": state.confidence},
        )
    )
    return finish_report(report, arguments)


def _describe_arms(state: SessionState, confirmation: Confirmation) -> dict[str, Any]:
    from zinc_rt.doctor.bringup.bisect_env.wording import format_setting

    arms = zip(confirmation.plan.arms, confirmation.plan.boots, confirmation.boots, strict=True)
    return {
        "suspect": state.model.causes[confirmation.suspect].text,
        "arms": [
            {
                "set": format_setting(state.session, arm.run),
                "text": arm.text,
                "planned_boots": planned,
                "boots": [{"runs": runs, "failed": failed} for runs, failed in boots.values()],
            }
            for arm, planned, boots in arms
        ],
    }
