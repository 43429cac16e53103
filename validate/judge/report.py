"""The results of a judgement as text, rows of a report, and a page to attach to an issue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jinja2

from zinc_rt.cli.output import printable
from zinc_rt.cli.report import Report, Result
from zinc_rt.validate.judge.judgement import EngineJudgement
from zinc_rt.validate.judge.reproduce import Reproducer
from zinc_rt.validate.judge.verdict import CLASSES, EngineDefect

PAGE = "judge.html.jinja"
NEEDED = {  # what an engine must offer for a class to be checked, as `EngineJudgement.skipped` begins
    "template": "conversations",
    "log-probabilities": "log-probabilities",
    "numerics": "log-probabilities",
}


def make_results(judgement: EngineJudgement, url: str, key: str) -> list[Result]:
    """Return one row for each class of defect, passed or failed with its evidence and request."""
    rows = []
    by_kind = {finding.kind: number for number, finding in enumerate(judgement.findings)}
    for kind, meaning in CLASSES.items():
        number = by_kind.get(kind)
        if number is None:
            reason = _explain_unchecked(kind, judgement)
            rows.append(Result(kind, "judge", "skip" if reason else "pass", reason=reason))
            continue
        finding, second = judgement.findings[number], judgement.reproducers[number]
        rows.append(
            Result(
                kind,
                "judge",
                "fail",
                reason=finding.summary,
                cause=meaning,
                measure={"answers": len(finding.faults), "evidence": finding.evidence},
                first_bad={} if second is None else {
                    "request": second.body, "expected": second.expected, "answer": second.got,
                    "before": second.before, "beside": second.beside,
                    "attempts": second.attempts, "fault": second.fault,
                    "index": second.index, "logprobs": second.logprobs,
                    "special": second.special,
                },
                repro="" if second is None else second.format_curl(url, key),
            )
        )  # fmt: skip
    return rows


def _explain_unchecked(kind: str, judgement: EngineJudgement) -> str:
    """Return the reason if a class could not be checked, else ""."""
    wanted = NEEDED.get(kind)
    return next((item for item in judgement.skipped if wanted and item.startswith(wanted)), "")


def format_lines(judgement: EngineJudgement, report: Report) -> Iterator[str]:
    """Yield the report as text for a terminal."""
    features = judgement.features
    software = f", {features.software}" if features.software else ""
    yield f"engine    {printable(features.model)}{software}, context {features.ctx or 'unknown'}"
    text = ", ".join(f"{count} {kind}" for kind, count in judgement.answers.items())
    yield f"answers   {sum(judgement.answers.values())}: {text}"
    for number, (finding, second) in enumerate(zip(judgement.findings, judgement.reproducers, strict=True)):
        if number == 1:
            yield "also      the following may be consequences of the first finding"
        yield f"FAIL      {finding.kind}: {printable(finding.summary)}"
        for line in finding.evidence:
            yield f"          {printable(line, 300)}"
        if second is not None:
            yield from _format_reproducer(second)
    if judgement.numerics:
        figures = judgement.numerics
        expected = judgement.expected.get("mean")
        beside = f"; quantised activations alone cause {expected:.2g}" if expected else ""
        yield (
            f"numerics  KL {figures['mean']:.2g} nats on average, {figures['max']:.2g} at most, over "
            f"{figures['positions']:.0f} positions{beside}"
        )
    if judgement.second is not None:
        yield f"second    {printable(judgement.second.describe(), 300)}"
    if judgement.sampling:
        least = min(judgement.sampling, key=lambda test: test.chance)
        count = sum(test.samples for test in judgement.sampling)
        yield (
            f"sampling  {count} tokens of {len(judgement.sampling)} settings; least probable: {least.setting}, "
            f"p = {least.chance:.2g}"
        )
    speeds = judgement.tokens_per_second
    yield f"speed     {speeds.get('alone', 0):.1f} tokens/s alone, {speeds.get('crowd', 0):.1f} in crowds"
    for reason in judgement.skipped:
        yield f"skipped   {reason}"
    for shortcut in report.shortcuts:
        yield f"shortcut  {shortcut}"


def _format_reproducer(reproducer: Reproducer) -> Iterator[str]:
    yield (
        f"          expected {printable(reproducer.expected, 120)!r}, received {printable(reproducer.got, 120)!r}"
    )
    if not reproducer.attempts:
        yield "          it did not show again in the requests that were sent to reproduce it"
    elif reproducer.beside:
        others = len(reproducer.beside)
        beside = f"with {others} others at the same time (--json)"
        yield f"          shown again by {reproducer.attempts} requests, {beside}"
    else:
        before = f", each after {len(reproducer.before)} other (--json)" if reproducer.before else ""
        yield f"          shown again by request {reproducer.attempts} of the same kind, sent alone{before}"


def format_verdict(judgement: EngineJudgement) -> str:
    """Return the last line: the verdict, with the speed only if the result is right."""
    if judgement.findings:
        first, *others = [finding.kind for finding in judgement.findings]
        return f"FAIL      {first}" + (f"; also {', '.join(others)}" if others else "")
    return f"PASS      no difference from the reference in {sum(judgement.answers.values())} answers"


def to_html(judgement: EngineJudgement, report: Report, *, url: str, key: str) -> str:
    """Return a self-contained page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).resolve().parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    findings: list[tuple[EngineDefect, Reproducer | None, str]] = [
        (finding, second, "" if second is None else second.format_curl(url, key))
        for finding, second in zip(judgement.findings, judgement.reproducers, strict=True)
    ]
    return environment.get_template(PAGE).render(
        judgement=judgement, report=report.as_dict(), findings=findings, classes=CLASSES
    )
