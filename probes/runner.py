"""Runs probes in order: reasons not to first, then each in its own process, then what its outcome means."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.errors import UnsupportedError, ZincError, first_line
from zinc_rt.facts import leaned_on, table
from zinc_rt.kmd.errors import DriverError
from zinc_rt.probes.child import ChildEnd, run_apart
from zinc_rt.probes.context import ProbeContext, ProbeOptions
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.expectations import Expectations
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.layout_differences import difference
from zinc_rt.probes.outcome import HOST, T1, TIERS, Failed, Outcome, Stuck
from zinc_rt.probes.probe import Probe
from zinc_rt.report import Result

if TYPE_CHECKING:
    from zinc_rt.sim.interfaces import DeviceFinding

FINDINGS_TOLD = 3  # of one rule, in one probe
GIVE_BACK_SECONDS = 30.0  # a driver's own time-outs while a hung child is closed
COMMAND = "zinc-rt-pm4-test"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What may run. `displays` are connectors that the GPU lights now."""

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
        """`kernel_log` is all the machine's kernel has said; a simulated device's comes with each outcome."""
        self.plan = plan
        self._kernel_log = kernel_log
        self.command = command
        self.probes = probes
        self.journal = journal
        self.suspects = journal.suspects()
        self._status: dict[str, Result] = {}  # by id and tier, as it came out
        self.log: list[str] = []  # a simulated device's kernel log, of all probes
        self.marks: set[str] = set()  # what a simulated device came to
        self.hangs: dict[str, HangReport] = {}  # by result
        self._root: dict[str, str] = {}  # of what is skipped for a need: the probe it began with
        self._dead = ""  # why nothing hazardous may run any more

    def jobs(self) -> list[tuple[Probe, str]]:
        """Host probes first, then each tier's, in the probes' order."""
        wanted = [tier for tier in TIERS if tier == HOST or tier in self.plan.tiers]
        return [(probe, tier) for tier in wanted for probe in self.probes if tier in probe.tiers]

    def run(self, say: Callable[[str], None] = lambda text: None) -> Iterator[Result]:
        for probe, tier in self.jobs():
            name = f"{probe.id}/{tier}"
            say(f"{name} {probe.title}")
            reason = self._reason_not_to(probe, tier)
            if reason is not None:
                result = self._result(probe, tier, Outcome("skip", reason))
            else:
                result = self._judged(probe, tier)
            self._status[name] = result
            yield result

    # --- whether ---

    def _reason_not_to(self, probe: Probe, tier: str) -> str | None:
        plan, name = self.plan, f"{probe.id}/{tier}"
        row = plan.expectations.of(probe.id, tier)
        if row is not None and row.kind == "skip":
            return f"{row.reason} ({row.where})"
        suspect = self.suspects.get(name)
        if suspect is not None and suspect.reset and not plan.again:
            return f"the machine was reset while it ran at {suspect.when}; --again runs it"
        for need in probe.needs:
            found = self._status.get(f"{need}/{tier}") or self._status.get(f"{need}/{HOST}")
            if found is not None and found.status not in ("pass", "flake"):
                self._root[name] = root = self._root.get(found.id, found.id)
                verb = "failed" if self._status[root].status == "fail" else "was skipped"
                because = "" if root == found.id else f" (because {root.partition('/')[0]} {verb})"
                return f"needs {need}{because or f', which {verb}'}"
        if probe.hazard > plan.hazard:
            why = plan.why_hazard or f"only up to {plan.hazard} was asked for"
            return f"hazard {probe.hazard}, and {why}: --hazard {probe.hazard}"
        if probe.hazard >= 2 and plan.displays and not plan.force:
            return f"hangs or faults on purpose, and this GPU lights {', '.join(plan.displays)}; --force runs it"
        if probe.hazard and self._dead:
            return self._dead
        return None

    # --- running ---

    def _judged(self, probe: Probe, tier: str) -> Result:
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
            outcome = self._afterwards(probe, tier, outcome)
        if probe.hazard:
            self.journal.end(name, outcome.status)
        if outcome.hang is not None:
            self.hangs[name] = outcome.hang
        result = self._result(probe, tier, explained(probe, outcome), seconds)
        return self.plan.expectations.judge(result, probe.id, tier)

    def _run(self, probe: Probe, tier: str) -> tuple[Outcome, float]:
        plan = self.plan
        deadline = plan.timeout_seconds or probe.seconds + probe.more_seconds(plan.options)
        before = len(self._kernel_log())
        ended = run_apart(partial(in_context, probe, plan.spec, tier, plan.options), deadline)
        outcome = outcome_of(ended)
        self.log += outcome.log
        self.marks.update(outcome.marks)
        return replace(outcome, log=(*self._kernel_log()[before:], *outcome.log)), ended.seconds

    def _afterwards(self, probe: Probe, tier: str, outcome: Outcome) -> Outcome:
        """Whether the GPU still answers, in a new process."""
        alive = self.plan.alive
        if outcome.symptom == "stuck-in-kernel":
            self._dead = f"{probe.id} left a process stuck in the kernel: boot again before anything hazardous"
            return outcome
        if alive is None or alive.id == probe.id:
            return outcome
        after, _ = self._run(alive, tier if tier in alive.tiers else T1)
        if after.status == "pass":
            return replace(outcome, notes=(*outcome.notes, f"{alive.id} in a new process: the GPU answers"))
        if self.plan.spec.inject and outcome.status == "fail":
            return replace(outcome, notes=(*outcome.notes, f"{alive.id} afterwards: {after.reason}"))
        self._dead = f"the GPU no longer answers since {probe.id} ({after.reason})"
        if outcome.status == "fail":
            return replace(outcome, notes=(*outcome.notes, self._dead))
        return replace(
            outcome,
            status="fail",
            symptom="not-alive",
            reason=f"did what it should, but then {alive.id} failed in a new process: {after.reason}",
            notes=(*outcome.notes, f"{alive.id} afterwards: {after.reason}"),
            report=after.report,
        )

    # --- reporting ---

    def _result(self, probe: Probe, tier: str, outcome: Outcome, seconds: float = 0.0) -> Result:
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
            measure["assumptions"] = [each.id for each in leaned_on(outcome.marks)]
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
        """The one command that shows it again."""
        plan = self.plan
        words = [self.command, "--device", plan.spec.option, "-k", probe.id]
        words += ["--tiers", tier] if tier != HOST else []
        words += ["--hazard", str(probe.hazard)] if probe.hazard == 2 and not plan.spec.simulated else []
        for name in plan.spec.inject:
            words += ["--inject", name]
        if plan.spec.reorder is not None:
            words += ["--reorder", str(plan.spec.reorder)]
        if plan.spec.facts:
            words += ["--facts", plan.spec.facts, *["--force-facts"] * plan.spec.force_facts]
        for name in plan.spec.flip:
            words += ["--flip", name]
        words += ["--learn", plan.learn] if plan.learn else []
        words += ["--force"] if plan.force else []
        words += ["--timeout", f"{plan.timeout_seconds:g}"] if plan.timeout_seconds else []
        return shlex.join(words)


KNOWN = (Failed, Stuck, DriverError, UnsupportedError, OSError)


def in_context(probe: Probe, spec: DeviceSpec, tier: str, options: ProbeOptions) -> Outcome:
    """The child's body."""
    return run_in(ProbeContext(spec, tier, options), probe.run)


def run_in(context: ProbeContext, run: Callable[[ProbeContext], Outcome]) -> Outcome:
    """What is raised becomes the outcome; a simulated device adds what it has to say. Closes the context."""
    outcome = _outcome(context, run)
    findings, log = context.news()
    by_rule: dict[str, list[DeviceFinding]] = {}
    for each in findings:
        by_rule.setdefault(each.rule, []).append(each)
    marks = (*outcome.marks, *context.marks())
    notes = tuple(note for rule, each in by_rule.items() for note in _told(rule, each))
    wrong = next((each for each in findings if each.severity.value == "error"), None)
    if wrong is not None and outcome.status == "pass":
        outcome = replace(
            outcome,
            status="fail",
            symptom="finding",
            reason=f"did what it should, but the simulated device found {wrong.rule}: {wrong.sentence}",
            cause=f"rule {wrong.rule} of the simulated device{_says(wrong.rule)}",
            advice="hardware may hang, fault or compute something else: mend what was sent; docs/facts.md has the "
            "rule's source",
        )
    return replace(outcome, notes=(*outcome.notes, *notes), log=(*outcome.log, *log), marks=marks)


def _told(rule: str, findings: Sequence[DeviceFinding]) -> list[str]:
    """A few, and how many more."""
    more = len(findings) - FINDINGS_TOLD
    return [f"finding: {rule}: {each.sentence}" for each in findings[:FINDINGS_TOLD]] + (
        [f"finding: {rule}: {more} more"] if more > 0 else []
    )


def _says(rule: str) -> str:
    """The rule in words, where facts.yaml has it by that name."""
    fact = next((fact for name, fact in table().items() if name.rpartition("/")[2] == rule), None)
    return f": {fact.says}" if fact is not None else ""


def _outcome(context: ProbeContext, run: Callable[[ProbeContext], Outcome]) -> Outcome:
    outcome: Outcome | None = None
    try:
        with context:
            try:
                outcome = run(context)
            except KNOWN as error:
                outcome = outcome_from(error)
    except Exception as error:
        if outcome is None or (outcome.status != "fail" and not isinstance(error, KNOWN)):
            raise
        if outcome.status == "fail":
            return replace(outcome, notes=(*outcome.notes, f"while giving back: {first_line(error)}"))
        late = outcome_from(error)
        return replace(late, reason=f"while giving everything back: {late.reason}", measure=outcome.measure)
    return outcome


def outcome_from(error: BaseException) -> Outcome:
    if isinstance(error, Failed | Stuck):
        return error.outcome
    if isinstance(error, DriverError):
        return Outcome(
            "fail",
            first_line(error),
            "errno",
            call=error.call,
            errno=error.errno,
            cause=error.why,
            advice=error.next,
        )
    if isinstance(error, OSError):
        return Outcome("fail", str(error), "errno", errno=error.errno or 0)
    message, advice = (error.message, error.next) if isinstance(error, ZincError) else (str(error), "")
    return Outcome("fail", message, "unsupported", cause=message, advice=advice)


def outcome_of(ended: ChildEnd) -> Outcome:
    """What the end of a child says."""
    if ended.how == "returned":
        value: Outcome = ended.value
        return value
    if ended.how == "raised":
        last = ended.text.strip().splitlines()[-1]
        return Outcome("fail", f"ZINC_RT itself failed: {last}", "unexpected", report=ended.text)
    words = {"crashed": "crashed", "deadline": "deadline", "stuck": "stuck-in-kernel"}
    return Outcome(
        "fail", f"its process was {ended.text}" if ended.how == "crashed" else ended.text, words[ended.how]
    )


MEND_LAYOUT = "hold zinc_rt/kmd/uapi against the kernel's include/uapi; please report it"
EVERYWHERE = {  # symptom → cause, advice, for what any probe can run into
    "deadline": (
        "a system call or a wait of the probe did not come back",
        "`dmesg | grep -iE 'amdgpu|kfd|mes'`; a hung GPU needs a reset or a reboot",
    ),
    "stuck-in-kernel": ("the kernel waits for the GPU and cannot be interrupted", "save your work and boot again"),
    "crashed": (
        "the probe's process died: memory the device or driver took away, or a fault of ZINC_RT",
        "run it again; where it repeats, report it with --bundle",
    ),
    "unexpected": ("a fault of ZINC_RT, not of the device", "please report it, with the --bundle folder"),
    "gpu-gone": (
        "the GPU does not answer any more: reset, fallen off the bus, or its driver is gone",
        "close every program that uses it; `dmesg | grep -i amdgpu` says whether a reset worked; else boot again",
    ),
    "rptr-stuck": (
        "nothing of the ring was fetched: the doorbell did not arrive, or the queue is not on the hardware",
        "P17 and P18 look at doorbells; `dmesg | grep -iE 'mes|evict'` at the scheduler",
    ),
    "rptr-stopped": (
        "the command processor stands at a packet: illegal, blocking, or its memory is not there",
        "read the packet at rptr in the report (--bundle DIR)",
    ),
    "no-fence": (
        "everything was read, but the end of the pipe never wrote the fence",
        "P20 tests the fence alone; look for page faults in `dmesg`",
    ),
    "not-alive": (
        "what the probe did on purpose was not cleaned up by the driver",
        "update linux-firmware and the kernel; keep --hazard 1 on this machine until then",
    ),
}


def explained(probe: Probe, outcome: Outcome) -> Outcome:
    """With cause and advice: the probe's own signature, what the failed call says, or what any probe can meet."""
    if outcome.status == "pass" or (outcome.status == "skip" and outcome.cause):
        return outcome
    if outcome.call and (slip := difference(outcome.call)):
        return replace(outcome, cause=slip, advice=MEND_LAYOUT)
    for each in probe.signatures:
        if each.matches(outcome):
            return replace(outcome, cause=each.cause, advice=each.advice)
    if outcome.cause or outcome.status == "skip":
        return outcome
    cause, advice = EVERYWHERE.get(
        outcome.symptom,
        ("not one of the ways this probe is known to fail", "--bundle DIR keeps all there is to see"),
    )
    return replace(outcome, cause=cause, advice=advice)
