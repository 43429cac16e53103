"""ci/run.py outside: rows of programs that cannot run, and the sums."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "ci"))
import outside

PROGRAM = outside.OutsideProgram("a project", "a program", ("-c", "pass"), right="^right ", wrong="^wrong ")
OPTIONS = argparse.Namespace(files=None, offline=True, chip="gfx1201")


def run_with(monkeypatch: pytest.MonkeyPatch, output: str, errors: str, measure: Any) -> outside.OutsideRow:
    """Run the program with this output, and with a report of these measures unless they are None."""

    def write_report(command: list[str], **_: Any) -> SimpleNamespace:
        if measure is not None:
            report = Path(command[command.index("--json") + 1])
            report.write_text(json.dumps({"results": [{"measure": measure}]}))
        return SimpleNamespace(stdout=output, stderr=errors)

    monkeypatch.setattr(outside, "find_spec", lambda name: name)
    monkeypatch.setattr(outside.subprocess, "run", write_report)
    return outside.run_program(PROGRAM, OPTIONS)


def test_missing_package_skips_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "find_spec", lambda name: None)
    row = outside.run_program(PROGRAM, OPTIONS)
    assert (row.result, row.reason) == ("skipped", "the package triton is not installed")


def test_end_without_a_report_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    row = run_with(monkeypatch, "", "Traceback\nModuleNotFoundError: No module named 'numpy'\n", None)
    assert (row.result, row.reason) == ("failed", "ModuleNotFoundError: No module named 'numpy'")


def test_kernels_and_code_objects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [{"kernel": name, "launches": 3, "code_objects": count} for name, count in (("a", 1), ("b", 2))]
    measure = {"exit_code": 0, "launches": 6, "kernels": kernels, "findings": [], "suppressed": [{}]}
    row = run_with(monkeypatch, "right one\nright two\n", "", measure)
    assert (row.result, row.kernels, row.code_objects, row.launches, row.right) == ("right", 2, 3, 6, 2)
    skipped = outside.OutsideRow("another", "program")
    assert outside._add_up([row, row, skipped]) == ("1 projects", "2 programs", "", "", 4, 6, 12, 4, 0, 0, 0, 2, 0)


def test_wrong_result_fails_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = {"exit_code": 0, "launches": 1, "kernels": [], "findings": [], "suppressed": []}
    assert run_with(monkeypatch, "right one\nwrong two\n", "", measure).result == "failed"


def test_tests_are_counted_from_their_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_junit(command: list[str], **_: Any) -> SimpleNamespace:
        path = Path(command[-1].partition("=")[2])
        path.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
        return SimpleNamespace(stdout="FAILED test_a.py::test_b\n", stderr="", returncode=1)

    monkeypatch.setattr(outside, "find_version", lambda package: "3.9.0")
    monkeypatch.setattr(outside.subprocess, "run", write_junit)
    row = outside.run_tests()
    assert (row.right, row.wrong, row.refused) == (5, 2, 2)
    assert (row.result, row.reason) == ("failed", "FAILED test_a.py::test_b")


def test_offline_names_the_environment_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outside, "CACHE", tmp_path)
    assert outside.main(["tests", "--offline"]) == 77
    assert str(tmp_path / "venv") in capsys.readouterr().out


def test_a_nightly_run_names_programs_unambiguously(monkeypatch: pytest.MonkeyPatch) -> None:
    """`operations` would run those of all projects."""
    monkeypatch.setattr(outside, "set_up", lambda offline: "")
    monkeypatch.setattr(outside, "find_kept", lambda file: Path(__file__))
    assert outside.list_ready_programs() == list(outside.NIGHTLY)
    for name in outside.NIGHTLY:
        assert len([item for item in outside.PROGRAMS_OF if name in (item.name, item.project)]) == 1, name
