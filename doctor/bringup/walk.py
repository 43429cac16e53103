"""Run the stages in order: state the consequences, ask, run, evaluate, and stop at the first failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Report, Result, read_results, write_text
from zinc_rt.doctor.bringup.earlier_walks import PASSED, EarlierWalks, read_earlier_walks
from zinc_rt.doctor.bringup.stages import DOCTOR, NAMES, STAGES, BringupStage, BringupTarget
from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.probes.journal import Journal, Suspect
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.output.passed import judge_results

BROKEN = "broken"  # the severity of what will not work
Run = Callable[[list[str], Path, str, float], int]
"""A function (command after zinc-rt, path of the report, stage as text, expected seconds or 0) -> exit code."""
Ask = Callable[[BringupStage], bool | None]
"""The answer to a prompt: yes, no, or no terminal."""


@dataclass(slots=True)
class Walk:
    """One bring-up of one device. `suspects`: from pm4-test's journal; `setup`: the configuration for
    which a pass is valid."""

    target: BringupTarget
    folder: Path
    journal: Journal
    setup: str
    run: Run
    ask: Ask
    look: Callable[[], list[DoctorFinding]]
    suspects: Mapping[str, Suspect] = field(default_factory=dict)
    resume: bool = False
    again: bool = False
    skip: Collection[str] = ()
    up_to: str = NAMES[-1]
    say: Callable[[str], None] = print
    earlier: dict[str, EarlierWalks] = field(init=False, default_factory=dict)

    def results(self) -> Iterator[Result]:
        """Return one result per executed stage; the last one contains the reason for stopping."""
        self.earlier = read_earlier_walks(self.journal)
        for stage in STAGES[: NAMES.index(self.up_to) + 1]:
            self.say("")
            self.say(f"{stage.name:<13} {stage.title}")
            result = self._reuse_result(stage, self.earlier.get(stage.name))
            if result is None:
                result = self._mark_started(stage)
            self.say(
                f"{'':<13} "
                f"{result.status.upper() if result.status == 'fail' else result.status}{_format_reason(result)}"
            )
            yield result
            if result.status == "fail" or result.measure.get("stops"):
                return

    # --- whether ---

    def _reuse_result(self, stage: BringupStage, earlier: EarlierWalks | None) -> Result | None:
        """Return a stage's result if it is known before it runs, otherwise None."""
        if stage.name in self.skip:
            return self._make_result(stage, "skip", f"--skip {stage.name}")
        if stage.name == DOCTOR:
            return None
        if earlier is not None and not self.again:
            if self.resume and earlier.status in PASSED and earlier.setup == self.setup:
                self.target = replace(self.target, tiers=earlier.tiers or self.target.tiers)
                return self._make_result(stage, "pass", f"passed already on {earlier.when}", earlier=True)
            if earlier.reset and not stage.name.startswith("hazard"):
                return self._make_result(
                    stage,
                    "fail",
                    (
                        f"the machine was reset while this stage was running ({earlier.when}): it is not "
                        "run again unless requested"
                    ),
                    cause="the previous stage passed, so the fault is in the additions of this one",
                    advice=self.command("--resume", "--again"),
                )
        if stage.words(self.target)[:1] == ["validate"] and not self.target.tiers:
            return self._make_result(
                stage, "skip", "no tier passed hazard-1", stops=True, advice=self.command("--resume")
            )
        return self._ask_consent(stage)

    def _ask_consent(self, stage: BringupStage) -> Result | None:
        lit = (
            f" This GPU drives {', '.join(self.target.lit)}: a hang freezes that screen."
            if self.target.lit
            else ""
        )
        self.say(f"{'':<13} can happen   {stage.can_happen}.{lit}")
        self.say(f"{'':<13} may be lost  {stage.lost}.")
        if self.target.spec.simulated:
            self.say(f"{'':<13} SIMULATED: none of it happens here; you are asked as on a card")
        answer = self.ask(stage)
        if answer:
            return None
        optional = stage.name == "hazard-2"
        reason = "declined" if answer is False else f"no terminal to ask: --yes {stage.name} consents"
        advice = "" if optional else self.command("--resume", "--yes", stage.name)
        return self._make_result(stage, "skip", reason, stops=not optional, advice=advice)

    # --- running ---

    def _mark_started(self, stage: BringupStage) -> Result:
        start = time.monotonic()
        self.journal.begin(stage.name, setup=self.setup)
        try:
            result = self._run_doctor(stage) if stage.name == DOCTOR else self._run_commands(stage)
        except BaseException:
            self.journal.end(stage.name, "interrupted", setup=self.setup)
            raise
        seconds = result.measure["seconds"] = round(time.monotonic() - start, 1)
        self.journal.end(
            stage.name,
            result.status,
            setup=self.setup,
            tiers=",".join(self.target.tiers),
            reason=result.reason[:200],
            seconds=str(seconds),
        )
        return result

    def _run_doctor(self, stage: BringupStage) -> Result:
        """Return every finding as a result. The first finding after which no tier is usable is the first cause."""
        findings = self.look()
        blocking = find_blocking_findings(findings)
        report = Report("bring-up doctor", device={"simulated": self.target.spec.simulated})
        report.results = [
            Result(
                finding.id,
                "finding",
                "fail" if finding in blocking else "skip",
                reason=finding.title,
                cause=finding.why,
                advice=finding.next,
            )
            for finding in findings
        ]
        write_text(self.folder / f"{stage.name}.json", report.to_json())
        for finding in findings:
            self.say(f"{'':<13} {finding.severity:<8} {finding.title}")
        bad = next((result for result in report.results if result.status == "fail"), None)
        if bad is None:
            count = f"{len(findings)} finding{'s' * (len(findings) > 1)}" if findings else "nothing found"
            return self._make_result(stage, "pass", count)
        return self._make_result(stage, "fail", f"{bad.id}: {bad.reason}", cause=bad.cause, advice=bad.advice)

    def _run_commands(self, stage: BringupStage) -> Result:
        words = stage.words(self.target)
        path = self.folder / f"{stage.name}.json"
        path.unlink(missing_ok=True)
        earlier = self.earlier.get(stage.name)
        text = f"stage {NAMES.index(stage.name) + 1} of {len(NAMES)}: {stage.name}"
        code = self.run(words, path, text, earlier.seconds if earlier else 0.0)
        rows = read_results(path)
        shown = f"zinc-rt {' '.join(words)}"
        if stage.name.startswith("hazard"):
            blame = self._find_blamed_probe(rows)
            if blame is not None:
                return self._make_result(stage, "fail", *blame)
        failed = next((row for row in rows if row.status == "fail"), None)
        if failed is not None:
            return self._make_result(
                stage,
                "fail",
                f"{failed.id}: {failed.reason}",
                cause=failed.cause,
                advice=failed.advice,
                repro=failed.repro or shown,
            )
        if code == 77 and stage.may_block:
            first = next((f"{row.id}: {row.reason}" for row in rows if row.status == "blocked"), "")
            return self._make_result(stage, "blocked", first or "no results to evaluate")
        if code:
            return self._make_result(stage, "fail", f"exit code {code}, and no result gives a reason", repro=shown)
        if stage.name == "hazard-1":
            self.target = replace(
                self.target, tiers=tuple(tier for tier in (T1, T2) if judge_results(rows, tier) == [])
            )
            tiers = ", ".join(self.target.tiers)
            if not tiers:
                return self._make_result(stage, "fail", "no tier passed the tests that models need", repro=shown)
            return self._make_result(stage, "pass", f"{_format_counts(rows)}; {tiers} can run models")
        return self._make_result(stage, "pass", _format_counts(rows))

    def _find_blamed_probe(self, rows: list[Result]) -> tuple[str, str, str] | None:
        """Return the reason, cause and advice for the probe of this stage that crashed the machine."""
        skipped = {row.id for row in rows if row.status == "skip"}
        for name, suspect in self.suspects.items():
            if suspect.reset and name in skipped:
                probe, _, tier = name.partition("/")
                return (
                    f"{name}: the machine was reset while it was running ({suspect.when}); it was not run again",
                    "for the probe's description: zinc-rt pm4-test --list",
                    f"zinc-rt pm4-test --device {self.target.spec.option} -k {probe} --tiers {tier} --hazard 2 "
                    f"--again, or go on without: {self.command('--resume', '--skip', self._find_stage(name))}",
                )
        return None

    def _find_stage(self, name: str) -> str:
        from zinc_rt.probes.registry import PROBES

        hazard = next((probe.hazard for probe in PROBES if probe.id == name.partition("/")[0]), 1)
        return f"hazard-{hazard}"

    def _make_result(
        self, stage: BringupStage, status: Any, reason: str, cause: str = "", advice: str = "", **more: Any
    ) -> Result:
        measure = {"title": stage.title, "simulated": self.target.spec.simulated}
        measure |= {name: more.pop(name) for name in ("stops", "earlier") if name in more}
        path = self.folder / f"{stage.name}.json"
        artifacts = [str(path)] if path.exists() and status not in ("skip",) else []
        if status == "fail" and not advice:
            advice = f"mend that, then {self.command('--resume')}"
        return Result(
            stage.name, "stage", status, reason=reason, cause=cause, advice=advice, measure=measure,
            artifacts=artifacts, **more,
        )  # fmt: skip

    def command(self, *words: str) -> str:
        return " ".join(["zinc-rt bring-up --device", self.target.spec.option, *words])


def find_blocking_findings(findings: list[DoctorFinding]) -> list[DoctorFinding]:
    """Return the findings with severity broken that affect the whole machine or every tier; one usable tier is
    enough to continue.
    """
    broken = [finding for finding in findings if finding.severity == BROKEN]
    lost = {tier for item in broken for tier in item.tiers}
    return [item for item in broken if not item.tiers or lost >= {T1, T2}]


def _format_counts(rows: list[Result]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def _format_reason(result: Result) -> str:
    return f": {result.reason}" if result.reason else ""
