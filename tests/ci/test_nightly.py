"""The nightly run: one failing stage hides no other, kill -9 anywhere loses one stage at most, surprises fail."""

from __future__ import annotations

import importlib
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
results = [{"id": stage + "/one", "status": status, "reason": "as told", "measure": {"seconds": 1.5}}]
if how == "blocked": results.append({"id": stage + "/speed", "status": "blocked", "reason": "none"})
if how == "surprise": results.append({"id": stage + "/other", "status": "skip", "reason": "gone"})
if how == "headline": results[0]["measure"]["headline"] = "killed 9 of 10"
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
        return [nightly_stages.StageCommand("work", [sys.executable, {work!r}, name, how, wait])]
    why = lambda night: "zinc-rt {{}} is not built".format(name) if how == "absent" else ""
    return nightly_stages.NightlyStage(name, commands, why, {minutes})
nightly.STAGES = tuple(stage(*row) for row in {rows!r})
nightly.key_of = lambda night, stages, expected: "one key"
nightly.missing_modules = lambda *names: list(names)
if {card!r}:
    import nightly_card
    nightly_card.check_command = lambda night: ["sh", {card!r}]
    nightly.no_gpu = lambda: False
sys.exit(nightly.main(["--out", {out!r}, "--expect", {expect!r}, *sys.argv[1:]]))
"""


class Nightly:
    """A nightly run of three fake stages in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.count = folder / "count"
        self.expected = folder / "expected.yaml"
        self.expected.write_text(yaml.safe_dump(EXPECTED))
        (folder / "work.py").write_text(WORK)

    def start(
        self, *how: str, wait: float = 0.0, minutes: float = 1.0, card: str = "", extra: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        rows = [(name, item, str(wait)) for name, item in zip(("first", "second", "third"), how, strict=True)]
        driver = self.folder / "driver.py"
        driver.write_text(
            DRIVER.format(
                ci=str(CI), work=str(self.folder / "work.py"), rows=rows, out=str(self.out),
                expect=str(self.expected), minutes=minutes, card=card,
            )
        )  # fmt: skip
        environment = {**os.environ, "NIGHT_COUNT": str(self.count)}
        return subprocess.Popen(
            [sys.executable, str(driver), *extra], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment,
        )  # fmt: skip

    def run(self, *how: str, **options: object) -> tuple[int, str]:
        process = self.start(*how, **options)  # type: ignore[arg-type]
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    @property
    def executed_stages(self) -> list[str]:
        return self.count.read_text().split() if self.count.exists() else []

    def read_summary(self) -> dict[str, object]:
        return dict(json.loads((self.out / "summary.json").read_text()))


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    return Nightly(tmp_path)


@pytest.mark.rest
def test_clean_run_passes_and_summary_fits_one_screen(nightly: Nightly) -> None:
    code, output = nightly.run("pass", "blocked", "pass")
    assert code == 0 and "PASS" in output.splitlines()[-1]
    assert nightly.executed_stages == ["first", "second", "third"]
    screen = (nightly.out / "summary.txt").read_text().splitlines()
    assert len(screen) < 24 and max(map(len, screen)) < 140
    suites = Xml.parse(nightly.out / "junit.xml").getroot()
    assert [case.get("name") for case in suites[0]] == ["first", "second", "third"]
    assert suites.get("failures") == "0"
    second = next(suite for suite in suites if suite.get("name") == "nightly.second [SIMULATED]")
    assert [(case.get("name"), case.get("time")) for case in second] == [
        ("one [SIMULATED]", "1.500"), ("speed [SIMULATED]", "0.000"),
    ]  # fmt: skip
    assert second[1][0].get("message") == "blocked: none"
    assert "on a SIMULATED device" in output.splitlines()[-1]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fail", "first/one: fail: as told"),
        ("crash", "the stage fell over"),
        ("silent", "exit 0"),
        ("surprise", "first/other: skip: gone"),
        ("absent", "zinc-rt first is not built"),
    ],
)
@pytest.mark.rest(keep=1)
def test_failing_stage_fails_the_run_without_hiding_other_stages(nightly: Nightly, how: str, reason: str) -> None:
    code, output = nightly.run(how, "pass", "fail")
    assert code == 1
    assert reason in output and "third/one: fail" in output
    rows = nightly.read_summary()["stages"]
    assert isinstance(rows, list)
    assert [row["status"] for row in rows] == ["FAIL", "PASS", "FAIL"]
    suites = Xml.parse(nightly.out / "junit.xml").getroot()
    assert suites[0].get("failures") == "2"
    third = next(suite for suite in suites if suite.get("name") == "nightly.third [SIMULATED]")
    assert third[0][0].get("message") == "fail: as told"


@pytest.mark.rest
def test_stage_exceeding_its_timeout_is_stopped_and_next_stage_runs(nightly: Nightly) -> None:
    code, output = nightly.run("pass", "pass", "pass", wait=100.0, minutes=0.005)
    assert code == 1 and output.count("ran longer than") == 3
    extra = ("--patience", "100", "--fresh")
    assert nightly.run("pass", "pass", "pass", wait=1.0, minutes=0.01, extra=extra)[0] == 0
    assert nightly.executed_stages == ["first", "second", "third"] * 2


def test_load_of_the_machine_stretches_a_stage_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CI))
    module = importlib.import_module("nightly")
    monkeypatch.setattr(module, "processors", lambda: 2)
    monkeypatch.setattr(module, "load_average", lambda: 200.0)
    limit = module.TimeLimit(0.02)
    with subprocess.Popen(["sleep", "0.2"]) as process:
        assert limit.wait(process) == 0, "2 s at a hundredth of the machine"
    assert 0 < limit.seconds < 0.02
    monkeypatch.setattr(module, "load_average", lambda: 0.5)
    with subprocess.Popen(["sleep", "100"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            limit.wait(process)
        process.kill()
    assert limit.seconds <= 0, "commands of a stage share its limit"


def test_bundle_that_takes_too_long_does_not_end_the_night(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(CI))
    module = importlib.import_module("nightly")
    monkeypatch.setattr(module, "PAGE_SECONDS", 0.05)
    monkeypatch.setattr(module, "load_average", lambda: 0.0)
    monkeypatch.setattr(module, "missing_modules", lambda *names: [])
    monkeypatch.setattr(module, "zinc_command", lambda *words: ["sleep", "100"])
    night = module.Night("sim", tmp_path, tmp_path)
    module.archive_reports(night, None)
    module.write_page(night)
    errors = capsys.readouterr().err
    assert errors.count("ran longer than") == 2 and "no bundle was kept" in errors


@pytest.mark.rest
def test_expected_failure_that_passes_fails_the_run(nightly: Nightly) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["may"]["fail"] = {"first/one": "issue 12"}
    nightly.expected.write_text(yaml.safe_dump(expected))
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 1 and "first/one passes, and expected.yaml allows fail: remove the row" in output
    assert nightly.run("fail", "pass", "pass", extra=("--fresh",))[0] == 1, "a stage that passed nothing at all"


def test_fewer_results_than_usual_are_reported(nightly: Nightly) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["stages"]["second"]["at_least"] = 2
    nightly.expected.write_text(yaml.safe_dump(expected))
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 1 and "1 results passed, expected 2 or more" in output


@pytest.mark.parametrize("stage", ["first", "second", "third"])
@pytest.mark.rest
def test_run_killed_in_any_stage_resumes_at_that_stage(nightly: Nightly, stage: str) -> None:
    process = nightly.start("pass", "pass", "pass", wait=0.5)
    deadline = time.monotonic() + 60
    while stage not in nightly.executed_stages and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.7)  # had the stage's command outlived it, its report would be there by now
    assert not (nightly.out / stage / "work.json").exists()
    before = nightly.executed_stages
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 0 and "resuming the run of" in output
    finished = ["first", "second", "third"][: before.index(stage)]
    assert output.count("is already finished") == len(finished)
    assert nightly.executed_stages[len(before) :] == ["first", "second", "third"][len(finished) :]


@pytest.mark.rest
def test_start_after_a_finished_run_creates_a_new_run(nightly: Nightly) -> None:
    nightly.run("pass", "pass", "pass")
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 0 and "is already finished" not in output and len(nightly.executed_stages) == 6


@pytest.mark.rest
def test_two_runs_do_not_share_a_folder(nightly: Nightly) -> None:
    process = nightly.start("pass", "pass", "pass", wait=1.0)
    deadline = time.monotonic() + 60
    while not nightly.executed_stages and time.monotonic() < deadline:
        time.sleep(0.01)
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 2 and "another run is using" in output
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("path", [("--stages", "fourth"), ("--expect", "gfx9")])
def test_missing_paths_are_rejected(nightly: Nightly, path: tuple[str, str]) -> None:
    assert nightly.run("pass", "pass", "pass", extra=path)[0] == 2


@pytest.fixture
def nightly_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(CI))
    spec = importlib.util.spec_from_file_location("nightly_judge", CI / "nightly_judge.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "nightly_judge", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("chip", ["sim", "gfx1201"])
def test_every_chip_expectation_file_loads_and_names_existing_criteria(
    nightly_module: ModuleType, chip: str
) -> None:
    from zinc_rt.perf.gate.milestones import load_milestones

    expected = nightly_module.load(chip)
    criteria = {criterion.name for milestone in load_milestones() for criterion in milestone.criteria}
    assert set(expected.may["blocked"]) <= criteria
    assert set(expected.verdicts) == {f"M{number}" for number in range(9)} and expected.simulated == (
        chip == "sim"
    )
    assert set(expected.required) == {
        *(
            "probes",
            "validate",
            "serving",
            "clients",
            "outside",
            "lavapipe",
            "vulkan",
            "radv",
            "replay",
            "perf",
            "gates",
        ),
    }


def test_expectations_without_a_reason_are_rejected(nightly_module: ModuleType, tmp_path: Path) -> None:
    spoilt = tmp_path / "x.yaml"
    spoilt.write_text(yaml.safe_dump({**EXPECTED, "may": {"fail": {"first/*": ""}}}))
    with pytest.raises(nightly_module.UnusableExpectations, match="reason"):
        nightly_module.load(str(spoilt))


def set_flake_rate(nightly: Nightly, rate: float = 0.3) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["flakes"] = {"first/*": {"rate": rate, "reason": "a race in the driver"}}
    expected["stages"]["first"]["at_least"] = 0
    nightly.expected.write_text(yaml.safe_dump(expected))


@pytest.mark.rest
def test_flake_is_reported_and_fails_only_above_its_rate(nightly: Nightly) -> None:
    set_flake_rate(nightly)
    code, output = nightly.run("fail", "pass", "pass")
    assert code == 0 and "flake: first/one: failed in 1 of 1 nights, expected 30%" in output
    assert nightly.run("pass", "pass", "pass")[0] == 0
    assert json.loads((nightly.out / "flakes.json").read_text()) == {"first/one": [2, 1]}
    (nightly.out / "flakes.json").write_text('{"first/one": [9, 8]}')
    code, output = nightly.run("fail", "pass", "pass")
    assert code == 1 and "failed in 9 of 10 nights, expected 30%" in output


def test_flake_that_no_longer_fails_is_reported_as_fixed(nightly: Nightly) -> None:
    set_flake_rate(nightly)
    (nightly.out).mkdir()
    (nightly.out / "flakes.json").write_text('{"first/one": [20, 0]}')
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 0 and "fixed: first/one: failed in 0 of 21 nights" in output


@pytest.mark.parametrize(
    ("nights", "failures", "too_many"), [(1, 1, False), (2, 2, True), (50, 5, False), (50, 9, True)]
)
def test_allowed_failure_count_follows_from_rate(
    nightly_module: ModuleType, nights: int, failures: int, too_many: bool
) -> None:
    assert nightly_module.Flake(0.06, "known").exceeds_rate(nights, failures) is too_many


@pytest.mark.parametrize(
    "flake", [{"rate": 0.0, "reason": "x"}, {"rate": 1.5, "reason": "x"}, {"rate": 0.1, "reason": ""}]
)
def test_flake_requires_a_rate_and_a_reason(
    nightly_module: ModuleType, flake: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump({**EXPECTED, "flakes": {"a/*": flake}}))
    with pytest.raises(nightly_module.UnusableExpectations, match="rate"):
        nightly_module.load(str(path))


def test_runnable_speed_criterion_that_did_not_run_is_a_failure(nightly_module: ModuleType) -> None:
    expected = nightly_module.load("gfx1201")
    blocked = {
        "id": "M1/decode",
        "status": "blocked",
        "reason": "needs gfx1201 hardware (R9700); b.json refused: drift",
    }
    assert expected.judge("gates", [blocked], whole=False).wrong == []
    wrong = expected.judge("gates", [blocked], whole=False, could={"M1/decode"}).wrong
    assert wrong == [f"M1/decode: could have run but has no result: {blocked['reason']}"]


SPEEDS = """\
import sys; sys.path.insert(0, {ci!r})
from pathlib import Path
import nightly_stages
real = dict(architecture="qwen35moe", size_bytes=21*10**9, layers=40, width=2048, vocab=248320,
            parameters=34_660_000_000, weights=dict(q4_k=20_900_000_000))
dense = dict(real, architecture="qwen3", layers=36, width=4096, vocab=151936, parameters=8_190_000_000,
             weights=dict(q4_k=4_900_000_000), size_bytes=5*10**9)
toy = dict(real, layers=4)
nightly_stages.shutil.which = lambda name: {peer!r}
models = {{Path("big.gguf"): real, Path("dense.gguf"): dense, Path("toy.gguf"): toy}}
for each in nightly_stages.required_speeds(models):
    print(each.name, each.ctx, ",".join(each.shows), "|", " ".join(each.words()))
"""


@pytest.mark.rest
@pytest.mark.parametrize("peer", ["/usr/bin/llama-bench", None])
def test_named_model_is_measured_for_every_speed_of_its_class(peer: str | None) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SPEEDS.format(ci=str(CI), peer=peer)], capture_output=True, text=True, check=True
    )
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert set(lines) == {
        "bench-big-t1", "bench-big-t1-4slots", "bench-big-t1-16slots", "bench-big-t1-64slots", "bench-big-t2",
        "bench-big-t2-4slots", "bench-big-t2-16slots", "bench-big-t2-64slots", "bench-dense-t1",
        *(["bench-big-t2-peer"] if peer else []),
    }  # fmt: skip
    assert (
        "M1/decode,M3/decode,M4/decode,M4/prefill" in lines["bench-big-t2"] and " 4096 " in lines["bench-big-t2"]
    )
    assert "M2/prefill-dense" in lines["bench-dense-t1"]
    assert "--slots 16" in lines["bench-big-t2-16slots"]
    if peer:
        assert "--vs llama-bench -m big.gguf -p 0 -n 128 -r 1 -o json" in lines["bench-big-t2-peer"]


@pytest.mark.rest
def test_non_model_file_is_rejected(nightly: Nightly, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    code, output = nightly.run("pass", "pass", "pass", extra=("--model", str(tmp_path / "m.gguf")))
    assert code == 2 and "m.gguf" in output and "Traceback" not in output
    code, output = nightly.run("pass", "pass", "pass", extra=("--model", str(tmp_path / "no.gguf")))
    assert code == 2 and "no.gguf" in output


def test_hardware_run_does_not_start_without_a_card(nightly: Nightly) -> None:
    from zinc_rt.engine.devices import find_amd_gpus

    if find_amd_gpus():
        pytest.skip("this machine has an AMD GPU")
    code, output = nightly.run("pass", "pass", "pass", extra=("--device", "hw"))
    assert code == 77 and "no AMD GPU" in output and nightly.executed_stages == []


def test_history_missing_the_previous_head_fails(nightly: Nightly) -> None:
    nightly.out.mkdir()
    (nightly.out / "heads.txt").write_text("2026-11-22T01:00:00+00:00 sim " + "ab" * 32 + "\n")
    (nightly.out / "history-sim.jsonl").write_text("")
    code, output = nightly.run("pass", "pass", "pass")
    assert code == 1 and "does not contain the head abababababababab of an earlier night" in output
    assert nightly.read_summary()["history_lost"] == "ab" * 32


@pytest.mark.parametrize("recovers", [True, False, None])
def test_hung_card_is_recovered_or_its_stages_are_skipped_with_the_reason(
    nightly: Nightly, *, recovers: bool | None
) -> None:
    """The card hangs in the second stage. `recovers`: the command does it, or not; None: there is no command."""
    card, hung = nightly.folder / "card.sh", nightly.folder / "hung"
    card.write_text(f"grep -q second {nightly.count} && test ! -e {hung} && echo no fence && exit 1\nexit 0\n")
    command = ["--recover", f"touch {hung}" if recovers else "true"] if recovers is not None else []
    code, output = nightly.run("pass", "pass", "pass", card=str(card), extra=("--device", "hw", *command))
    assert code == 1 and "the card does not answer after stage second: exit 1: no fence" in output
    rows = nightly.read_summary()["stages"]
    assert isinstance(rows, list) and [row["status"] for row in rows[:2]] == ["PASS", "FAIL"]
    if recovers:
        assert rows[2]["status"] == "PASS" and "recovered with `touch" in output
    else:
        assert nightly.executed_stages == ["first", "second"] and "the card does not answer" in rows[2]["why_not"]
        assert ("did not recover with `true`" if recovers is False else "no --recover command is set") in output


def test_skipped_required_stage_fails_the_run(nightly: Nightly) -> None:
    expected = json.loads(json.dumps(EXPECTED))
    expected["stages"]["second"]["required"] = False
    nightly.expected.write_text(yaml.safe_dump(expected))
    assert nightly.run("pass", "absent", "pass")[0] == 0
    code, output = nightly.run("pass", "absent", "pass", extra=("--require", "second"))
    assert code == 1 and "zinc-rt second is not built" in output


def test_workflow_runs_existing_commands() -> None:
    text = (CI.parent / ".github" / "workflows" / "nightly.yml").read_text()
    workflow = yaml.safe_load(text)
    assert set(workflow["jobs"]) == {"simulator", "tests", "hardware"}
    assert "nightly-step run" in text and "self-hosted" in text
    uploads = [
        step for job in workflow["jobs"].values() for step in job["steps"] if "artifact" in step.get("uses", "")
    ]
    assert len(uploads) == 3 and all(step["if"] == "always()" for step in uploads)


def test_nightly_run_takes_at_most_36_minutes() -> None:
    program = "import nightly_stages; print(sum(stage.minutes for stage in nightly_stages.STAGES))"
    result = subprocess.run([sys.executable, "-c", program], cwd=CI, capture_output=True, text=True, check=True)
    assert float(result.stdout) <= 36


MUTANTS = """\
import sys; sys.path.insert(0, {ci!r})
from pathlib import Path
from nightly_stages import STAGES, Night, stage_minutes
stage = next(stage for stage in STAGES if stage.name == "mutants")
for count in (0, 3):
    night = Night("sim", Path("night"), Path("corpus"), mutants=count)
    print(stage.why_not(night), stage_minutes(stage, night), " ".join(stage.commands(night)[0].argv[2:]))
"""


def test_mutants_of_all_nights_accumulate_in_one_file() -> None:
    program = MUTANTS.format(ci=str(CI))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    none, three = result.stdout.splitlines()
    assert none.startswith("no mutants are asked for: --mutants N 0.0")
    assert three.startswith(" 32.0 --count 3 --seed ") and "--resume night/mutants.json" in three


def test_headline_of_a_result_is_in_the_summary(nightly: Nightly) -> None:
    code, output = nightly.run("pass", "headline", "pass")
    assert code == 0 and "  killed 9 of 10" in output.splitlines()


VULKAN = """\
import sys; sys.path.insert(0, {ci!r})
from pathlib import Path
import nightly_stages
from nightly_stages import Night
def row(option, name, software, status):
    facts = dict(device=option, software=software)
    return dict(id=f"{{option}} {{name}}/vulkan", status=status, reason="no timelines", measure=facts)
cpu = dict(id="cpu/t_cpu", status="pass", measure={{}})
found = nightly_stages.listed_devices(dict(results=[cpu, *(row(*each) for each in {rows!r})]))
nightly_stages.list_devices = lambda: found
night = Night("sim", Path("night"), Path("corpus"), {quick!r}, (Path("big.gguf"),))
for stage in nightly_stages.STAGES:
    if stage.name in ("lavapipe", "vulkan", "radv"):
        why = stage.why_not(night)
        print(stage.name, why or " ".join(command.name for command in stage.commands(night)))
        if not why:
            print(" ".join(stage.commands(night)[-1].argv[3:8]), end="\\n\\n")
"""
LAVAPIPE, CARD = ("vulkan:1", "llvmpipe", True, "pass"), ("vulkan:0", "A card/with a slash", False, "pass")


def vulkan_stages(rows: list[tuple[object, ...]], *, quick: bool = True) -> str:
    program = VULKAN.format(ci=str(CI), rows=rows, quick=quick)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_every_vulkan_device_is_probed_and_validated_against_the_oracle() -> None:
    output = vulkan_stages([CARD, LAVAPIPE])
    assert "lavapipe vulkan1-test vulkan1-qwen3-q\n" in output
    assert "vulkan vulkan0-test vulkan0-qwen3-q vulkan0-big\n" in output
    assert "radv qwen3-q\n" in output and "validate --model big.gguf --tiers vulkan,t_cpu" in output


def test_missing_driver_is_reported_and_radv_code_still_runs() -> None:
    output = vulkan_stages([])
    assert "lavapipe no Vulkan driver in software: apt install mesa-vulkan-drivers libvulkan1" in output
    assert "vulkan no GPU with a Vulkan driver" in output and "radv qwen3-q" in output
    output = vulkan_stages([("vulkan:0", "Old card", False, "fail")])
    assert "vulkan vulkan:0 Old card: no timelines" in output


def test_command_is_listed_in_run_py() -> None:
    result = subprocess.run(
        [sys.executable, CI / "nightly.py", "--help"], capture_output=True, text=True, check=True
    )
    assert "exit codes:" in result.stdout and textwrap.dedent(result.stdout)
