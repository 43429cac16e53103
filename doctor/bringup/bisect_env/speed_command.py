"""The actions next and status of a speed bisection."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.output import finish_report, start_report
from zinc_rt.doctor.bringup.bisect_env.output import find_journal, format_journal_option, show
from zinc_rt.host.errors import CheckFailed

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession
    from zinc_rt.doctor.bringup.bisect_env.speed import SpeedState
    from zinc_rt.doctor.bringup.bisect_env.variables import Assignment


def propose_measurement(arguments: argparse.Namespace, session: BisectSession) -> int:
    from zinc_rt.doctor.bringup.bisect_env import journal, speed, wording

    state = speed.compute_state(speed.SpeedModel(session.problem), session.runs, session.confidence)
    if state.verdict:
        show(arguments, wording.describe_speed_verdict(session, state))
        return _report_state(arguments, session, state)
    run, proposal = session.proposed, None
    if run is None:
        proposal = speed.propose_run(state, session.now, session.impossible)
        if proposal is None:
            raise CheckFailed(
                "no combination is left to test: each was recorded as impossible to set up or as giving wrong "
                "output",
                next="zinc-rt bisect-env status; bisect the wrong output first, without measure in the file",
            )
        run = proposal.run
        row = {"what": "next", "run": wording.format_setting(session, run), "new_boot": False}
        journal.append(find_journal(arguments), row)
    outcome = "NUMBER --output right|wrong"
    words = format_journal_option(arguments)
    show(arguments, wording.describe_speed_progress(session, state))
    show(arguments, wording.describe_task(session, run, proposal, words, reboot=False, outcome=outcome))
    return _report_state(arguments, session, state, run=run)


def show_status(arguments: argparse.Namespace, session: BisectSession) -> int:
    from zinc_rt.doctor.bringup.bisect_env import speed, wording

    state = speed.compute_state(speed.SpeedModel(session.problem), session.runs, session.confidence)
    for text in (wording.describe_speed_progress(session, state), wording.describe_speed_verdict(session, state)):
        show(arguments, text)
    return _report_state(arguments, session, state, run=session.proposed)


def _report_state(
    arguments: argparse.Namespace, session: BisectSession, state: SpeedState, *, run: Assignment | None = None
) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.bisect_env import speed, wording

    measure = session.problem.measure
    assert measure is not None
    details: dict[str, Any] = {"variables": session.source, "journal": str(find_journal(arguments))}
    details |= {"ended": bool(state.verdict), "verdict": state.verdict, "complete": state.complete}
    details |= {
        "torn_lines": session.torn,
        "unit": measure.unit,
        "most_runs": speed.count_most_runs(session.problem),
    }
    details["runs"] = wording.describe_runs(session)
    details["wrong_output"] = [
        wording.format_setting(session, wrong_value) for wrong_value in speed.find_wrong_combinations(session.runs)
    ]
    steps = [{**wording.describe_step(session, step), "confidence": chance} for step, chance in state.named()]
    details["likeliest"] = [
        {"steps": [wording.describe_step(session, step) for step in steps], "probability": chance}
        for steps, chance in state.likeliest_hypotheses()
    ]
    if run is not None:
        details["next"] = wording.describe_next_run(session, run)
    report = start_report(Report("bisect-env", details=details), arguments)
    report.results.append(Result("journal", "bisection", "pass", measure={"runs": len(session.runs)}))
    complete = state.complete and bool(state.verdict)
    report.results.append(
        Result(
            "steps",
            "bisection",
            "pass" if complete else "skip",
            reason="" if complete else state.verdict or "more runs are needed",
            measure={"steps": steps},
        )
    )
    return finish_report(report, arguments)
