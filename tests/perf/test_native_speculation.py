"""The pair of plain and speculative decoding: the same answer, and figures that agree with each other."""

from __future__ import annotations

import pytest

from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.native.command import _format_line
from zinc_rt.perf.native.speculation import SpeculationPair


def test_speculation_is_measured_against_plain_decoding() -> None:
    backend = open_backend(choose_tier("t_cpu", "auto"), "canonical-1")
    with Engine(read_gguf(FOLDER / "qwen3-q.gguf"), backend, ctx=128, slots=2) as engine:
        pair = SpeculationPair(engine, tokens=48, acceptance=0.9)
        for number in range(2):
            pair.run_round(number)
        figures = pair.figures()
    assert figures["ratio_low"] <= figures["ratio"] <= figures["ratio_high"]
    assert len(figures["runs"]) == len(figures["plain_runs"]) == 2
    assert figures["costs"]["1"] == 1.0 and len(figures["costs"]) > 1
    drafts = figures["drafts"]
    expected = sum(0.9**power for power in range(drafts + 1)) / figures["costs"][str(drafts + 1)]
    assert figures["expected"] == pytest.approx(expected)
    assert 0.5 < figures["acceptance"] <= 1.0
    assert f"with {drafts} drafts" in _format_line(figures)
