"""The step block is one write over many buffers: a log says of each what the step counts, and nothing more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay.diff import diff_logs
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import (
    LEVELS,
    GraphCreated,
    Level,
    LogRecord,
    Output,
    Replayed,
    Retired,
    WrittenPart,
    Wrote,
    from_fields,
    to_fields,
)
from zinc_rt.trace.writer import LogWriter

FIRST, SECOND = [3, 1, 4], [5]
TOKENS, SEQUENCES, ROWS = 4, 2, 1
STEP = {  # what the step counts, bytes by buffer
    "step.counts": 32,
    "request[slot].token_id": 4 * TOKENS,
    "request[slot].position": 4 * TOKENS,
    "request[slot].slot": 4 * TOKENS,
    "request[slot].logit_row": 4 * ROWS,
    "step.table_entry": 4 * SEQUENCES,
    "step.table_value": 4 * SEQUENCES,
}


@pytest.fixture(scope="module")
def step_logs(tmp_path_factory: pytest.TempPathFactory) -> dict[Level, Path]:
    """Record the same step of two sequences at each level, after a step that leaves other bytes in the block."""
    folder = tmp_path_factory.mktemp("writes")
    result = {level: folder / f"{level}.zlog" for level in LEVELS}
    for level, path in result.items():
        with (
            Engine(read_gguf(FOLDER / "qwen3-q.gguf"), CpuBackend("canonical-1"), ctx=32, slots=3) as engine,
            record(engine, path, level, warn=lambda text: None),
        ):
            before = engine.open()
            engine.advance([(before, [9] * 16)], [15])
            one, two = engine.open(), engine.open()
            engine.advance([(one, FIRST), (two, SECOND)], [TOKENS - 1])
    return result


def read_writes(path: Path) -> list[LogRecord]:
    with LogReader(path) as log:
        assert not log.problems
        return list(log)


def step_block_write(path: Path) -> Wrote:
    """The last write of a step block."""
    return [item for item in read_writes(path) if isinstance(item, Wrote) and item.parts][-1]


def step_parts(path: Path) -> Iterator[tuple[WrittenPart, bytes]]:
    wrote = step_block_write(path)
    with LogReader(path) as log:
        data = wrote.data or log.read_blob(wrote.blob)
    assert len(data) == wrote.size_bytes == sum(part.size_bytes for part in wrote.parts)
    for part in wrote.parts:
        yield part, data[: part.size_bytes]
        data = data[part.size_bytes :]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
def test_parts_match_the_buffers_of_the_step(level: Level, step_logs: dict[Level, Path]) -> None:
    wrote = step_block_write(step_logs[level])
    assert {part.buffer: part.size_bytes for part in wrote.parts} == STEP
    assert all(part.offset_bytes == 0 and bool(part.sha256) == (level == "digest") for part in wrote.parts)
    assert not wrote.sha256 and bool(wrote.data or wrote.blob) == (level != "digest")


@pytest.mark.parametrize("level", ["inputs", "full"])
def test_recorded_bytes_belong_to_the_current_step(level: Level, step_logs: dict[Level, Path]) -> None:
    result = {part.buffer: np.frombuffer(data, np.int32).tolist() for part, data in step_parts(step_logs[level])}
    assert result["step.counts"][:4] == [TOKENS, SEQUENCES, ROWS, SEQUENCES]
    assert result["request[slot].token_id"] == FIRST + SECOND
    assert result["request[slot].position"] == [0, 1, 2, 0]
    assert result["request[slot].logit_row"] == [TOKENS - 1]


def test_digests_match_the_bytes(step_logs: dict[Level, Path]) -> None:
    want = {part.buffer: hashlib.sha256(data).hexdigest() for part, data in step_parts(step_logs["inputs"])}
    assert {part.buffer: part.sha256 for part in step_block_write(step_logs["digest"]).parts} == want


@pytest.mark.parametrize("other", ["inputs", "full"])
def test_digest_log_agrees_with_full_logs(other: Level, step_logs: dict[Level, Path]) -> None:
    result = diff_logs(step_logs["digest"], step_logs[other])
    assert not result.first and result.compared > len(STEP), result.lines


@pytest.mark.parametrize("buffer", ["request[slot].token_id", "step.table_value"])
def test_difference_names_the_buffer(buffer: str, step_logs: dict[Level, Path], tmp_path: Path) -> None:
    path, changed = tmp_path / "changed.zlog", step_block_write(step_logs["digest"])
    parts = tuple(replace(part, sha256="0" * 64) if part.buffer == buffer else part for part in changed.parts)
    with LogReader(step_logs["digest"]) as log, LogWriter(path, log.header) as writer:
        for item in log:
            if isinstance(item, GraphCreated):
                writer.write_blob(log.read_blob(item.ir))
            writer.write(replace(changed, parts=parts) if item == changed else item)
    assert diff_logs(path, step_logs["inputs"]).first == f"step 1: the host wrote different bytes to {buffer}"


@pytest.mark.parametrize("level", LEVELS)
def test_every_record_round_trips(level: Level, step_logs: dict[Level, Path]) -> None:
    kinds = set()
    for item in read_writes(step_logs[level]):
        kinds.add(item.KIND)
        fields, data = to_fields(item)
        assert from_fields(item.KIND, fields, data) == item
    assert kinds >= {item.KIND for item in (Wrote, Replayed, Output, Retired)}
