"""`zinc-rt sched-test`: its words, its exit codes, and what it says of files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.cli.sched_test import main
from zinc_rt.sched.scheduler import Scheduler

Capture = pytest.CaptureFixture[str]
SHORT = ["--workload", "interactive", "--steps", "60"]


@pytest.fixture
def flood_file(tmp_path: Path) -> str:
    """Two tenants, ten requests."""
    rows = [{"arrival": 0.1 * n, "tenant": "ab"[n % 2], "prompt": 50, "output": 20} for n in range(10)]
    path = tmp_path / "flood.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def tenants_option(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "tenants.yaml"
    path.write_text(text)
    return ["--tenants", str(path)]


def test_output_lists_checks_and_marks_figures_as_predicted(capsys: Capture) -> None:
    assert main(SHORT) == 0
    output = capsys.readouterr().out
    assert "not measured" in output.splitlines()[0] and "invariants" in output and "skip" in output
    assert output.splitlines()[-1].startswith("PASS  ")


def test_workload_file_runs_and_writes_its_report(flood_file: str, capsys: Capture) -> None:
    assert main(["--workload", flood_file, "--slots", "4", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["shortcuts"] == ["predicted, not measured: no card, no model"]
    assert [result["id"].rpartition("/")[2] for result in report["results"]] == [
        "invariants", "everything-ends", "nothing-left", "ledger",
    ]  # fmt: skip
    figures = report["details"]["workloads"][flood_file]
    assert figures["classes"]["standard"]["requests"] == 10 and figures["settings"]["slots"] == 4


def test_list_prints_workloads_and_unknown_name_is_rejected(capsys: Capture) -> None:
    assert main(["--list"]) == 0
    assert "flood" in capsys.readouterr().out
    assert main(["--workload", "floot"]) == 2
    assert "no workload 'floot': did you mean flood?" in capsys.readouterr().err
    assert main(["--workload", "missing.jsonl"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_exported_workload_runs(tmp_path: Path, capsys: Capture) -> None:
    assert main(["--export", "chat"]) == 0
    path = tmp_path / "chat.jsonl"
    path.write_text(capsys.readouterr().out)
    assert main(["--workload", str(path), "--seconds", "20"]) == 0


def test_failure_prints_seed_step_and_command(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(Scheduler, "check", lambda s: ["i03: page 4"] if s.now_ns > 10**9 else [])
    assert main(["--workload", "interactive", "--seed", "9", "--slots", "8", "--check", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("first bad: step" in line and "seed 9" in line for line in lines)
    assert lines[-2] == "repro zinc-rt sched-test --workload interactive --seed 9 --slots 8 --check 1"
    assert lines[-1].startswith("FAIL  1 of ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slots", "0"], "--slots 0: expected more than 0"),
        (["--seconds", "nan"], "--seconds nan: expected more than 0"),
        (["--seed", "-1"], "--seed -1: expected 0 or more"),
        ([*SHORT, "--ctx", "64"], "exceed the context of 64"),
        ([*SHORT, "--slots", "16", "--step-tokens", "8"], "set step_tokens to at least 16"),
        (["--export", "chat", "--json", "-"], "--export and --json - cannot both write to stdout"),
    ],
)
def test_conflicting_options_are_rejected(words: list[str], message: str, capsys: Capture) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a list of tenants"),
        ("{", "line 1"),
        ("[{class: batch}]", "tenant 1 has no id"),
        ("[{id: a}, {id: a}]", "tenant 'a' is listed twice"),
        ("[{id: a, wait: 2}]", "unknown field 'wait'"),
        ("[{id: a, wieght: 2}]", "unknown field 'wieght': did you mean weight?"),
        ("[{id: a, weight: 0}]", "weight 0\n  next: expected 0.001 to 1000"),
        ("[{id: a, class: urgent}]", "class 'urgent'\n  next: expected one of interactive, standard, batch"),
        ("[{id: a, kv_reserved: 1.5}]", "kv_reserved 1.5"),
        ("[{id: a, decode_burst: 5}]", "decode_burst requires decode_rate"),
        ("[{id: a}]", "unknown tenant 'b'"),
        ("[{id: a, slots_guaranteed: 10}, {id: b, slots_guaranteed: 10}]", "at most 16"),
        ("[{id: a, slots_guaranteed: 3, slots_max: 2}, {id: b}]", "raise slots_max, or lower slots_guaranteed"),
        ("[{id: a, kv_reserved: 0.8}, {id: b, kv_reserved: 0.5}]", "at most 27"),
    ],
)
def test_invalid_tenants_are_rejected(
    tmp_path: Path, flood_file: str, text: str, message: str, capsys: Capture
) -> None:
    assert main(["--workload", flood_file, "--pages", "132", *tenants_option(tmp_path, text)]) == 2
    assert message in capsys.readouterr().err


def test_tenants_from_file_are_used(tmp_path: Path, flood_file: str, capsys: Capture) -> None:
    words = tenants_option(
        tmp_path,
        "tenants:\n"
        "  - {id: a, class: interactive, slots_guaranteed: 2, kv_reserved: 0.1}\n"
        "  - {id: b, slots_max: 1, kv_max: 12, weight: 0.5, decode_rate: 400, decode_burst: 2000}\n",
    )
    assert main(["--workload", flood_file, *words, "--json", "-"]) == 0
    figures = json.loads(capsys.readouterr().out)["details"]["workloads"][flood_file]
    assert figures["classes"].keys() == {"interactive", "standard"}


def test_trace_is_a_timeline_of_steps(tmp_path: Path, flood_file: str, capsys: Capture) -> None:
    path = tmp_path / "steps.json"
    assert main(["--workload", flood_file, "--trace", str(path)]) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    written = json.loads(path.read_text())
    steps = [event for event in written["traceEvents"] if event["ph"] == "X" and event["tid"] == 1]
    assert len(steps) == written["otherData"]["steps"] > 4
    assert {event["name"] for event in written["traceEvents"] if event["ph"] == "i"} >= {"arrive", "admit", "end"}
    assert main(["--trace", str(path)]) == 2
    assert "--trace accepts one workload" in capsys.readouterr().err


def test_mixes_alone_run_on_a_shadow_device(capsys: Capture) -> None:
    assert main(["--mixes", "8", "--seed", "3", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [result["id"] for result in report["results"]] == [
        "mixes/plans",
        "mixes/invariants",
        "mixes/deliveries",
    ]
    figures = report["details"]["mixes"]
    assert figures["mixes"] == 8 and figures["seed"] == 3 and figures["drafted"] > figures["accepted"] > 0


def test_failed_mix_prints_its_seed(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(Scheduler, "check", lambda s: ["i03: page 4"] if s.counts.steps > 20 else [])
    assert main(["--mixes", "9", "--seed", "5"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("seed 5, " in line and line.endswith(": i03: page 4") for line in lines)
    assert lines[-2] == "repro zinc-rt sched-test --mixes 1 --seed 5"
