"""The nightly run: one failing stage hides no other, kill -9 anywhere loses one stage at most, surprises fail."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as Xml

import pytest
import yaml

CI = Path(__file__).resolve().parents[2] / "ci"
EXPECTED = {
    "schema": "zinc-rt-expectations/1",
    "chip": "gfx1201",
    "simulated": True,
    "stages": {name: {"required": True, "at_least": 1} for name in ("first", "second", "third")},
    "may": {"blocked": {"second/speed": "needs hardware"}, "fail": {}, "skip": {}},
    "verdicts": {},
}
# A stage's command: writes its report after `wait` seconds, or does as `how` says.
WORK = """\
import json, sys, time, os
stage, how, wait = sys.argv[1:4]
with open("ran", "a") as file: file.write(stage + "\\n")
count = os.environ["NIGHT_COUNT"]
with open(count, "a") as file: file.write(stage + "\\n")
time.sleep(float(wait))
status = {"pass": "pass", "fail": "fail"}.get(how, "pass")
results = [{"id": stage + "/one", "status": status, "reason": "as told"}]
if how == "blocked": results.append({"id": stage + "/speed", "status": "blocked", "reason": "none"})
if how == "surprise": results.append({"id": stage + "/other", "status": "skip", "reason": "gone"})
if how == "crash": raise SystemExit("the stage fell over")
if how != "silent":
    with open("work.json", "w") as file: json.dump({"command": "work", "results": results}, file)
sys.exit(how == "fail")
"""
DRIVER = """\
import sys
sys.path.insert(0, {ci!r})
import nightly, nightly_stages
def stage(name, how, wait):
    def commands(night):
        return [nightly_stages.Command("work", [sys.executable, {work!r}, name, how, wait])]
    why = lambda night: "zinc-rt {{}} is not built".format(name) if how == "absent" else ""
    return nightly_stages.Stage(name, commands, why, {minutes})
nightly.STAGES = tuple(stage(*row) for row in {rows!r})
nightly.key_of = lambda night, stages, expected: "one key"
nightly.has = lambda *names: list(names)
sys.exit(nightly.main(["--out", {out!r}, "--expect", {expect!r}, *sys.argv[1:]]))
"""


class Nightly:
    """A nightly run of three made-up stages in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.count = folder / "count"
        self.expected = folder / "expected.yaml"
        self.expected.write_text(yaml.safe_dump(EXPECTED))
        (folder / "work.py").write_text(WORK)

    def start(
        self, *how: str, wait: float = 0.0, minutes: float = 1.0, extra: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        rows = [(name, each, str(wait)) for name, each in zip(("first", "second", "third"), how, strict=True)]
        driver = self.folder / "driver.py"
        driver.write_text(
            DRIVER.format(
                ci=str(CI), work=str(self.folder / "work.py"), rows=rows, out=str(self.out),
                expect=str(self.expected), minutes=minutes,
            )
        )  # fmt: skip
        environment = {**os.environ, "NIGHT_COUNT": str(self.count)}
        return subprocess.Popen(
            [sys.executable, str(driver), *extra], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment,
        )  # fmt: skip

    def run(self, *how: str, **options: object) -> tuple[int, str]:
        process = self.start(*how, **options)  # type: ignore[arg-type]
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    @property
    def ran(self) -> list[str]:
        return self.count.read_text().split() if self.count.exists() else []

    def summary(self) -> dict[str, object]:
        return dict(json.loads((self.out / "summary.json").read_text()))


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    return Nightly(tmp_path)


def test_a_good_night_passes_and_says_so_on_one_screen(nightly: Nightly) -> None:
    code, said = nightly.run("pass", "blocked", "pass")
    assert code == 0 and "PASS" in said.splitlines()[-1]
    assert nightly.ran == ["first", "second", "third"]
    screen = (nightly.out / "summary.txt").read_text().splitlines()
    assert len(screen) < 24 and max(map(len, screen)) < 140
    cases = Xml.parse(nightly.out / "junit.xml").getroot()
    assert [case.get("name") for case in cases] == ["first", "second", "third"] and cases.get("failures") == "0"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("fail", "first/one: fail: as told"),
        ("crash", "the stage fell over"),
        ("silent", "exit 0"),
        ("surprise", "first/other: skip: gone"),
        ("absent", "zinc-rt first is not built"),
    ],
)
def test_one_stages_trouble_fails_the_night_and_hides_no_other(nightly: Nightly, how: str, why: str) -> None:
    code, said = nightly.run(how, "pass", "fail")
    assert code == 1
    assert why in said and "third/one: fail" in said
    rows = nightly.summary()["stages"]
    assert isinstance(rows, list)
    assert [row["status"] for row in rows] == ["FAIL", "PASS", "FAIL"]
    assert Xml.parse(nightly.out / "junit.xml").getroot().get("failures") == "2"


def test_a_stage_past_its_time_is_stopped_and_the_next_runs(nightly: Nightly) -> None:
    code, said = nightly.run("pass", "pass", "pass", wait=3.0, minutes=0.01)
    assert code == 1 and said.count("ran longer than") == 3
    assert nightly.ran == ["first", "second", "third"]


def test_what_should_not_pass_yet_and_does_is_reported(nightly: Nightly) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["may"]["fail"] = {"first/one": "issue 12"}
    nightly.expected.write_text(yaml.safe_dump(expected))
    code, said = nightly.run("pass", "pass", "pass")
    assert code == 0 and "mended: first/one passes" in said
    assert nightly.run("fail", "pass", "pass", extra=("--fresh",))[0] == 1, "a stage that passed nothing at all"


def test_fewer_results_than_usual_are_news(nightly: Nightly) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["stages"]["second"]["at_least"] = 2
    nightly.expected.write_text(yaml.safe_dump(expected))
    code, said = nightly.run("pass", "pass", "pass")
    assert code == 1 and "1 results passed, expected 2 or more" in said


@pytest.mark.parametrize("stage", ["first", "second", "third"])
def test_a_run_killed_in_any_stage_goes_on_where_it_was(nightly: Nightly, stage: str) -> None:
    process = nightly.start("pass", "pass", "pass", wait=0.5)
    deadline = time.monotonic() + 60
    while stage not in nightly.ran and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.7)  # had the stage's command outlived it, its report would be there by now
    assert not (nightly.out / stage / "work.json").exists()
    before = nightly.ran
    code, said = nightly.run("pass", "pass", "pass")
    assert code == 0 and "going on with the run of" in said
    finished = ["first", "second", "third"][: before.index(stage)]
    assert said.count("was done already") == len(finished)
    assert nightly.ran[len(before) :] == ["first", "second", "third"][len(finished) :]


def test_a_finished_run_is_followed_by_a_new_one(nightly: Nightly) -> None:
    nightly.run("pass", "pass", "pass")
    code, said = nightly.run("pass", "pass", "pass")
    assert code == 0 and "was done already" not in said and len(nightly.ran) == 6


def test_two_runs_do_not_share_a_folder(nightly: Nightly) -> None:
    process = nightly.start("pass", "pass", "pass", wait=1.0)
    deadline = time.monotonic() + 60
    while not nightly.ran and time.monotonic() < deadline:
        time.sleep(0.01)
    code, said = nightly.run("pass", "pass", "pass")
    assert code == 2 and "another run is using" in said
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("wrong", [("--stages", "fourth"), ("--expect", "gfx9")])
def test_what_is_not_there_is_refused(nightly: Nightly, wrong: tuple[str, str]) -> None:
    assert nightly.run("pass", "pass", "pass", extra=wrong)[0] == 2


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(CI))
    spec = importlib.util.spec_from_file_location("nightly_expected", CI / "nightly_expected.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nightly_expected", made)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("chip", ["sim", "gfx1201"])
def test_every_chips_file_is_read_and_names_only_criteria_there_are(module: ModuleType, chip: str) -> None:
    from zinc_rt.perf.milestones import milestones

    expected = module.load(chip)
    criteria = {each.name for milestone in milestones() for each in milestone.criteria}
    assert set(expected.may["blocked"]) <= criteria
    assert set(expected.verdicts) == {"M0", "M1", "M2"} and expected.simulated == (chip == "sim")
    assert set(expected.required) == {"probes", "validate", "replay", "perf", "gates"}


def test_expectations_without_a_reason_are_refused(module: ModuleType, tmp_path: Path) -> None:
    spoilt = tmp_path / "x.yaml"
    spoilt.write_text(yaml.safe_dump({**EXPECTED, "may": {"fail": {"first/*": ""}}}))
    with pytest.raises(module.Unusable, match="reason"):
        module.load(str(spoilt))


def test_the_workflow_runs_what_there_is() -> None:
    text = (CI.parent / ".github" / "workflows" / "nightly.yml").read_text()
    workflow = yaml.safe_load(text)
    assert set(workflow["jobs"]) == {"simulator", "hardware"}
    assert "nightly --device sim" in text and "self-hosted" in text
    uploads = [
        step for job in workflow["jobs"].values() for step in job["steps"] if "artifact" in step.get("uses", "")
    ]
    assert len(uploads) == 2 and all(step["if"] == "always()" for step in uploads)


def test_a_night_takes_25_minutes_at_most() -> None:
    program = "import nightly_stages; print(sum(stage.minutes for stage in nightly_stages.STAGES))"
    done = subprocess.run([sys.executable, "-c", program], cwd=CI, capture_output=True, text=True, check=True)
    assert float(done.stdout) <= 25


def test_the_command_is_one_of_run_py() -> None:
    done = subprocess.run(
        [sys.executable, CI / "nightly.py", "--help"], capture_output=True, text=True, check=True
    )
    assert "exit codes:" in done.stdout and textwrap.dedent(done.stdout)
