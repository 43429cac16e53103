"""Closed streams, full disks, misspelt settings, bad paths, Ctrl-C: one sentence and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zinc_rt.golden.embedded import FOLDER

MODEL = str(FOLDER / "qwen3-q.gguf")
ROWS = {
    "--help": ["--help"],
    "assumptions": ["assumptions"],
    "bisect-env": ["bisect-env", "example"],
    "--version": ["--version"],
    "bring-up": ["bring-up", "--help"],
    "bundle": ["bundle", "--help"],
    "compare": ["compare", "--model", MODEL, "--peers", "help"],
    "devices": ["devices"],
    "doctor": ["doctor", "--help"],
    "golden": ["golden", "list"],
    "inspect": ["inspect", "--model", MODEL],
    "pm4-test": ["pm4-test", "--list"],
    "tokenize --help": ["tokenize", "--help"],
    "sim": ["sim", "--list"],
    "tokenize": ["tokenize", "--model", MODEL, "--text", "hello"],
}


def run_shell(*words: str, shell: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """`zinc-rt WORDS` behind a shell that redirects as `shell` says."""
    line = ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-m", "zinc_rt.cli", *words]
    return subprocess.run(
        line, capture_output=True, text=True, env={**os.environ, "PYTHONUNBUFFERED": "", **settings}, timeout=120
    )


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_full_disk_on_stdout_is_reported(row: str) -> None:
    result = run_shell(*ROWS[row], shell="> /dev/full")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "stdout: cannot write: No space left on device" in result.stderr


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.rest(keep=3)
def test_closed_stdout_is_handled(row: str) -> None:
    result = run_shell(*ROWS[row], shell=">&-")
    assert result.returncode == 2
    assert "stdout is closed\n  next: redirect it" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_reader_closing_the_pipe_early_is_silent(row: str) -> None:
    line = '{ "$@"; echo "code $?" >&2; } | true'
    result = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "zinc_rt.cli", *ROWS[row]],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stderr in ("code 141\n", "code 0\n")


@pytest.mark.rest
def test_closed_pipe_for_stdout_and_stderr_is_handled() -> None:
    line = '{ "$@"; echo "code $?" >&3; } 3>&2 2>&1 | true'
    words = ["run", "--model", MODEL, "--tokens", "1,2", "--max-tokens", "2", "--tier", "t_cpu"]
    result = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "zinc_rt.cli", *words],
        capture_output=True,
        text=True,
    )
    assert result.stderr == "code 141\n"


@pytest.mark.parametrize("words", [["run", "--prompt", "-"], ["tokenize", "--text", "-"]])
@pytest.mark.rest
def test_closed_stdin_is_handled(words: list[str]) -> None:
    result = run_shell(*words, "--model", MODEL, shell="<&-")
    assert result.returncode == 2 and "stdin is closed\n  next: " in result.stderr


def test_pm4_commands_handle_closed_stdin() -> None:
    result = run_shell("pm4", "decode", "-", shell="<&-")
    assert (result.returncode, result.stderr) == (2, "zinc-rt pm4: stdin is closed\n  next: redirect it: < FILE\n")


@pytest.mark.rest
def test_messages_for_closed_stderr_do_not_reach_stdout() -> None:
    result = run_shell("devices", "--json", "-", shell="2>&-")
    assert result.returncode == 0 and result.stdout.startswith("{")


@pytest.mark.parametrize("row", ["compare", "devices", "golden", "pm4-test", "sim", "tokenize"])
@pytest.mark.rest(keep=2)
def test_misspelt_setting_is_rejected_by_every_command(row: str) -> None:
    result = run_shell(*ROWS[row], ZINC_RT_TEIR="t_cpu")
    assert result.returncode == 2 and "ZINC_RT_TEIR is not a setting" in result.stderr and not result.stdout


def test_unknown_command_suggests_nearest_or_lists_all() -> None:
    result = run_shell("validat")
    output = "zinc-rt: no command 'validat': did you mean validate?\n  next: zinc-rt --help\n"
    assert (result.returncode, result.stderr) == (2, output)
    result = run_shell("qqq")
    assert result.returncode == 2 and result.stderr.startswith(
        "zinc-rt: no command 'qqq'\n  next: one of accept, asm, "
    )


@pytest.mark.parametrize("row", ["pm4 decode", "golden make"])
def test_usage_names_the_whole_command(row: str) -> None:
    assert run_shell(*row.split(), "--help").stdout.startswith(f"usage: zinc-rt {row} ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "--model", ""], "'' is not a model"),
        (["validate", "--model", ""], "'' is not a model"),
        (["golden", "check", str(FOLDER / "qwen3-q.npz"), "--model", ""], "'' is not a model"),
        (["golden", "check", MODEL], "not a readable golden: it begins with b'GGUF'"),
        (["golden", "check", str(FOLDER)], "not a readable golden: Is a directory"),
        (["pm4-test", "--device", "sim", "--expect", "/missing"], "/missing: no such file"),
        (["pm4-test", "--device", "/dev/dri/renderD999"], "renderD999: there is none"),
        (["pm4-test", "--device", "sim", "--json", "-", "--tap", "-"], "cannot both use stdout"),
        (["pm4-test", "--device", "sim", "--junit", "/missing/x"], "the folder /missing does not exist"),
        (["pm4-test", "--device", "sim", "--bundle", MODEL], "not a folder"),
        (["bundle", "show", MODEL], "not a bundle"),
        (["bundle", "-o", MODEL], "expected a folder, or a file that ends in"),
        (["bring-up", "--up-to", "hazard-3"], "no such stage"),
        (["pm4-test", "--list", "--json", "-"], "--json requires a run"),
        (["mem-test", "-k", "zzz"], "zinc-rt-mem-test --list names them"),
        (["sim", "--socket", "/missing/s"], "--socket /missing/s: No such file or directory"),
        (["sim", "--socket", MODEL], "Address already in use\n  next: choose another path"),
        (["sim", "--socket", "/tmp/" + "x" * 200], "path too long"),
        (["sim", "--socket", "s", "--time-scale", "0"], "--time-scale 0.0: expected more than 0"),
        (["validate", "--model", MODEL, "--html", "-"], "which is reserved for the report"),
        (["pm4", "decode", ""], "'': is a folder, not a file"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
@pytest.mark.rest
@pytest.mark.slow(keep=8)
def test_bad_input_prints_one_line_before_any_work(words: list[str], message: str) -> None:
    result = run_shell(*words)
    assert result.returncode == 2 and message in result.stderr
    assert "Traceback" not in result.stderr and not result.stdout


@pytest.mark.parametrize("words", [["validate", "--no-cache"], ["pm4-test", "--device", "sim"]])
@pytest.mark.rest
def test_ctrl_c_prints_one_line_and_leaves_no_files(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    line = [sys.executable, "-m", "zinc_rt.cli", *words, "--json", str(out)]
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    process.stdout.readline()  # it is under way
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, f"zinc-rt {words[0]}: interrupted\n")
    assert not list(tmp_path.iterdir())
    deadline = time.monotonic() + 10
    while left := session_processes(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def session_processes(leader: int) -> list[str]:
    """Processes of its session that live on."""
    result = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            result.append(status.parent.name)
    return result
