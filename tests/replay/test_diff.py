"""Two recordings that part: the element, how many and how far where both hold the bytes, else its name."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from planted import PlantedBackend, change_element
from replay_runs import record_run

from zinc_rt.replay.diff import diff_logs
from zinc_rt.trace.records import Level


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("left", "right"), [("full", "full"), ("full", "inputs"), ("inputs", "digest")])
def test_first_difference_is_reported(left: Level, right: Level, tmp_path: Path) -> None:
    planted = partial(PlantedBackend, plant=change_element("l_out-1", 1, 5, lambda value: 2 * value))
    one = record_run(tmp_path / "one.zlog", "qwen3-q", left, steps=0)
    other = record_run(tmp_path / "other.zlog", "qwen3-q", right, backend=planted("canonical-1"), steps=0)
    result = diff_logs(one, other)
    if (left, right) != ("full", "full"):
        assert result.first.startswith("step 0: ") and result.first.endswith("request[slot].logits differs")
        assert "elements  unknown: record both logs with --level full" in result.lines
        return
    assert re.fullmatch(
        r"step 0: node \d+ l_out-1, act.l_out\[1\] differs: element \[1, 5\] is \S+ and \S+; 1 of 1280 differ, "
        r"by \S+ at most",
        result.first,
    ), result.first
    assert result.bad["element"] == (1, 5) and result.bad["differing"] == 1
    assert result.bad["max_abs_diff"] == pytest.approx(abs(float(result.bad["one"])))


def test_recording_equals_itself(tmp_path: Path) -> None:
    one = record_run(tmp_path / "one.zlog", "qwen3-q", "full", steps=0)
    result = diff_logs(one, one)
    assert result.compared and not result.first and not result.bad
