"""zinc_rt.harness returns the reports that the commands write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt import harness
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.cli.report import Report
from zinc_rt.doctor.command import main as doctor_command
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, NothingRan, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.command import main as perf_command
from zinc_rt.probes import device
from zinc_rt.probes.command import main as probes_command
from zinc_rt.replay.command import main as replay_command
from zinc_rt.trace.recorder import record
from zinc_rt.validate.command import main as validate_command
from zinc_rt.validate.goldens.command import main as golden_command

# Times, and the repro of `golden diff`, which is the command's own line with --json
VARIES = {"seconds", "wall_seconds", "started", "recorded_seconds", "from_disk", "repro"}
MODEL = FOLDER / "qwen3-q.gguf"
GOLDEN = FOLDER / "qwen3-q.npz"


def without_times(value: Any) -> Any:
    """Return the value without times, which differ between runs."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in VARIES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def assert_same_report(report: Report, command: Any, words: list[str], tmp_path: Path) -> None:
    """Check that the command's --json equals the report's to_json()."""
    written = tmp_path / "report.json"
    code = command([*words, "--json", str(written)])
    assert code == report.exit_code()
    assert without_times(json.loads(report.to_json())) == without_times(json.loads(written.read_text()))


def test_import_loads_no_runtime() -> None:
    program = (
        "import sys, zinc_rt; zinc_rt.harness.validate;"
        "print([name for name in sys.modules if name in ('numpy', 'pandas', 'zinc_rt.cli', 'zinc_rt.validate')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_validate_returns_the_report_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.gguf"
    write_tiny(model, "llama", seed=1, quant="f32")
    report = harness.validate(model, tiers=["t_cpu"], tokens=[1, 2, 3], steps=1, cache=False)
    assert capsys.readouterr().out == ""
    assert report.passed and report.models == 1
    assert [check.id for check in report.checks] == [result.id for result in report.results]
    assert report.matrices
    words = [str(model), "--tiers", "t_cpu", "--tokens", "1,2,3", "--steps", "1", "--no-cache"]
    assert_same_report(report, validate_command, words, tmp_path)


def test_embedded_model_is_compared_with_its_golden() -> None:
    report = harness.validate("qwen3-q", tiers=["t_cpu"], layers=(0, 1), nodes=["attn_norm-*"])
    assert report.passed
    assert {result.reference for result in report.results} & {"qwen3-q.npz", "qwen3-q.npz_deq"}
    assert report.details["jobs"]["qwen3-q"]["layers"][:2] == [0, 1]


def test_isolation_returns_the_report_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.gguf"
    write_tiny(model, "llama", seed=1, quant="f32")
    report = harness.isolation(model, requests=2, seed=3)
    seen = capsys.readouterr()
    assert report.passed and report.models == 1 and seen.out == seen.err == ""
    assert [(verdict.tier, verdict.passed) for verdict in report.verdicts] == [("t_cpu", True)]
    assert report.details["mixes"][0]["requests"] == 2
    assert_same_report(
        report, validate_command, [str(model), "--isolation", "--requests", "2", "--seed", "3"], tmp_path
    )
    with pytest.raises(UsageError, match="--requests 0: expected 1 or more"):
        harness.isolation(model, requests=0)


@pytest.mark.rest
def test_probes_return_the_report_of_the_command(tmp_path: Path) -> None:
    report = harness.probes("sim", only="P01-P02")
    assert report.passed and report.simulated and not report.hangs
    assert_same_report(report, probes_command, ["--device", "sim", "-k", "P01-P02"], tmp_path)


def test_probes_raise_where_the_device_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "find_amd_gpus", lambda driver: [])
    with pytest.raises(NothingRan, match="no AMD GPU"):
        harness.probes("hw")


def test_replay_returns_the_report_of_the_command(tmp_path: Path) -> None:
    log = tmp_path / "run.zlog"
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=32) as engine, record(engine, log):
        engine.extend(engine.open(), [1, 7, 2])
    report = harness.replay(log, tiers=["t_cpu"])
    assert report.passed and [outcome.tier for outcome in report.outcomes] == ["t_cpu"]
    assert_same_report(report, replay_command, [str(log), "--tiers", "t_cpu"], tmp_path)
    result = harness.replay(log, tiers=["t_cpu"], bisect=True)
    assert not result.passed and "not reproduced" in result.results[-1].reason


def test_doctor_returns_the_report_of_the_command(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "proc").mkdir(parents=True)
    (machine / "proc" / "version").write_text("Linux version 6.14.0 (root@host)\n")
    report = harness.doctor(machine)
    assert report.diagnosis is not None and not report.passed
    assert_same_report(report, doctor_command, ["--from", str(machine)], tmp_path)
    with pytest.raises(InputError):
        harness.doctor(tmp_path / "missing")


def test_perf_predict_returns_the_report_of_the_command(tmp_path: Path) -> None:
    report = harness.perf_predict(MODEL, ctx=64)
    assert report.results[0].measure["tokens_per_second"] > 0
    assert_same_report(report, perf_command, ["predict", str(MODEL), "--ctx", "64"], tmp_path)


def test_perf_gate_returns_the_report_of_the_command(tmp_path: Path) -> None:
    report = harness.perf_gate("M0", only="opcodes", device="sim")
    assert report.passed
    assert_same_report(
        report, perf_command, ["gate", "--milestone", "M0", "--only", "opcodes", "--device", "sim"], tmp_path
    )


@pytest.mark.rest
def test_golden_functions_return_the_reports_of_the_command(tmp_path: Path) -> None:
    with np.load(GOLDEN) as archive:
        arrays = dict(archive)
    changed = tmp_path / "changed.npz"
    np.savez(changed, **{**arrays, "logits_deq": arrays["logits_deq"] * 2})  # type: ignore[arg-type]
    report = harness.golden_diff(changed, GOLDEN)
    assert not report.passed and report.exit_code() == 1 and report.checks
    written = tmp_path / "report.json"
    assert golden_command(["diff", str(changed), str(GOLDEN), "--json", str(written)]) == 1
    assert without_times(report.as_dict()) == without_times(json.loads(written.read_text()))
    assert harness.golden_check(GOLDEN, model=MODEL).passed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ordering": "canonical-9"}, "canonical-9"),
        ({"tiers": ["t9"]}, "t9"),
        ({"tiers": ["t_cpu"], "steps": -1}, "--steps -1"),
        ({"device": "toaster"}, "toaster"),
    ],
)
def test_wrong_arguments_raise_usage_error(
    arguments: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=message):
        harness.validate("qwen3-q", **arguments)
    assert capsys.readouterr() == ("", "")


def test_wrong_setting_raises_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_RT_TIER", "t9")
    with pytest.raises(UsageError, match="ZINC_RT_TIER"):
        harness.doctor()
