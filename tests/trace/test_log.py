"""A log comes back as it was written, and whatever happens to its file, nothing false comes back."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from support import Counts
from trace_logs import META, write_log

from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.trace import frame
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.records import EventRecord
from zinc_rt.trace.writer import LogWriter


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    return tmp_path / "run.zlog"


def test_records_round_trip(log_path: Path) -> None:
    written = write_log(log_path)
    with LogReader(log_path) as log:
        assert list(log) == written and log.header == META
        assert log.closed and log.problems == []
        content = b"block 2 " * 200
        assert log.read_blob(hashlib.sha256(content).hexdigest()) == content


def test_identical_bytes_are_stored_once_and_compressed(log_path: Path) -> None:
    with LogWriter(log_path, META) as writer:
        digests = {writer.write_blob(bytes(1 << 20)) for _ in range(5)}
    assert len(digests) == 1 and log_path.stat().st_size < 4096
    with LogReader(log_path) as log:
        assert log.read_blob(digests.pop()) == bytes(1 << 20)


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.rest)])
def test_every_prefix_opens_with_its_complete_records(log_path: Path, step: int) -> None:
    written = write_log(log_path)
    data = log_path.read_bytes()
    header = len(frame.encode_file_header(META))
    for size in range(0, len(data), step):
        log_path.write_bytes(data[:size])
        if size < header:
            with pytest.raises(InputError, match="truncated inside the header"):
                LogReader(log_path)
            continue
        with LogReader(log_path) as log:
            read = list(log)
            assert read == written[: len(read)] and log.problems


def test_only_the_incomplete_record_is_lost_and_reported(log_path: Path) -> None:
    written = write_log(log_path, close=False)
    log_path.write_bytes(log_path.read_bytes()[:-1])
    with LogReader(log_path) as log:
        assert list(log) == written[:-1]
        assert any(problem.startswith("torn record of") for problem in log.problems)


@pytest.mark.rest
def test_changed_byte_is_detected_or_harmless(log_path: Path, slow_counts: Counts) -> None:
    written = write_log(log_path)
    whole = log_path.read_bytes()
    chance = random.Random(7)
    blobs = {hashlib.sha256(c).hexdigest(): c for c in (b"block %d " % n * 200 for n in range(len(written)))}
    for _ in range(slow_counts(2000, 100_000)):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        log_path.write_bytes(data)
        try:
            log = LogReader(log_path)
        except InputError:
            continue  # in the header
        with log:
            read = list(log)
            assert all(record in written for record in read)
            assert len(read) == len(written) or log.problems
            for digest, content in blobs.items():
                try:
                    assert log.read_blob(digest) == content
                except InputError as error:
                    assert "damaged" in str(error) or "does not contain" in str(error)


@pytest.mark.parametrize("version", [0, 4, 99])
def test_unsupported_format_is_rejected_by_its_number(log_path: Path, version: int) -> None:
    write_log(log_path)
    data = bytearray(log_path.read_bytes())
    data[4:8] = struct.pack("<I", version)
    log_path.write_bytes(data)
    with pytest.raises(InputError, match=f"log format {version}; this build reads 1, 2 and 3\n"):
        LogReader(log_path)


def test_unknown_record_type_is_rejected_not_skipped(log_path: Path) -> None:
    write_log(log_path, close=False)
    with log_path.open("ab") as file:
        file.write(frame.encode_frame(77, frame.encode_body({})))
    with LogReader(log_path) as log, pytest.raises(InputError, match="record kind 77 is unknown"):
        list(log)


@pytest.mark.parametrize("data", [b"", b"ZL", b"GGUF" + bytes(40), bytes(100)])
def test_non_log_file_is_rejected(log_path: Path, data: bytes) -> None:
    log_path.write_bytes(data)
    with pytest.raises(InputError, match=r"no log|not a log"):
        LogReader(log_path)


def test_missing_or_uncreatable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        LogReader(tmp_path / "nowhere.zlog")
    with pytest.raises(OutputError, match="cannot write"):
        LogWriter(tmp_path / "no" / "folder.zlog", META)


def test_full_disk_ends_recording_with_one_warning(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    writer = LogWriter(log_path, META, warn=warnings.append)
    writer.write(EventRecord("first", "", 0.0))
    whole, room = os.write, 30

    def write_until_full(fd: int, data: bytes) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(28, "No space left on device")
        count = whole(fd, bytes(data[:room]))
        room -= count
        return count

    monkeypatch.setattr(os, "write", write_until_full)
    writer.write(EventRecord("second", "x" * 100, 1.0))
    writer.write(EventRecord("third", "", 2.0))
    monkeypatch.undo()
    writer.close()
    assert len(warnings) == 1 and "No space left on device" in warnings[0]
    with LogReader(log_path) as log:
        assert [record.name for record in log if isinstance(record, EventRecord)] == ["first"]


WRITES_FOR_EVER = """
import sys
from zinc_rt.trace.records import EventRecord
from zinc_rt.trace.writer import LogWriter
writer = LogWriter(sys.argv[1], {})
print("ready", flush=True)
number = 0
while True:
    writer.blob(b"%d " % number * 500)
    writer.write(EventRecord("n", str(number), 0.0))
    number += 1
"""


def test_killed_writer_loses_at_most_the_current_record(log_path: Path, slow_counts: Counts) -> None:
    chance = random.Random(3)
    for _ in range(slow_counts(4, 200)):
        child = subprocess.Popen([sys.executable, "-c", WRITES_FOR_EVER, str(log_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline()
        time.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with LogReader(log_path) as log:
            numbers = [int(record.detail) for record in log if isinstance(record, EventRecord)]
            assert numbers == list(range(len(numbers)))
            assert len(log.problems) <= 2  # not closed, and perhaps a torn record


def test_frame_is_found_after_damage_of_any_length(log_path: Path) -> None:
    written = write_log(log_path)
    data = bytearray(log_path.read_bytes())
    start = len(frame.encode_file_header(META))
    data[start : start + 40] = b"ZREC" * 10
    log_path.write_bytes(data)
    with LogReader(log_path) as log:
        assert list(log) == written and any("damaged stretch" in problem for problem in log.problems)


def test_bogus_length_does_not_hide_later_records(log_path: Path) -> None:
    written = write_log(log_path, close=False)
    data = log_path.read_bytes()
    start = len(frame.encode_file_header(META))
    head = struct.pack("<4sIQI", b"ZREC", 16, 1 << 39, 0)
    lie = head + struct.pack("<I", zlib.crc32(head))
    log_path.write_bytes(data[:start] + lie + data[start:])
    with LogReader(log_path) as log:
        assert list(log) == written
