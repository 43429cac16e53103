"""Programs that know nothing of the simulated device: compiled here, run by `zinc-rt sim -- PROGRAM`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from zinc_rt.commands.sim import main
from zinc_rt.errors import NothingRan
from zinc_rt.sim.serve import program

CLIENTS = Path(__file__).parent / "clients"
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


@needs_cc
def test_a_program_on_raw_kfd_ioctls_runs_unchanged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Memory, PM4, a fence, USERPTR, threads, fork, dup: it prints the line that failed."""
    made = tmp_path / "raw_kfd"
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(made), "-pthread"], check=True)
    assert main(["--", str(made)]) == 0
    assert "OK" in capfd.readouterr().out


@needs_cc
def test_exit_codes_are_the_programs(tmp_path: Path) -> None:
    script = "cat /sys/class/kfd/kfd/topology/nodes/1/gpu_id && exit 7"
    assert main(["--", "sh", "-c", script]) == 7
    assert main(["--", str(tmp_path / "missing")]) == 2


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program.shutil, "which", lambda name: None)
    monkeypatch.setattr(program, "find_spec", lambda name: None)
    with pytest.raises(NothingRan, match="no C compiler"):
        program.library()
