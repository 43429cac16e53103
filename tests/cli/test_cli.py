"""What every command does with the errors its body raises."""

from __future__ import annotations

import argparse
import errno
import subprocess
import sys

import pytest

from zinc_rt.cli.command import Command
from zinc_rt.host.errors import CheckFailed, InputError, NothingRan

Capture = pytest.CaptureFixture[str]


def run_failing_command(error: BaseException) -> int:
    def raise_error(arguments: argparse.Namespace) -> int:
        raise error

    return Command("name", argparse.ArgumentParser, raise_error)([])


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("x.gguf: torn", next="download it again"), 2, "zinc-rt name: x.gguf: torn\n  next: download"),
        (CheckFailed("layer 3 differs"), 1, "zinc-rt name: layer 3 differs"),
        (NothingRan("no device"), 77, "zinc-rt name: no device"),
        (KeyboardInterrupt(), 130, "zinc-rt name: interrupted"),
        (MemoryError(), 2, "zinc-rt name: out of memory"),
    ],
)
def test_exception_maps_to_message_and_exit_code(
    error: BaseException, code: int, sentence: str, capsys: Capture
) -> None:
    assert run_failing_command(error) == code
    assert capsys.readouterr().err.startswith(sentence)


@pytest.mark.parametrize("error", [ZeroDivisionError(), OSError(errno.EACCES, "denied"), OSError("odd")])
def test_internal_error_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_failing_command(error)


@pytest.mark.parametrize("code", ["print('x' * 100_000)", "print('x')"])
def test_full_disk_on_stdout_prints_one_line(code: str) -> None:
    program = (
        "import argparse, sys\nfrom zinc_rt.cli.command import Command\n"
        f"def body(arguments):\n    {code}\n    return 0\n"
        "sys.exit(Command('name', argparse.ArgumentParser, body)([]))\n"
    )
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "zinc-rt name: stdout: cannot write: No space left on device\n"


def test_unencodable_character_is_escaped() -> None:
    program = (
        "import argparse, sys\nfrom zinc_rt.cli.command import Command\n"
        "def body(arguments):\n    print('caf\\u00e9')\n    return 0\n"
        "sys.exit(Command('name', argparse.ArgumentParser, body)([]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "caf\\xe9\n", "")
