"""A walk asks before each stage, stops at the first failure, and goes on after a reset without the culprit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from zinc_rt.cli.command import READER_GONE
from zinc_rt.cli.report import Report, Result
from zinc_rt.doctor.bringup import command
from zinc_rt.doctor.bringup.earlier_walks import read_earlier_walks
from zinc_rt.doctor.bringup.stages import NAMES, STAGES, BringupStage, BringupTarget
from zinc_rt.doctor.bringup.walk import Walk
from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal, Suspect
from zinc_rt.probes.output.passed import NEEDED

CARD = DeviceSpec(render_path="/dev/dri/renderD128")


class PowerCut(BaseException):
    """The machine crashed: nothing after this runs."""


def probe_rows(*failed: str, skipped: tuple[str, ...] = (), tiers: tuple[str, ...] = ("t1", "t2")) -> list[Result]:
    rows = []
    for name in [f"{probe}/{tier}" for tier in tiers for probe in (*NEEDED, "P44")]:
        status = "fail" if name in failed else "skip" if name in skipped else "pass"
        row = Result(
            name, "probe", status, tier=name[-2:], reason="it did not", cause="the EOP buffer", advice="map it"
        )  # type: ignore[arg-type]
        row.repro = f"zinc-rt-pm4-test -k {name[:3]}"
        rows.append(row)
    return rows


@dataclass
class Machine:
    """Fake results of stages; `ran` lists the stages that ran. `dies`: the stage that crashes the machine."""

    folder: Path
    answers: dict[str, list[Result]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    findings: list[DoctorFinding] = field(default_factory=list)
    consent: Callable[[BringupStage], bool | None] = lambda stage: True
    dies: str = ""
    boot: str = "first"
    setup: str = "kernel 1"
    suspects: dict[str, Suspect] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    progress: dict[str, tuple[str, float]] = field(default_factory=dict)

    def run(self, words: list[str], path: Path, text: str, seconds: float) -> int:
        self.progress[path.stem] = (text, seconds)
        stage = path.stem
        self.ran.append(stage)
        if stage == self.dies:
            raise PowerCut
        rows = self.answers.get(
            stage, probe_rows() if stage.startswith("hazard") else [Result("x", "check", "pass")]
        )
        path.write_text(Report(words[0], results=rows).to_json())
        return self.codes.get(stage, int(any(row.status == "fail" for row in rows)))

    def walk(self, **more: object) -> list[Result]:
        journal = Journal(self.folder / "stages.journal", CARD.option, boot=self.boot)
        spec = more.pop("spec", CARD)
        walk = Walk(
            BringupTarget(spec, lit=more.pop("lit", ())), self.folder, journal, self.setup, self.run, self.consent,
            lambda: self.findings, self.suspects, say=self.said.append, **more,
        )  # type: ignore[arg-type]  # fmt: skip
        end = journal.end
        journal.end = lambda *a, **k: None if a[1:2] == ("interrupted",) else end(*a, **k)  # type: ignore[method-assign]
        return list(walk.results())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def statuses_by_id(results: list[Result]) -> dict[str, str]:
    return {result.id: result.status for result in results}


def test_good_card_is_walked_to_the_end(machine: Machine) -> None:
    assert statuses_by_id(machine.walk()) == dict.fromkeys(NAMES, "pass")
    assert machine.ran == list(NAMES[1:])


def test_each_stage_describes_its_risks_and_requests_consent(machine: Machine) -> None:
    asked: list[str] = []

    def record_consent(stage: BringupStage) -> bool:
        asked.append(stage.name)
        assert any("can happen" in line and stage.can_happen in line for line in machine.said[-3:])
        assert any("may be lost" in line and stage.lost in line for line in machine.said[-3:])
        return True

    machine.consent = record_consent
    machine.walk(lit=("DP-1",))
    assert asked == list(NAMES[1:]) and any("This GPU drives DP-1" in line for line in machine.said)


@pytest.mark.parametrize(
    ("answer", "message"), [(None, "no terminal to ask: --yes hazard-1 consents"), (False, "declined")]
)
def test_walk_without_consent_stops_and_prints_next_command(
    machine: Machine, answer: bool | None, message: str
) -> None:
    machine.consent = lambda stage: answer if stage.name == "hazard-1" else True
    results = machine.walk()
    assert statuses_by_id(results) == {"doctor": "pass", "hazard-0": "pass", "hazard-1": "skip"}
    assert results[-1].reason == message and machine.ran == ["hazard-0"]
    assert results[-1].advice == "zinc-rt bring-up --device /dev/dri/renderD128 --resume --yes hazard-1"


def test_hazard_2_needs_consent_and_does_not_block_later_stages(machine: Machine) -> None:
    machine.consent = lambda stage: None if stage.name == "hazard-2" else True
    results = machine.walk()
    assert statuses_by_id(results)["hazard-2"] == "skip" and results[-1].id == "gates"
    assert "hazard-2" not in machine.ran


def test_simulated_device_needs_the_same_consent(machine: Machine) -> None:
    machine.consent = lambda stage: None
    results = machine.walk(spec=DeviceSpec(simulated=True))
    assert [result.status for result in results] == ["pass", "skip"] and machine.ran == []
    machine.consent = lambda stage: True
    results = machine.walk(spec=DeviceSpec(simulated=True))
    assert all(result.measure["simulated"] for result in results) and results[-1].id == "gates"
    assert any("SIMULATED" in line for line in machine.said)


def test_progress_names_the_stage_and_expects_the_time_of_the_last_run(machine: Machine) -> None:
    machine.walk(up_to="hazard-0")
    assert machine.progress == {"hazard-0": ("stage 2 of 7: hazard-0", 0.0)}
    path = machine.folder / "stages.journal"
    path.write_text(path.read_text().replace('"seconds": "0.0"', '"seconds": "41.5"'))
    machine.walk(up_to="hazard-0")
    assert machine.progress == {"hazard-0": ("stage 2 of 7: hazard-0", 41.5)}


def test_closed_pipe_is_an_interruption_not_a_failure(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], READER_GONE)
    monkeypatch.setattr(command.subprocess, "run", lambda *args, **options: ended)
    machine.run = lambda words, path, text, seconds: command._run(words, path, text, seconds, quiet=False)  # type: ignore[method-assign]
    with pytest.raises(BrokenPipeError):
        machine.walk()
    journal = Journal(machine.folder / "stages.journal", CARD.option, boot="first")
    assert (
        read_earlier_walks(journal)["hazard-0"].status == "" and not read_earlier_walks(journal)["hazard-0"].reset
    )


def test_failure_ends_walk_with_first_cause_and_next_command(machine: Machine) -> None:
    machine.answers["hazard-1"] = probe_rows("P20/t1", "P33/t1")
    results = machine.walk()
    last = results[-1]
    assert (last.id, last.status, last.reason) == ("hazard-1", "fail", "P20/t1: it did not")
    assert (last.cause, last.advice, last.repro) == ("the EOP buffer", "map it", "zinc-rt-pm4-test -k P20")
    assert machine.ran == ["hazard-0", "hazard-1"]


def test_broken_doctor_verdict_ends_walk_before_gpu_access(machine: Machine) -> None:
    machine.findings = [
        DoctorFinding("aspm", "warning", "ASPM is on", "", ""),
        DoctorFinding("no-kfd", "broken", "there is no /dev/kfd", "the module is not loaded", "modprobe amdgpu"),
    ]
    [result] = machine.walk()
    assert result.status == "fail" and result.reason == "no-kfd: there is no /dev/kfd"
    assert (result.cause, result.advice) == ("the module is not loaded", "modprobe amdgpu") and not machine.ran
    report = json.loads((machine.folder / "doctor.json").read_text())
    assert [row["id"] for row in report["results"]] == ["aspm", "no-kfd"]


def test_one_passing_tier_is_enough_to_continue(machine: Machine) -> None:
    machine.findings = [DoctorFinding("userq", "broken", "user queues are off", "", "", ("t2",))]
    assert machine.walk(up_to="hazard-0")[-1].status == "pass"
    machine.findings += [DoctorFinding("kfd", "broken", "KFD hides the GPU", "", "", ("t1",))]
    [result] = machine.walk(up_to="hazard-0")
    assert result.status == "fail" and result.reason == "userq: user queues are off"


def test_models_run_only_on_tiers_that_passed_required_probes(machine: Machine) -> None:
    machine.answers["hazard-1"] = probe_rows(skipped=tuple(f"{name}/t2" for name in NEEDED))
    lines: list[list[str]] = []
    run = machine.run
    machine.run = lambda words, *more: (lines.append(words), run(words, *more))[1]  # type: ignore[method-assign]
    machine.walk()
    assert [line[line.index("--tiers") + 1] for line in lines if line[0] == "validate"] == ["t1", "t1,t_cpu"]


def test_missing_tiers_or_a_stage_without_output_is_a_failure(machine: Machine) -> None:
    machine.answers["hazard-1"] = probe_rows(skipped=tuple(f"{n}/{t}" for n in NEEDED for t in ("t1", "t2")))
    assert machine.walk()[-1].reason == "no tier passed the tests that models need"
    machine.answers = {"first-kernel": []}
    machine.codes = {"first-kernel": -11}
    last = machine.walk()[-1]
    assert (last.id, last.status) == ("first-kernel", "fail") and "exit code -11" in last.reason


def test_gates_waiting_for_evidence_are_not_failures(machine: Machine) -> None:
    machine.answers["gates"] = [Result("M0/laptop", "gate", "blocked", reason="needs a statement")]
    machine.codes["gates"] = 77
    last = machine.walk()[-1]
    assert (last.status, last.reason) == ("blocked", "M0/laptop: needs a statement")


def test_resume_runs_only_stages_not_passed_on_this_setup(machine: Machine) -> None:
    machine.walk(up_to="hazard-1")
    machine.ran.clear()
    results = machine.walk(resume=True, up_to="first-kernel")
    assert machine.ran == ["hazard-2", "first-kernel"]
    assert "passed already" in results[1].reason and results[1].measure["earlier"]
    machine.ran.clear()
    machine.setup = "kernel 2"
    machine.walk(resume=True, up_to="hazard-1")
    assert machine.ran == ["hazard-0", "hazard-1"], "another kernel starts anew"


def test_probe_that_crashed_the_machine_is_blamed_and_not_rerun(machine: Machine) -> None:
    machine.dies = "hazard-1"
    with pytest.raises(PowerCut):
        machine.walk()
    machine.dies, machine.boot = "", "second"
    machine.suspects = {"P27/t1": Suspect("P27/t1", "card", "2026-11-22 15:00:00", True)}
    machine.answers["hazard-1"] = probe_rows(skipped=("P27/t1",))  # as pm4-test's own journal has it
    last = machine.walk(resume=True)[-1]
    assert (last.id, last.status) == ("hazard-1", "fail")
    assert (
        last.reason.startswith("P27/t1: the machine was reset while it was running")
        and "not run again" in last.reason
    )
    assert "-k P27 --tiers t1 --hazard 2 --again" in last.advice and "--resume --skip hazard-1" in last.advice


def test_model_that_crashed_the_machine_is_not_rerun_without_consent(machine: Machine) -> None:
    machine.dies = "first-model"
    with pytest.raises(PowerCut):
        machine.walk()
    machine.dies, machine.boot = "", "second"
    assert read_earlier_walks(Journal(machine.folder / "stages.journal", CARD.option, boot="second"))[
        "first-model"
    ].reset
    machine.ran.clear()
    last = machine.walk(resume=True)[-1]
    assert last.status == "fail" and "not run again unless requested" in last.reason and not machine.ran
    assert last.advice == "zinc-rt bring-up --device /dev/dri/renderD128 --resume --again"
    assert machine.walk(resume=True, again=True)[-1].id == "gates"


def test_interrupted_walk_resumes(machine: Machine) -> None:
    machine.dies = "first-kernel"
    with pytest.raises(PowerCut):
        machine.walk()
    machine.dies = ""
    assert machine.walk(resume=True)[-1].id == "gates"


def test_stage_can_be_skipped(machine: Machine) -> None:
    results = machine.walk(skip={"hazard-2"})
    assert (
        statuses_by_id(results)["hazard-2"] == "skip"
        and "hazard-2" not in machine.ran
        and len(results) == len(STAGES)
    )


def test_hazard_2_runs_only_its_probes_and_forces_only_on_lit_display() -> None:
    stage = STAGES[NAMES.index("hazard-2")]
    dark, lit = stage.words(BringupTarget(CARD)), stage.words(BringupTarget(CARD, lit=("DP-1",)))
    assert "P42,P43,P44,P45,P55" in dark and "--force" not in dark and lit[-1] == "--force"
    assert "--force" not in STAGES[NAMES.index("hazard-1")].words(BringupTarget(CARD, lit=("DP-1",)))
