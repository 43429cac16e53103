"""One program at a time on a GPU: the second hears who has it, and a dead holder holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zinc_rt.host import locks
from zinc_rt.host.errors import OutputError
from zinc_rt.host.locks import GpuBusy

GPU = "/dev/dri/renderD128"
HOLD = (
    "import sys, pathlib; from zinc_rt.host import locks\n"
    "locks.take_lock(sys.argv[1], folder=pathlib.Path(sys.argv[2])); print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def hold_lock_in_subprocess(folder: Path) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-c", HOLD, GPU, str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_lock_error_names_pid_and_command_of_the_holder(tmp_path: Path) -> None:
    with hold_lock_in_subprocess(tmp_path) as process:
        with pytest.raises(GpuBusy) as error:
            locks.take_lock(GPU, folder=tmp_path)
        assert f"in use by pid {process.pid} (" in str(error.value) and "locks.take" in str(error.value)
        assert error.value.exit_code == 2
        locks.give_back(locks.take_lock("renderD129", folder=tmp_path))


def test_killed_holder_releases_the_lock(tmp_path: Path) -> None:
    with hold_lock_in_subprocess(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        locks.give_back(locks.take_lock(GPU, folder=tmp_path))


def test_lock_can_be_taken_twice_by_one_process(tmp_path: Path) -> None:
    first, second = locks.take_lock(GPU, folder=tmp_path), locks.take_lock("renderD128", folder=tmp_path)
    assert first == second
    locks.give_back(first)
    assert try_lock_in_subprocess(tmp_path) is False
    locks.give_back(second)
    assert try_lock_in_subprocess(tmp_path) is True


def try_lock_in_subprocess(folder: Path) -> bool:
    program = (
        "import sys, pathlib; from zinc_rt.host import locks\n"
        "try: locks.take_lock(sys.argv[1], folder=pathlib.Path(sys.argv[2]))\n"
        "except locks.GpuBusy: sys.exit(1)"
    )
    return not subprocess.run([sys.executable, "-c", program, GPU, str(folder)], check=False).returncode


def test_child_still_using_the_gpu_keeps_the_lock(tmp_path: Path) -> None:
    path = locks.take_lock(GPU, folder=tmp_path)
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writable)
        os.read(readable, 1)
        os._exit(0)
    os.close(readable)
    locks.give_back(path)
    assert try_lock_in_subprocess(tmp_path) is False
    os.close(writable)
    os.waitpid(pid, 0)
    assert try_lock_in_subprocess(tmp_path) is True


def test_symlinked_or_uncreatable_lock_is_rejected_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "zinc-rt-renderD128.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot create the lock file of the GPU"):
        locks.take_lock(GPU, folder=tmp_path)
    with pytest.raises(OutputError, match="No such file"):
        locks.take_lock(GPU, folder=tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "{}", '{"pid": "x", "command": ""}', "\0\0"])
def test_holder_without_valid_identity_still_holds_the_lock(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    assert "has not said who it is" in locks.read_holder(path)
    path.write_text('{"pid": 999999999, "command": "zinc-rt run"}')
    assert "999999999 left behind" in locks.read_holder(path)
