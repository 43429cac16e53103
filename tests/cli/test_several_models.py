"""Commands that take several models do them in turn, and their report says which result is whose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.cli import inspect
from zinc_rt.cli.report import Report, Result, merge_reports
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.validate import command as validate
from zinc_rt.validate.compare import command as compare

A, B = str(FOLDER / "qwen3-q.gguf"), str(FOLDER / "gemma4-q.gguf")
Capture = pytest.CaptureFixture[str]


def load_report(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_inspect_reports_every_model(tmp_path: Path, capsys: Capture) -> None:
    assert inspect.main([A, "--json", str(tmp_path / "r.json"), B]) == 0
    report, out = load_report(tmp_path / "r.json"), capsys.readouterr().out
    assert [model["model"]["path"] for model in report["details"]["models"]] == [A, B]
    assert (
        report["results"][0]["id"] == "qwen3-q.gguf/file" and report["results"][-1]["id"] == "gemma4-q.gguf/plan"
    )
    assert out.index(A) < out.index(B)


@pytest.mark.parametrize("flag", [["--graph"], ["--plan-json", "plan.json"]])
def test_single_model_inspect_options_reject_two_models(flag: list[str], capsys: Capture) -> None:
    assert inspect.main([A, B, *flag]) == 2
    assert "accept only one model" in capsys.readouterr().err


@pytest.mark.rest
def test_compare_reports_every_model(tmp_path: Path, capsys: Capture) -> None:
    words = [A, B, "--peers", "t_cpu", "--no-speed", "--tokens", "1,2", "--json", str(tmp_path / "r.json")]
    assert compare.main(words) == 0
    report = load_report(tmp_path / "r.json")
    assert [result["id"] for result in report["results"]] == ["qwen3-q.gguf/t_cpu", "gemma4-q.gguf/t_cpu"]
    assert capsys.readouterr().out.splitlines()[-1] == "PASS      2 peers ran, 0 with trouble, 0 skipped, 2 models"


def test_validate_reports_every_model(tmp_path: Path, capsys: Capture) -> None:
    words = [A, B, "--tokens", "1,2", "-n", "0", "--layers", "0:1", "--json", str(tmp_path / "r.json")]
    assert validate.main(words) == 0
    names = {result["id"].partition("/")[0] for result in load_report(tmp_path / "r.json")["results"]}
    assert names == {"qwen3-q", "gemma4-q"}
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS  2 models: ")


def test_golden_accepts_one_model_only(capsys: Capture) -> None:
    assert validate.main([A, B, "--golden", A.replace(".gguf", ".npz")]) == 2
    assert "--golden cannot be used with several models" in capsys.readouterr().err


def test_failure_of_one_model_fails_the_command() -> None:
    good = Report("x", model={"path": "a/one.gguf"}, results=[Result("r", "k", "pass")], shortcuts=["s"])
    bad = Report("x", model={"path": "a/two.gguf"}, results=[Result("r", "k", "fail")], shortcuts=["s"])
    whole = merge_reports([good, bad])
    assert whole.exit_code() == 1 and whole.shortcuts == ["s"] and not whole.model
    assert [result.id for result in whole.results] == ["one.gguf/r", "two.gguf/r"] and merge_reports([bad]) is bad
