"""Programs that know nothing of the simulated device: compiled here, run by `zinc-rt sim -- PROGRAM`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from zinc_rt.cli.sim import main
from zinc_rt.host.errors import NothingRan
from zinc_rt.sim.serve import program

CLIENTS = Path(__file__).parent / "clients"
NODE = "/sys/class/kfd/kfd/topology/nodes/1"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


@needs_cc
def test_program_using_raw_kfd_ioctls_runs_unchanged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Memory, PM4, a fence, USERPTR, threads, fork, dup: it prints the line that failed."""
    result = tmp_path / "raw_kfd"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(result), "-pthread"], check=True)
    assert main(["--", str(result)]) == 0
    assert "OK" in capfd.readouterr().out


@pytest.mark.rest
@needs_cc
def test_system_calls_are_intercepted_or_reported_as_unsupported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It prints the line that failed; what is not covered is named on stderr."""
    result = tmp_path / "system_calls"
    words = ["cc", "-O1", "-w", str(CLIENTS / "system_calls.c"), "-o", str(result), "-pthread", "-ldl"]
    subprocess.run(words, check=True)
    assert main(["--", str(result)]) == 0
    output = capfd.readouterr()
    assert output.out == "OK\n"
    assert "SCM_RIGHTS" in output.err and "mremap()" in output.err


@pytest.mark.rest
@needs_cc
def test_report_has_exit_code_findings_by_rule_and_kernel_log(tmp_path: Path) -> None:
    result, report = tmp_path / "raw_kfd", tmp_path / "report.json"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(result), "-pthread"], check=True)
    assert main(["--json", str(report), "--linux", "6.16", "--", "sh", "-c", f"{result}; exit 5"]) == 5
    document = json.loads(report.read_text())
    assert (
        document["command"] == "sim" and document["device"]["simulated"] and document["device"]["kernel"] == "6.16"
    )
    assert document["details"]["exit_code"] == 5 and document["results"][0]["status"] == "fail"
    assert {"findings", "dmesg"} <= set(document["details"])
    assert main(["--json", str(report)]) == 2


@pytest.mark.rest
@needs_cc
def test_file_contents_are_generated_at_open(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    used = "/sys/class/drm/renderD128/device/mem_info_gtt_used"
    assert main(["--inject", "hidden-gpu", "--", "sh", "-c", f"cat {used} {NODE}/gpu_id"]) == 1
    output = capfd.readouterr()
    assert output.out.strip().isdigit() and "not permitted" in output.err


@pytest.mark.rest
@needs_cc
def test_exit_code_of_the_program_is_returned(tmp_path: Path) -> None:
    script = "cat /sys/class/kfd/kfd/topology/nodes/1/gpu_id && exit 7"
    assert main(["--", "sh", "-c", script]) == 7
    assert main(["--", str(tmp_path / "missing")]) == 2


def test_missing_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program.shutil, "which", lambda name: None)
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    with pytest.raises(NothingRan, match="no C compiler"):
        program.build_library()
