"""The report of a back-test: each row's error, and the errors of each group against the baseline."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zinc_rt.cli.output import choose_output_stream
from zinc_rt.cli.report import Report, Result
from zinc_rt.host import terminal
from zinc_rt.host.version import digest_runtime
from zinc_rt.perf.predict import backtest
from zinc_rt.perf.predict.backtest import Tested
from zinc_rt.perf.predict.llama_cpp import FOLDER, load_constants

COMMITTED = FOLDER / "llama_rows.csv"  # the rows on which the constants were fitted


def make_backtest_report(arguments: argparse.Namespace) -> Report:
    """Predict the rows of a file and show the errors. With `refit`, constants are fitted on the file's rows, and
    each model is predicted from the others. Raise InputError for an unknown file, chip or backend.
    """
    report, out = Report("perf predict"), choose_output_stream(arguments)
    report.details |= {"code": digest_runtime(), "rows": Path(arguments.backtest).name}
    rows = backtest.read_rows(Path(arguments.backtest))
    if arguments.refit:
        known = backtest.fit_all(rows)
        _add(
            report, out, "refit", backtest.backtest(rows, known, backtest.fit_bandwidth_baseline(rows)), show=False
        )
        _add(report, out, "leave-one-model-out", backtest.leave_one_model_out(rows), show=True)
    else:
        known = dict(load_constants())
        baseline = backtest.fit_bandwidth_baseline(backtest.read_rows(COMMITTED))
        _add(report, out, "backtest", backtest.backtest(rows, known, baseline), show=True)
    report.details["constants"] = {name: asdict(item) for name, item in known.items()}
    terminal.show("\nconstants of llama.cpp's backends:", out=out)
    for name, item in known.items():
        values = ", ".join(f"{key} {value:.4g}" for key, value in asdict(item).items())
        terminal.show(f"  {name}: {values}", out=out)
    return report


def _add(report: Report, out: Any, kind: str, tested: list[Tested], *, show: bool) -> None:
    if show:
        terminal.show(_make_table(tested), out=out)
    terminal.show(f"\nmedian absolute error, {kind}:", out=out)
    for group, (count, error, baseline) in backtest.summarise_errors(tested).items():
        against = "" if baseline is None else f"; one bandwidth for each backend: {baseline:.1%}"
        terminal.show(f"  {group}: {error:.1%} of {count} rows{against}", out=out)
        measure = {"rows": count, "median_error": error, "baseline_error": baseline}
        report.results.append(Result(f"{kind}/{group}", "prediction", "pass", measure=measure))
    report.details[kind] = [
        {"model": item.row.model, "chip": item.row.chip, "backend": item.row.backend, "test": item.row.test}
        | {"measured": item.row.speed, "predicted": item.predicted, "error": item.error}
        for item in tested
    ]


def _make_table(tested: Iterable[Tested]) -> terminal.Table:
    right = [terminal.Column(name, right=True) for name in ("measured", "predicted", "error")]
    rows = [
        [
            item.row.chip,
            item.row.model,
            item.row.backend,
            item.row.test,
            f"{item.row.speed:.1f}",
            f"{item.predicted:.1f}",
            f"{item.error:+.1%}",
        ]
        for item in tested
    ]
    return terminal.Table(["chip", "model", "backend", "test", *right], rows)
