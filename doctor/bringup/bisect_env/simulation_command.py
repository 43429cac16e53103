"""`bisect-env --simulate`: the tables of simulated bisections."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zinc_rt.cli.output import finish_report, start_report
from zinc_rt.doctor.bringup.bisect_env.output import show
from zinc_rt.host.terminal import Table

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Status


def simulate_bisections(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.doctor.bringup.bisect_env.simulate import VARIABLES

    details = {"variables": VARIABLES, "cases": arguments.cases, "seed": arguments.seed}
    details["confidence"] = arguments.confidence / 100
    report = start_report(Report("bisect-env", details=details), arguments)
    if arguments.simulate == "speed":
        _simulate_speed(arguments, report)
    else:
        _simulate_faults(arguments, report)
    return finish_report(report, arguments)


def _simulate_faults(arguments: argparse.Namespace, report: Report) -> None:
    import numpy as np

    from zinc_rt.cli.report import Result
    from zinc_rt.doctor.bringup.bisect_env.simulate import RIGHT_LIMIT, SETTINGS, VARIABLES, WRONG_LIMIT, simulate

    rows = []
    for setting in SETTINGS:
        outcome = simulate(setting, arguments.cases, arguments.seed, arguments.confidence / 100)
        median, late = float(np.median(outcome.runs)), float(np.percentile(outcome.runs, 90))
        right, wrong = float(outcome.right.mean()), float(outcome.wrong.mean())
        kept = bool((outcome.spent <= outcome.planned).all())
        holds = (right >= RIGHT_LIMIT if setting.explained else wrong <= WRONG_LIMIT) and kept
        holds &= setting.median_limit is None or median <= setting.median_limit
        boots = float(np.median(outcome.boots)), float(np.percentile(outcome.boots, 90))
        planned, spent = float(np.median(outcome.planned)), float(np.median(outcome.spent))
        report.results.append(
            Result(
                setting.text + ("" if setting.known else ", rates not told"),
                "simulation",
                "pass" if holds else "fail",
                reason="" if holds else "more runs, or more wrong results, than allowed",
                measure={
                    "median_runs": median,
                    "p90_runs": late,
                    "median_planned_boots": planned,
                    "median_spent_boots": spent,
                    "median_boots": boots[0],
                    "p90_boots": boots[1],
                    "right": right,
                    "wrong": wrong,
                    "not_found": float(outcome.not_found.mean()),
                    "plans_kept": kept,
                },
                limit={"median_runs": setting.median_limit, "right": RIGHT_LIMIT}
                if setting.explained
                else {"wrong": WRONG_LIMIT},
            )
        )
        limit = f"{median:g} of {setting.median_limit}" if setting.median_limit else f"{median:g}"
        message = "told" if setting.known else "not told"
        words = [setting.text, message, limit, f"{spent:g} of {planned:g}", f"{boots[0]:g}, {boots[1]:g}"]
        shares = [f"{item:.1%}" for item in (right, wrong, outcome.not_found.mean())]
        rows.append([*words, *shares, "pass" if holds else "FAIL"])
    headers = [
        f"cause, of {VARIABLES} variables",
        "rates",
        "runs to suspect",
        "boots to confirm",
        "all boots, p90",
    ]
    show(arguments, Table([*headers, "right", "wrong", "not outcome", ""], rows))


def _simulate_speed(arguments: argparse.Namespace, report: Report) -> None:
    import numpy as np

    from zinc_rt.cli.report import Result
    from zinc_rt.doctor.bringup.bisect_env.speed import RIGHT_LIMIT, SPEED_SETTINGS, simulate

    rows = []
    for setting in SPEED_SETTINGS:
        outcome = simulate(setting, arguments.cases, arguments.seed, arguments.confidence / 100)
        median, late, maximum = (
            float(np.median(outcome.runs)),
            float(np.percentile(outcome.runs, 90)),
            outcome.runs.max(),
        )
        right, sure = float(outcome.right.mean()), float(outcome.sure.mean())
        wrong = float((outcome.sure & ~outcome.right).mean())
        holds = right >= RIGHT_LIMIT and maximum <= outcome.most
        status: Status = "pass" if holds else "fail" if setting.judged else "skip"
        report.results.append(
            Result(
                setting.text,
                "simulation",
                status,
                reason="" if holds else "fewer right results than asked" if setting.judged else "no limit is set",
                measure={
                    "median_runs": median,
                    "p90_runs": late,
                    "most_runs": int(maximum),
                    "right": right,
                    "sure": sure,
                    "sure_and_wrong": wrong,
                },
                limit={"most_runs": outcome.most, "right": RIGHT_LIMIT} if setting.judged else {},
            )
        )
        words = [setting.text, f"{median:g}", f"{late:g}", f"{maximum} of {outcome.most}"]
        rows.append(
            [
                *words,
                f"{right:.1%}",
                f"{sure:.1%}",
                f"{wrong:.1%}",
                {"fail": "FAIL", "skip": ""}.get(status, status),
            ]
        )
    headers = ["history", "median runs", "nine of ten within", "most", "right", "sure", "sure and wrong", ""]
    show(arguments, Table(headers, rows))
