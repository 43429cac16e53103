"""Run probes in order: check for reasons to skip, run each in its own process, interpret its outcome."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.cli.report import Result
from zinc_rt.host.facts import find_assumed_facts
from zinc_rt.probes.child import CLOSE_SECONDS, run_in_child
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.endings import make_child_outcome, run_in
from zinc_rt.probes.expectations import Expectations
from zinc_rt.probes.explanation import explain_outcome
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeContext, ProbeOptions
from zinc_rt.probes.outcome import HOST, T1, TIERS, Outcome
from zinc_rt.probes.probe import Probe

if TYPE_CHECKING:
    pass

COMMAND = "zinc-rt-pm4-test"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The probes that may run. `displays` are connectors that the GPU currently drives."""

    spec: DeviceSpec
    tiers: tuple[str, ...]
    hazard: int
    options: ProbeOptions
    alive: Probe | None  # run again after something hazardous; None: nothing to run
    timeout_seconds: float = 0.0  # 0: each probe's own
    displays: tuple[str, ...] = ()
    force: bool = False
    why_hazard: str = ""  # why no more than `hazard` runs, where nobody said so
    again: bool = False
    learn: str = ""  # the facts file that is to be written
    known: tuple[str, ...] = ()  # rows of combinations.yaml against this machine: each failure quotes them
    expectations: Expectations = field(default_factory=Expectations)


class ProbeRunner:
    def __init__(
        self,
        plan: RunPlan,
        probes: Sequence[Probe],
        journal: Journal,
        *,
        command: str = COMMAND,
        kernel_log: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Create a runner. `kernel_log` returns all messages of the machine's kernel; those of a simulated
        device are in each outcome."""
        self.plan = plan
        self._kernel_log = kernel_log
        self.command = command
        self.probes = probes
        self.journal = journal
        self.suspects = journal.find_suspects()
        self._status: dict[str, Result] = {}  # by id and tier, as it came out
        self.log: list[str] = []  # a simulated device's kernel log, of all probes
        self.marks: set[str] = set()  # what a simulated device came to
        self.hangs: dict[str, HangReport] = {}  # by result
        self._root: dict[str, str] = {}  # of what is skipped for a need: the probe it began with
        self._dead = ""  # why nothing hazardous may run any more

    def list_jobs(self) -> list[tuple[Probe, str]]:
        """Return the probes to run: host probes first, then those of each tier, in their order."""
        tiers = [tier for tier in TIERS if tier == HOST or tier in self.plan.tiers]
        return [(probe, tier) for tier in tiers for probe in self.probes if tier in probe.tiers]

    def run(self, say: Callable[[str], None] = lambda text: None) -> Iterator[Result]:
        for probe, tier in self.list_jobs():
            name = f"{probe.id}/{tier}"
            say(f"{name} {probe.title}")
            reason = self._skip_reason(probe, tier)
            if reason is not None:
                result = self._make_result(probe, tier, Outcome("skip", reason))
            else:
                result = self._run_and_judge(probe, tier)
            self._status[name] = result
            yield result

    # --- whether ---

    def _skip_reason(self, probe: Probe, tier: str) -> str | None:
        plan, name = self.plan, f"{probe.id}/{tier}"
        row = plan.expectations.of(probe.id, tier)
        if row is not None and row.kind == "skip":
            return f"{row.reason} ({row.where})"
        suspect = self.suspects.get(name)
        if suspect is not None and suspect.reset and not plan.again:
            return f"the machine was reset while it was running at {suspect.when}; --again runs it"
        for need in probe.needs:
            status = self._status.get(f"{need}/{tier}") or self._status.get(f"{need}/{HOST}")
            if status is not None and status.status not in ("pass", "flake"):
                self._root[name] = root = self._root.get(status.id, status.id)
                verb = "failed" if self._status[root].status == "fail" else "was skipped"
                because = "" if root == status.id else f" (because {root.partition('/')[0]} {verb})"
                return f"needs {need}{because or f', which {verb}'}"
        if probe.hazard > plan.hazard:
            why_hazard = plan.why_hazard or f"hazard above the selected limit {plan.hazard}"
            return f"hazard {probe.hazard}, and {why_hazard}: {self.hazard_option(probe.hazard)}"
        if probe.hazard >= 2 and plan.displays and not plan.force:
            return f"a deliberate hang or fault, and this GPU drives {', '.join(plan.displays)}; --force runs it"
        if probe.hazard and self._dead:
            return self._dead
        return None

    # --- running ---

    def _run_and_judge(self, probe: Probe, tier: str) -> Result:
        name = f"{probe.id}/{tier}"
        if probe.hazard:
            self.journal.begin(name)
        try:
            outcome, seconds = self._run(probe, tier)
        except BaseException:
            if probe.hazard:
                self.journal.end(name, "interrupted")
            raise
        if probe.hazard and (probe.hazard >= 2 or outcome.status == "fail"):
            outcome = self._check_gpu_alive(probe, tier, outcome)
        if probe.hazard:
            self.journal.end(name, outcome.status)
        if outcome.hang is not None:
            self.hangs[name] = outcome.hang
        result = self._make_result(probe, tier, explain_outcome(probe, outcome), seconds)
        return self.plan.expectations.judge(result, probe.id, tier)

    def _run(self, probe: Probe, tier: str) -> tuple[Outcome, float]:
        plan = self.plan
        deadline = plan.timeout_seconds or probe.seconds + probe.more_seconds(plan.options)
        before = len(self._kernel_log())
        ended = run_in_child(
            self.make_body(probe, tier),
            deadline,
            close_seconds=plan.spec.scale_timeout(CLOSE_SECONDS),
            exclude_queued=plan.spec.simulated,
        )
        if ended.how == "stuck":
            self._dead = f"{probe.id} left a process stuck in the kernel: reboot before anything hazardous"
        outcome = make_child_outcome(ended)
        self.log += outcome.log
        self.marks.update(outcome.marks)
        return replace(outcome, log=(*self._kernel_log()[before:], *outcome.log)), ended.seconds

    def _check_gpu_alive(self, probe: Probe, tier: str, outcome: Outcome) -> Outcome:
        """Check in a new process whether the GPU still answers, and return the outcome."""
        alive = self.plan.alive
        if self._dead:
            return outcome
        if alive is None or alive.id == probe.id:
            return outcome
        after, _ = self._run(alive, tier if tier in alive.tiers else T1)
        if after.status == "pass":
            return replace(outcome, notes=(*outcome.notes, f"{alive.id} in a new process: the GPU responds"))
        if self.plan.spec.inject and outcome.status == "fail":
            return replace(outcome, notes=(*outcome.notes, f"{alive.id} afterwards: {after.reason}"))
        self._dead = f"the GPU has not responded since {probe.id} ({after.reason})"
        if outcome.status == "fail":
            return replace(outcome, notes=(*outcome.notes, self._dead))
        return replace(
            outcome,
            status="fail",
            symptom="not-alive",
            reason=f"behaved as expected, but then {alive.id} failed in a new process: {after.reason}",
            notes=(*outcome.notes, f"{alive.id} afterwards: {after.reason}"),
            report=after.report,
        )

    def make_body(self, probe: Probe, tier: str) -> Callable[[], Iterator[Outcome]]:
        """Return the function that the child runs."""
        return partial(run_in_context, probe, self.plan.spec, tier, self.plan.options)

    def hazard_option(self, hazard: int) -> str:
        """Return the option that permits probes of this hazard."""
        return f"--hazard {hazard}"

    # --- reporting ---

    def _make_result(self, probe: Probe, tier: str, outcome: Outcome, seconds: float = 0.0) -> Result:
        evidence = outcome.evidence
        first_bad: dict[str, Any] = {}
        if outcome.status == "fail":
            first_bad = {"symptom": outcome.symptom}
            if evidence is not None:
                first_bad |= {"wptr": evidence.wptr, "rptr": evidence.rptr, "ring_dw": evidence.ring_dw}
                first_bad |= {"fence": evidence.fence, "poison": evidence.poison}
            if outcome.call:
                first_bad |= {"call": outcome.call, "errno": outcome.errno}
            if outcome.faults:
                first_bad["faults"] = list(outcome.faults)
            if outcome.log:
                first_bad["kernel_log"] = list(outcome.log)
            if outcome.report:
                first_bad["report"] = outcome.report
            if self.plan.known:
                first_bad["known"] = list(self.plan.known)
        measure = {"title": probe.title, "hazard": probe.hazard, **outcome.measure}
        measure |= {"simulated": self.plan.spec.simulated, "seconds": round(seconds, 3)}
        if outcome.notes:
            measure["notes"] = list(outcome.notes)
        if outcome.marks:
            measure["assumptions"] = [assumed_fact.id for assumed_fact in find_assumed_facts(outcome.marks)]
        return Result(
            f"{probe.id}/{tier}",
            "probe",
            outcome.status,
            tier=tier,
            reason=outcome.reason,
            measure=measure,
            limit={"passes_when": probe.passes_when, **outcome.limit},
            first_bad=first_bad,
            cause=outcome.cause,
            advice=outcome.advice,
            repro=self.repro(probe, tier) if outcome.status == "fail" or outcome.cause else "",
        )

    def repro(self, probe: Probe, tier: str) -> str:
        """Return the command that reproduces the result."""
        plan = self.plan
        words = [self.command, "--device", plan.spec.option, "-k", probe.id]
        words += ["--tiers", tier] if tier != HOST else []
        words += ["--hazard", str(probe.hazard)] if probe.hazard == 2 and not plan.spec.simulated else []
        for name in plan.spec.inject:
            words += ["--inject", name]
        if plan.spec.reorder is not None:
            words += ["--reorder", str(plan.spec.reorder)]
        if plan.spec.coherence:
            words += ["--coherence", plan.spec.coherence]
        if plan.spec.facts:
            words += ["--facts", plan.spec.facts, *["--force-facts"] * plan.spec.force_facts]
        for name in plan.spec.flip:
            words += ["--flip", name]
        words += ["--learn", plan.learn] if plan.learn else []
        words += ["--force"] if plan.force else []
        words += ["--timeout", f"{plan.timeout_seconds:g}"] if plan.timeout_seconds else []
        return shlex.join(words)


def run_in_context(probe: Probe, spec: DeviceSpec, tier: str, options: ProbeOptions) -> Iterator[Outcome]:
    """Run the probe in the child."""
    return run_in(ProbeContext(spec, tier, options), probe.run)
