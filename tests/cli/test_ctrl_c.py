"""Ctrl-C at any moment of a run on a simulated device: exit code 130, one line, and no fault of ours."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import Counts

from zinc_rt.golden.embedded import FOLDER

pytestmark = pytest.mark.rest

MODEL = str(FOLDER / "qwen3-q.gguf")
START = "import sys; from zinc_rt.cli.main import main; print('here', flush=True); sys.exit(main())"
RUN = ["run", "--model", MODEL, "--tokens", "1,2,3", "--max-tokens", "60", "--ignore-eos", "--tier", "t1"]
VALIDATE = ["validate", "--model", MODEL, "--no-cache", "--tiers", "t1,t_cpu"]


@pytest.mark.parametrize(("words", "seconds"), [(RUN, 4.0), (VALIDATE, 5.0)], ids=["run", "validate"])
def test_ctrl_c_at_any_moment_exits_cleanly(
    words: list[str], seconds: float, slow_counts: Counts, tmp_path: Path
) -> None:
    count = slow_counts(2, 30)
    for index in range(count):
        after = seconds * (index + 0.5) / count
        code, output = run_and_interrupt([*words, "--device", "sim"], after, tmp_path)
        assert code in (130, 0), f"after {after:.2f} s: {output}"
        assert "Traceback" not in output and "bug in ZINC_RT" not in output, f"after {after:.2f} s: {output}"
        assert code == 0 or output.endswith(": interrupted\n"), output


def test_second_ctrl_c_exits_cleanly(tmp_path: Path) -> None:
    code, output = run_and_interrupt([*RUN, "--device", "sim"], 2.0, tmp_path, again_seconds=0.02)
    assert code in (130, 0) and "Traceback" not in output, output


def run_and_interrupt(
    words: list[str], after_seconds: float, folder: Path, again_seconds: float | None = None
) -> tuple[int, str]:
    """Send SIGINT that long after the first line of output; return the exit code and the output."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_seconds)
    process.send_signal(signal.SIGINT)
    if again_seconds is not None:
        time.sleep(again_seconds)
        process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output
