"""trace --show: a node's values, from the log where it keeps them, else computed again, the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.trace.command import main
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import Level
from zinc_rt.trace.show import StepValue, format_value, select_values

MODEL = FOLDER / "qwen3-q.gguf"
Taps = dict[tuple[int, str], np.ndarray]


def record_run(path: Path, level: Level) -> Taps:
    """Run three steps; return the tapped values of every node of the last two, by step and label."""
    seen: Taps = {}
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=64) as engine, record(engine, path, level):
        sequence = engine.open()
        engine.extend(sequence, [1, 2], rows="last")
        for step, token in ((1, 3), (2, 4)):

            def record_value(node: object, name: str, array: np.ndarray, step: int = step) -> None:
                seen[step, name] = array.copy()

            engine.extend(sequence, [token], rows="last", tap=record_value if level == "full" else None)
    return seen


@pytest.fixture(scope="module")
def full_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Taps]:
    path = tmp_path_factory.mktemp("logs") / "full.zlog"
    return path, record_run(path, "full")


@pytest.fixture(scope="module")
def inputs_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "inputs.zlog"
    record_run(path, "inputs")
    return path


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("step", [1, 2])
def test_stored_and_recomputed_values_match_the_run(
    full_log: tuple[Path, Taps], inputs_log: Path, step: int
) -> None:
    path, taps = full_log
    with LogReader(path) as log, LogReader(inputs_log) as other:
        kept, second = select_values(log, "l_out-*", step), select_values(other, "l_out-*", step)
    assert [item.title for item in kept] == [item.title for item in second] and len(kept) == 3
    for item, two in zip(kept, second, strict=True):
        wanted = taps[step, item.buffer]
        assert wanted.any() and item.array.tobytes() == two.array.tobytes() == wanted.tobytes()
        assert (
            "stored in the log" in item.origin
            and "3 of 3 recorded outputs" in two.origin
            and "t_cpu" in two.origin
        )


def test_node_can_be_named_by_label_number_or_buffer(full_log: tuple[Path, Taps]) -> None:
    with LogReader(full_log[0]) as log:
        by_label = select_values(log, "l_out-1")
        (by_number,) = select_values(log, str(by_label[0].node))
        (by_buffer,) = select_values(log, by_label[0].buffer)
        assert len(select_values(log, "Qcur-0")) == 2  # its projection, and its rotation
    assert by_label[0].step == 2 and by_number.array.tobytes() == by_buffer.array.tobytes()
    assert by_label[0].array.tobytes() == by_buffer.array.tobytes()


def test_unknown_node_is_rejected_with_similar_names(full_log: tuple[Path, Taps], tmp_path: Path) -> None:
    with LogReader(full_log[0]) as log:
        for wanted, step, message in (
            ("l_uot-1", None, "did you mean .*l_out-1"),
            ("999", None, "has nodes 0 to"),
            ("l_out-1", 9, "has steps 0 to 2"),
            ("table_store", None, "produces only state"),
        ):
            with pytest.raises(UsageError, match=message):
                select_values(log, wanted, step)
    record_run(tmp_path / "d.zlog", "digest")
    with LogReader(tmp_path / "d.zlog") as log, pytest.raises(InputError, match="level digest"):
        select_values(log, "l_out-1")


def test_summary_counts_non_finite_values_and_locates_extremes() -> None:
    array = np.array([[3.0, np.nan, -7.5], [np.inf, 2.0, 0.0]], np.float32)
    text = "\n".join(format_value(StepValue(4, 1, "ADD x", "act.x", array, "made up")))
    assert "step 4, node 1  ADD x -> act.x" in text and "f32 [2, 3], made up" in text
    assert "min -7.5 at [0, 2], max 3 at [0, 0]" in text
    assert "mean -0.625" in text and "not finite: 2 of 6, the first at [0, 1]: nan" in text
    nothing = np.full((1, 2), np.nan, np.float32)
    assert "not finite: 2 of 2" in "\n".join(format_value(StepValue(0, 0, "n", "b", nothing, "")))
    assert "empty" in "\n".join(format_value(StepValue(0, 0, "n", "b", np.empty((0, 4), np.float32), "")))


def test_command_prints_and_exports(inputs_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "values.npz"
    assert main(["--show", "l_out-0", "--step", "1", "--export", str(target), str(inputs_log)]) == 0
    shown = capsys.readouterr().out
    assert "ADD layer 0 l_out-0" in shown and "not finite: none" in shown and f"wrote {target}" in shown
    with np.load(target) as file:
        meta = json.loads(str(file["meta"]))
        (name,) = meta["values"]
        assert meta["step"] == 1 and file[name].shape == (1, 256) and np.any(file[name])
    assert main(["--step", "1", str(inputs_log)]) == 2
    assert "--step requires --show" in capsys.readouterr().err
    assert main(["--show", "nothing at all", str(inputs_log)]) == 2
    capsys.readouterr()
    assert main(["--show", "l_out-0", str(inputs_log), "--step", "1"]) == 2
    assert "unexpected argument --step after the log" in capsys.readouterr().err
