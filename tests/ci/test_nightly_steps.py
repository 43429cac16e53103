"""The steps of the nightly workflow: history kept and signed outside the runner, one issue for a regression, a
bisection, and the job itself as the workflow runs it.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from zinc_rt.perf.history.chain import append_entry, read

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "ci"
TRANSCRIPT = Path(__file__).with_name("nightly_issue.transcript")
needs_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
# A gh that keeps issues in a file, and writes what it was called with to a transcript.
GH = """\
#!{python}
import json, os, sys
folder = os.environ["GH_FOLDER"]
words, body = sys.argv[1:], ""
if "--body-file" in words:
    place = words.index("--body-file")
    body = open(words[place + 1]).read()
    del words[place : place + 2]
with open(folder + "/transcript", "a") as file:
    file.write("$ gh " + " ".join(repr(w) if " " in w else w for w in words) + "\\n" + body)
path = folder + "/issues.json"
issues = json.load(open(path)) if os.path.exists(path) else []
if words[:2] == ["issue", "list"]:
    print(json.dumps([dict(number=each["number"], title=each["title"]) for each in issues if each["open"]]))
elif words[:2] == ["issue", "create"]:
    issues.append(dict(number=len(issues) + 7, title=words[words.index("--title") + 1], body=body, open=True))
    print("https://github.com/o/r/issues/%d" % issues[-1]["number"])
elif words[:2] in (["issue", "edit"], ["issue", "close"]):
    one = next(each for each in issues if each["number"] == int(words[2]))
    one.update(body=body) if words[1] == "edit" else one.update(open=False)
json.dump(issues, open(path, "w"))
"""


@pytest.fixture(autouse=True)
def ci_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CI))
    for name in [name for name in os.environ if name.startswith(("NIGHTLY_", "GITHUB_", "GH_"))]:
        monkeypatch.delenv(name)


def import_step(name: str) -> ModuleType:
    return importlib.import_module(name)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    result = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def create_repository(folder: Path, *subjects: str) -> list[str]:
    """Create a repository with one commit per subject; return its commits, oldest first."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for number, subject in enumerate(subjects):
        (folder / "n").write_text(str(number))
        git(folder, "add", "n")
        env = {
            "GIT_AUTHOR_DATE": f"2026-01-0{number + 1}T00:00:00Z",
            "GIT_COMMITTER_DATE": f"2026-01-0{number + 1}T00:00:00Z",
        }
        subprocess.run(
            ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@localhost",
             "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", subject],
            check=True, env={**os.environ, **env},
        )  # fmt: skip
    return git(folder, "rev-list", "--reverse", "HEAD").splitlines()


def make_summary(out: Path, *, passed: bool, ended: str, unexpected: list[str] | None = None) -> dict[str, Any]:
    """A summary as written by nightly.py."""
    rows = [
        {"stage": "validate", "status": "PASS", "unexpected": []},
        {"stage": "perf", "status": "PASS" if passed else "FAIL", "unexpected": unexpected or []},
    ]
    summary = {
        "finished": True, "exit": 0 if passed else 1, "verdict": "PASS" if passed else "FAIL", "ended": ended,
        "device": "sim", "stages": rows,
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(summary))
    (out / "summary.txt").write_text(f"{summary['verdict']}\n")
    return summary


class Runner:
    """A runner with its own folder and key, and a store outside that folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.store = folder / "store.git"
        git(folder, "init", "--quiet", "--bare", str(self.store))
        self.key = folder / "key"
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
        subprocess.run(line, check=True, stdin=subprocess.DEVNULL)
        self.signer = "sim " + " ".join(self.key.with_suffix(".pub").read_text().split()[:2])
        self.out = folder / "night"
        self.set_variables(NIGHTLY_STORE=str(self.store), NIGHTLY_KEY=str(self.key), NIGHTLY_SIGNERS=self.signer)
        self.set_variables(NIGHTLY_OUT=str(self.out))

    def set_variables(self, **variables: str) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    def run_step(self, name: str) -> int:
        return int(import_step("nightly_steps").main([name]))

    def add_night(self, number: int, *, passed: bool = True) -> None:
        self.out.mkdir(exist_ok=True)
        append_entry(self.out / "history-sim.jsonl", "perf bench", {"night": number}, {"decode": 100.0 + number})
        make_summary(self.out, passed=passed, ended=f"2026-01-0{number}T03:00:00+00:00")

    def stored_files(self) -> dict[str, str]:
        names = git(self.store, "ls-tree", "-r", "--name-only", "nightly-data").splitlines()
        return {name: git(self.store, "show", f"nightly-data:{name}") for name in names}


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    return Runner(tmp_path, monkeypatch)


def test_history_is_kept_over_nights_and_machines(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        assert runner.run_step("restore") == 0
        runner.add_night(number)
        assert runner.run_step("publish") == 0
        shutil.rmtree(runner.out)  # the next night runs on another machine
    stored = runner.stored_files()
    assert len(stored["sim/history.jsonl"].splitlines()) == 3
    assert json.loads(stored["sim/head.json"])["sequence"] == 3
    assert sum(name.startswith("sim/nights/") for name in stored) == 3
    assert runner.run_step("restore") == 0
    assert "sim: 3 entries, the signed head verified" in capsys.readouterr().out
    assert [entry.sequence for entry in read(runner.out / "history-sim.jsonl").entries] == [1, 2, 3]


@pytest.mark.parametrize("edit", ["rewritten", "truncated", "another key", "no head"])
def test_store_that_was_edited_is_refused(runner: Runner, edit: str, capsys: pytest.CaptureFixture[str]) -> None:
    runner.run_step("restore")
    runner.add_night(1)
    runner.add_night(2)
    assert runner.run_step("publish") == 0
    clone = runner.folder / "forger"
    git(runner.folder, "clone", "--quiet", "--branch", "nightly-data", str(runner.store), str(clone))
    history = clone / "sim" / "history.jsonl"
    if edit == "rewritten":
        history.unlink()
        append_entry(history, "perf bench", {"night": 1}, {"decode": 999.0})
    elif edit == "truncated":
        history.write_text(history.read_text().splitlines(keepends=True)[0])
    elif edit == "no head":
        (clone / "sim" / "head.json").unlink()
    else:
        runner.set_variables(NIGHTLY_SIGNERS="sim ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB0" + "A" * 41)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--allow-empty", "-m", "edit")
    git(clone, "push", "--quiet")
    shutil.rmtree(runner.out)
    capsys.readouterr()
    assert runner.run_step("restore") == 1
    errors = capsys.readouterr().err
    assert "the stored history of sim" in errors and "Traceback" not in errors
    assert not (runner.out / "history-sim.jsonl").exists()


def test_contradicting_histories_are_not_merged(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.run_step("restore")
    runner.add_night(1)
    runner.run_step("publish")
    (runner.out / "history-sim.jsonl").unlink()
    runner.add_night(2)
    assert runner.run_step("restore") == 1 and "differ" in capsys.readouterr().err


def test_interrupted_publish_is_completed_next_time(runner: Runner) -> None:
    runner.run_step("restore")
    runner.add_night(1)
    runner.run_step("publish")
    runner.add_night(2)  # and killed before it was stored
    assert runner.run_step("restore") == 0
    assert len(read(runner.out / "history-sim.jsonl").entries) == 2


def test_good_commit_is_that_of_the_last_passed_night(runner: Runner) -> None:
    for number, passed in ((1, True), (2, False)):
        runner.set_variables(GITHUB_SHA=f"{number}" * 40)
        runner.add_night(number, passed=passed)
        runner.run_step("publish")
    state = json.loads(runner.stored_files()["sim/state.json"])
    assert (state["good"], state["last"], state["verdict"]) == ("1" * 40, "2" * 40, "FAIL")


def test_signers_without_a_key_do_not_publish(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    runner.add_night(1)
    runner.set_variables(NIGHTLY_KEY="")
    assert runner.run_step("publish") == 1 and "NIGHTLY_KEY" in capsys.readouterr().out


def test_simulated_nights_need_no_signer(runner: Runner) -> None:
    """The signers are those of the cards; the simulated device's history proves nothing about hardware."""
    runner.set_variables(NIGHTLY_KEY="", NIGHTLY_SIGNERS=runner.signer.replace("sim", "gfx1201", 1))
    runner.add_night(1)
    assert runner.run_step("publish") == 0 and "sim/head.json" not in runner.stored_files()
    assert runner.run_step("restore") == 0


def test_key_can_be_the_text_of_a_secret(runner: Runner) -> None:
    runner.add_night(1)
    runner.set_variables(NIGHTLY_KEY=runner.key.read_text())
    assert runner.run_step("publish") == 0 and "sim/head.json" in runner.stored_files()


# --- the issue ---


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "gh"
    folder.mkdir()
    stub = folder / "gh"
    stub.write_text(GH.format(python=sys.executable))
    stub.chmod(0o755)
    monkeypatch.setenv("GH_FOLDER", str(folder))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def make_outcome(summary: Mapping[str, Any], good: str, bad: str, **more: str) -> Any:
    return import_step("nightly_issue").NightOutcome(
        "gfx1201", summary, good, bad, "https://github.com/o/r/runs/1", **more
    )


def test_one_issue_is_opened_updated_and_closed(tmp_path: Path, gh: Path) -> None:
    """The transcript is what gh was called with over four nights: pass, fail, fail, pass."""
    commits = create_repository(tmp_path / "repo", "one", "two", "three")
    update = import_step("nightly_issue").update_issue
    texts = ["M1/decode: fail: 120 tok/s", "bench-t2: exit 1: GPU page fault"]
    nights = [
        (make_summary(tmp_path, passed=True, ended=""), commits[0]),
        (make_summary(tmp_path, passed=False, ended="", unexpected=texts), commits[1]),
        (make_summary(tmp_path, passed=False, ended="", unexpected=texts[:1]), commits[2]),
        (make_summary(tmp_path, passed=True, ended=""), commits[2]),
    ]
    updates = [update(make_outcome(night, commits[0], bad), "o/r", tmp_path / "repo") for night, bad in nights]
    assert updates == ["no issue is open", "opened https://github.com/o/r/issues/7", "updated #7", "closed #7"]
    text = (gh / "transcript").read_text()
    for number, commit in enumerate(commits):
        for length in (40, 12, 7):
            text = text.replace(commit[:length], f"<commit {number}>")
    if "ZINC_RT_UPDATE" in os.environ:
        TRANSCRIPT.write_text(text)
    assert text == TRANSCRIPT.read_text()
    issues = json.loads((gh / "issues.json").read_text())
    assert len(issues) == 1 and not issues[0]["open"]


def test_issue_names_the_first_bad_commit(tmp_path: Path) -> None:
    body = import_step("nightly_issue").issue_body
    night = make_summary(tmp_path, passed=False, ended="", unexpected=["x"] * 50)
    text = body(make_outcome(night, "a" * 40, "b" * 40, first_bad="abc1234 break it"), ["abc1234 break it"])
    assert "First bad commit, by bisection: **abc1234 break it**" in text and "and 20 more" in text
    assert "--stages perf --fresh" in text
    assert "is not known" in body(make_outcome(night, "", "b" * 40), [])
    assert "the machine changed" in body(make_outcome(night, "b" * 40, "b" * 40), [])


def test_failing_gh_is_reported(tmp_path: Path, gh: Path) -> None:
    (gh / "gh").write_text("#!/bin/sh\necho 'HTTP 403: not allowed' >&2\nexit 1\n")
    night = make_summary(tmp_path, passed=False, ended="")
    with pytest.raises(import_step("nightly_store").StoreError, match="HTTP 403"):
        import_step("nightly_issue").update_issue(make_outcome(night, "", "b" * 40), "o/r", tmp_path)


# --- bisection ---


@pytest.mark.parametrize("first", range(1, 9))
def test_bisection_finds_the_first_bad_commit(first: int) -> None:
    commits, tried = [f"{number:040d}" for number in range(1, 9)], []

    def is_good(commit: str) -> bool:
        tried.append(commit)
        return int(commit) < first

    assert import_step("nightly_bisect").bisect(commits, is_good, float("inf")) == (f"{first:040d}", "")
    assert len(tried) <= 3


def test_untestable_commits_are_skipped_and_listed_as_candidates() -> None:
    bisect = import_step("nightly_bisect").bisect
    commits = [f"{number:040d}" for number in range(1, 6)]
    outcomes = {1: True, 2: None, 3: False, 4: False, 5: False}
    result, reason = bisect(commits, lambda commit: outcomes[int(commit)], float("inf"))
    assert result == "" and "the others cannot be tested" in reason and commits[1][:12] in reason
    assert (
        bisect(commits, lambda commit: None if int(commit) == 3 else int(commit) < 5, float("inf"))[0]
        == commits[4]
    )
    assert "time limit" in bisect(commits, lambda commit: True, 0.0)[1]


def test_bisection_runs_the_command_in_each_commit(tmp_path: Path) -> None:
    commits = create_repository(tmp_path / "repo", "zero", "one", "two", "three", "four")
    line = ["sh", "-c", "test $(cat n) -lt 3"]
    result = import_step("nightly_bisect").find_first_bad(tmp_path / "repo", commits[0], commits[-1], line, 1.0)
    assert result.endswith("three")
    assert git(tmp_path / "repo", "worktree", "list").count("\n") == 0


# --- the workflow ---


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("", ()),
        ("/m/a.gguf\n/m/b c.gguf\n", ("/m/a.gguf", "/m/b c.gguf")),
        ('["/m/a.gguf"]', ("/m/a.gguf",)),
        ('{"gfx1201": ["/m/a.gguf"], "gfx1100": ["/m/b.gguf"]}', ("/m/a.gguf",)),
        ('{"gfx1100": ["/m/b.gguf"]}', ()),
    ],
)
def test_models_are_read_from_the_repository_variable(text: str, models: tuple[str, ...]) -> None:
    steps = import_step("nightly_steps")
    assert steps.parse_models(text, "gfx1201") == models
    settings = steps.read_settings(
        {"NIGHTLY_CHIP": "gfx1201", "NIGHTLY_MODELS": text, "NIGHTLY_RECOVER": "reset it"}
    )
    line = steps.nightly_line(settings)
    assert line[-len(models) :] == list(models) if models else "--model" not in line
    assert line[line.index("--device") + 1] == "hw" and "reset it" in line


@pytest.mark.parametrize(
    "text",
    [{"NIGHTLY_MODELS": "{"}, {"NIGHTLY_MODELS": '{"sim": 1}'}, {"NIGHTLY_CHIP": "a/b"}, {"NIGHTLY_BISECT": "x"}],
)
def test_unusable_variables_are_rejected(
    text: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in text.items():
        monkeypatch.setenv(name, value)
    assert import_step("nightly_steps").main(["run"]) == 2
    assert next(iter(text)) in capsys.readouterr().err


def test_every_workflow_step_runs_a_known_command() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    for name in ("simulator", "hardware"):
        lines = [step["run"] for step in jobs[name]["steps"] if "run" in step]
        steps = [line.split()[-1] for line in lines if "nightly-step" in line]
        assert steps == list(import_step("nightly_steps").STEPS)
        assert all(line.startswith("python3 ci/run.py ") for line in lines)


def test_lavapipe_is_required_in_both_workflows() -> None:
    for name, job in (("ci", "lavapipe"), ("nightly", "simulator")):
        text = json.dumps(
            yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"][job]
        )
        assert "lavapipe-driver" in text and "--require lavapipe" in text


def test_job_runs_the_steps_of_the_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    workflow = import_step("workflow")
    monkeypatch.setattr(workflow, "WORKFLOWS", tmp_path)
    monkeypatch.setattr(workflow, "ROOT", tmp_path)
    content = {
        "env": {"A": "${{ vars.A }}"},
        "jobs": {
            "one": {
                "env": {"B": "${{ vars.B || 'other' }}"},
                "steps": [
                    {"uses": "actions/checkout@v4"},
                    {"run": "echo first $A $B ${{ matrix.chip }}"},
                    {"run": "exit 3"},
                    {"run": "echo never"},
                    {"if": "failure()", "run": "echo after"},
                    {"if": "always()", "run": "echo always"},
                    {"if": "always()", "uses": "actions/upload-artifact@v4", "with": {"path": "gone"}},
                ],
            },
            "two": {"steps": [{"if": "github.ref == 'x'", "run": "true"}]},
        },
    }
    (tmp_path / "w.yml").write_text(yaml.safe_dump(content))
    assert workflow.main(["w", "one", "--set", "vars.A=a", "--set", "matrix.chip=gfx1201"]) == 1
    output = capfd.readouterr().out
    assert (
        "first a other gfx1201" in output and "always" in output and "after" in output and "\nnever" not in output
    )
    assert "FAILED  exit 3: exit 3" in output and "gone does not exist" in output
    assert workflow.main(["w", "two"]) == 2 and workflow.main(["w", "three"]) == 2
    assert workflow.main(["w", "one", "--set", "A"]) == 2
