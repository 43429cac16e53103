"""Result files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from zinc_rt.host.errors import OutputError
from zinc_rt.host.files import check_writable, write_atomically


def test_file_is_renamed_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "x"

    def write_line(file: BinaryIO) -> None:
        assert not path.exists()
        file.write(b"whole")

    write_atomically(path, write_line)
    assert path.read_bytes() == b"whole" and list(tmp_path.iterdir()) == [path]


def test_failed_write_keeps_the_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")

    def fail_write(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="x: cannot write: No space left on device"):
        write_atomically(path, fail_write)
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_symlink_is_preserved(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for text in (b"one", b"two"):
        write_atomically(tmp_path / "link", lambda file, text=text: file.write(text))
        assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == text


def test_device_file_is_written_in_place() -> None:
    write_atomically(os.devnull, lambda file: file.write(b"gone"))
    assert Path(os.devnull).is_char_device()
    with pytest.raises(OutputError, match="/dev/full: cannot write"):
        write_atomically("/dev/full", lambda file: file.write(b"x"))
    assert Path("/dev/full").is_char_device() and not list(Path("/dev").glob("full.*"))


@pytest.mark.parametrize("name", ["", ".", "missing/x", "x\0y"])
def test_non_file_path_is_an_output_error(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name) if name else ""
    with pytest.raises(OutputError):
        write_atomically(path, lambda file: None)


def test_path_is_checked_before_the_work(tmp_path: Path) -> None:
    check_writable(None, str(tmp_path / "x"), "x", report="-")
    with pytest.raises(OutputError, match="which is reserved for the report"):
        check_writable("-")
    for path in (str(tmp_path), str(tmp_path / "missing" / "x"), ""):
        with pytest.raises(OutputError, match="cannot write"):
            check_writable(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_path_check_detects_missing_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        check_writable(str(tmp_path / "x"))
