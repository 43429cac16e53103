"""ci/differential.py with our own simulator, one fact flipped, in rocjitsu's place: it lists what was planted."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

CI = Path(__file__).resolve().parents[2] / "ci"


@pytest.fixture(scope="module")
def differential_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differential", CI / "differential.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["differential"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.rest
def test_flipped_fact_is_the_only_difference_and_silicon_agrees_with_ours(
    differential_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, report = f"{differential_module.BIN}/zinc-rt sim --flip wmma_f16_order --", tmp_path / "d.json"
    words = ["--only", "kernels", "--seeds", "1", "--theirs", theirs, "--json", str(report)]
    assert differential_module.main(words) == 1
    written = json.loads(report.read_text())
    assert written["failed"] == [] and written["cases"] > 121 + 24
    differences = written["differences"]
    assert differences and {difference["case"][0] for difference in differences} <= {"wmma f16", "wmma bf16"}
    assert all(difference["judged"] == f"silicon {difference['ours']}: ours" for difference in differences)
    assert f"FAIL  {written['cases']} cases, {len(differences)} differences, 0 programs" in capsys.readouterr().out


def test_every_difference_is_listed_with_the_side_silicon_supports(differential_module: ModuleType) -> None:
    cases = [("row", str(index)) for index in range(4)]
    ours = dict(zip(cases, ("1", "2", "3", "4"), strict=True)) | {("only ours", "0"): "5"}
    theirs = dict(zip(cases, ("1", "9", "8", "7"), strict=True)) | {("only theirs", "0"): "6"}
    silicon = {cases[0]: "0", cases[1]: "9", cases[2]: "3", cases[3]: "0"}
    differences = differential_module.find_differences("kernels", ours, theirs, silicon)
    assert [
        (difference.case, difference.ours, difference.theirs, difference.verdict) for difference in differences
    ] == [
        (cases[1], "2", "9", "silicon 9: theirs"),
        (cases[2], "3", "8", "silicon 3: ours"),
        (cases[3], "4", "7", "silicon 0: neither"),
        (("only ours", "0"), "5", "", ""),
        (("only theirs", "0"), "", "6", ""),
    ]
    assert differential_module.find_differences("kernels", ours, ours, silicon) == []


def test_reports_and_arrays_become_cases(differential_module: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    report.write_text(json.dumps({"results": [{"id": "P03", "kind": "probe", "tier": "t1", "status": "pass"}]}))
    assert differential_module.report_values(report) == {("P03", "probe", "t1"): "pass"}
    np.savez(tmp_path / "a.npz", rows=np.array([1, 0xFFFFFFFF], np.uint32))
    assert differential_module.array_values(tmp_path / "a.npz") == {
        ("rows", "0"): "00000001",
        ("rows", "1"): "ffffffff",
    }


def test_simulator_that_runs_nothing_is_reported_and_not_an_agreement(
    differential_module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = f"{sys.executable} -c \"import sys; sys.exit('no such card')\""
    assert differential_module.main(["--only", "kernels", "--ours", nothing, "--theirs", "/nowhere/rocjitsu"]) == 1
    output = capsys.readouterr().out
    assert "kernels, ours: exit code 1: no such card" in output
    assert "kernels, theirs: " in output and "/nowhere/rocjitsu" in output


@pytest.mark.parametrize(
    ("environment", "message"),
    [({}, "no rocjitsu is installed"), ({"ROCJITSU": "/bin/true"}, "ROCJITSU_CONFIG: not set")],
)
def test_missing_rocjitsu_prints_one_line_and_exits_77(
    differential_module: ModuleType,
    environment: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("ROCJITSU", "ROCJITSU_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert differential_module.main([]) == 77
    [line] = capsys.readouterr().out.splitlines()
    assert message in line
