"""Convert the end of a run to an outcome: exceptions of a probe, findings of its device, the end of its
process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.exec import DeadlineMissed
from zinc_rt.host.errors import UnsupportedError, ZincError, error_first_line
from zinc_rt.host.facts import load_table
from zinc_rt.kmd.errors import DriverError
from zinc_rt.probes.child import ChildEnd
from zinc_rt.probes.outcome import Outcome, ProbeFailed, ProbeStuck

if TYPE_CHECKING:
    from zinc_rt.sim.interfaces import DeviceFinding

KNOWN = (ProbeFailed, DeadlineMissed, DriverError, VulkanError, UnsupportedError, OSError)


FINDINGS_TOLD = 3  # of one rule, in one probe


class Closeable(Protocol):
    """The interface of a context that is required to end a run. A context manager."""

    def news(self) -> tuple[list[DeviceFinding], list[str]]:
        """Return a simulated device's findings, and its kernel log."""

    def marks(self) -> list[str]:
        """Return the coverage marks (zinc_rt/host/facts.yaml) that it recorded."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None: ...


def run_in(context: Closeable, run: Callable[[Any], Outcome]) -> Iterator[Outcome]:
    """Run a probe and convert exceptions to an outcome; a simulated device adds its findings. Close the context.

    The outcome is yielded before and after the context is closed: that waits for a queue whose work never ends.
    """
    outcome: Outcome | None = None
    try:
        with context:
            try:
                outcome = run(context)
            except KNOWN as error:
                outcome = make_error_outcome(error)
            yield _add_news(context, outcome)
    except Exception as error:
        if outcome is None or (outcome.status != "fail" and not isinstance(error, KNOWN)):
            raise
        outcome = add_late_failure(outcome, make_error_outcome(error))
    yield _add_news(context, outcome)


def add_late_failure(outcome: Outcome, late: Outcome) -> Outcome:
    """Return the probe's verdict with the failure of the clean-up after it: as a note if the probe failed itself,
    otherwise as the reason of its failure."""
    if outcome.status == "fail":
        return replace(outcome, notes=(*outcome.notes, f"while giving everything back: {late.reason}"))
    return replace(
        late,
        reason=f"while giving everything back: {late.reason}",
        measure=outcome.measure,
        log=outcome.log,
        marks=outcome.marks,
    )


def _add_news(context: Closeable, outcome: Outcome) -> Outcome:
    findings, log = context.news()
    by_rule: dict[str, list[DeviceFinding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    marks = (*outcome.marks, *context.marks())
    notes = tuple(note for rule, item in by_rule.items() for note in _format_findings(rule, item))
    wrong = next((finding for finding in findings if finding.severity.value == "error"), None)
    if wrong is not None and outcome.status == "pass":
        outcome = replace(
            outcome,
            status="fail",
            symptom="finding",
            reason=f"behaved as expected, but the simulated device reported {wrong.rule}: {wrong.sentence}",
            cause=f"rule {wrong.rule} of the simulated device{_rule_description(wrong.rule)}",
            advice=(
                "hardware may hang, fault or compute a wrong result: fix the submission; docs/facts.md "
                "explains the rule's source"
            ),
        )
    return replace(outcome, notes=(*outcome.notes, *notes), log=(*outcome.log, *log), marks=marks)


def _format_findings(rule: str, findings: Sequence[DeviceFinding]) -> list[str]:
    """Format a few findings of one rule as lines, and the number of further ones."""
    more = len(findings) - FINDINGS_TOLD
    return [f"finding: {rule}: {finding.sentence}" for finding in findings[:FINDINGS_TOLD]] + (
        [f"finding: {rule}: {more} more"] if more > 0 else []
    )


def _rule_description(rule: str) -> str:
    """Return the description of the rule, if facts.yaml has a row of that name."""
    fact = next((fact for name, fact in load_table().items() if name.rpartition("/")[2] == rule), None)
    return f": {fact.says}" if fact is not None else ""


def make_error_outcome(error: BaseException) -> Outcome:
    if isinstance(error, ProbeFailed | ProbeStuck):
        return error.outcome
    if isinstance(error, DriverError):
        return Outcome(
            "fail",
            error_first_line(error),
            "errno",
            call=error.call,
            errno=error.errno,
            cause=error.why,
            advice=error.next,
        )
    if isinstance(error, VulkanError):
        return Outcome("fail", error.message, error.result, call=error.call, advice=error.next)
    if isinstance(error, DeadlineMissed):
        return Outcome("fail", error.message, "no-fence", advice=error.next)
    if isinstance(error, OSError):
        return Outcome("fail", str(error), "errno", errno=error.errno or 0)
    message, advice = (error.message, error.next) if isinstance(error, ZincError) else (str(error), "")
    return Outcome("fail", message, "unsupported", cause=message, advice=advice)


def make_child_outcome(ended: ChildEnd) -> Outcome:
    """Return the outcome for the end of a child process that runs `run_in`."""
    if ended.how == "returned":
        value: Outcome = ended.value
        return value
    if ended.how == "raised":
        last = ended.text.strip().splitlines()[-1]
        return Outcome("fail", f"ZINC_RT itself failed: {last}", "unexpected", report=ended.text)
    reason = f"its process was {ended.text}" if ended.how == "crashed" else ended.text
    words = {"crashed": "crashed", "deadline": "deadline", "stuck": "stuck-in-kernel"}
    if ended.value is None:
        return Outcome("fail", reason, words[ended.how])
    words["deadline"] = "not-released"
    return add_late_failure(ended.value, Outcome("fail", reason, words[ended.how]))
