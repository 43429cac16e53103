"""Speeds of this machine's CPU: each forgery of a report of zinc-rt perf native is refused by its rule."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    CODE,
    SETTINGS,
    bench_report,
    decide_criterion,
    native_details,
    record_report,
    result_names,
    set_field,
    validation_report,
)

from zinc_rt.host.machine import describe_host
from zinc_rt.perf.gate.milestones import Criterion, find_milestone
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.refusals.rules import TIMED_RULES


def make_native_report() -> dict[str, Any]:
    ours, theirs = [60.0, 61.0, 60.5, 60.2, 60.1], [40.0, 40.5, 40.2, 40.1, 40.3]
    measure = {
        "tokens_per_second": 61.0,
        "runs": ours,
        "theirs": {"repack": theirs},
        "ratio": 61.0 / 40.5,
        "bytes_a_token": 600_000_000,
        "conditions": {"read_gbs": [40.0] * 6, "load": [1.0] * 6, "threads": 2},
    }
    return {
        "schema": "zinc-rt-report/1",
        "command": "perf native",
        "started": "2026-11-20T10:00:00+00:00",
        "device": {"tier": "t_cpu_native", "name": "this"},
        "shortcuts": [],
        "details": {
            "code": CODE,
            "settings": dict(SETTINGS),
            **native_details({"repack": theirs}),
        },
        "results": [
            {
                "id": "qwen3-0.6b-q8_0/canonical-1-q8/decode",
                "tier": "t_cpu_native",
                "status": "pass",
                "measure": measure,
            }
        ],
    }


NATIVE: dict[str, tuple[str, str, Any]] = {
    "another machine's": ("machine", "details.host.processor", "EPYC 9654 of a friend"),
    "no machine's": ("machine", "details.host", {}),
    "a toy's": ("model", "details.models.qwen3-0.6b-q8_0.layers", 3),
    "a narrow model's": ("model", "details.models.qwen3-0.6b-q8_0.width", 64),
    "of no model": ("model", "details.models", {}),
    "of no digest": ("model", "details.models.qwen3-0.6b-q8_0.digest", ""),
    "more bytes a token than the file has": ("model", "results.0.measure.bytes_a_token", 10**12),
    "of older code": ("stale", "details.code", "0" * 64),
    "under a clamp": ("shortcuts", "details.settings.lm_head_rows", 8),
    "of llama.cpp as a script": ("peer", "details.llama_cpp.kind", "script"),
    "of llama.cpp that said nothing": ("peer", "details.llama_cpp.outputs", []),
    "of a slower llama.cpp than it was": ("peer", "results.0.measure.theirs.repack", [30.0] * 5),
    "a ratio its runs deny": ("samples", "results.0.measure.ratio", 9.0),
    "a run that is no number": ("samples", "results.0.measure.runs.0", math.nan),
    "a run of nothing": ("samples", "results.0.measure.runs.0", -1.0),
    "a noisy machine's": ("samples", "results.0.measure.conditions.load", [9.0] * 6),
    "the oracle's": ("samples", "results.0.tier", "t_cpu"),
    "of tomorrow": ("stale", "started", "2999-01-01T00:00:00+00:00"),
}


@pytest.mark.parametrize("forgery", NATIVE)
def test_forged_cpu_speed_is_rejected(forgery: str, tmp_path: Path) -> None:
    report = make_native_report()
    rule, path, value = NATIVE[forgery]
    set_field(path, value)(report, {})
    text = replace(record_report(tmp_path, report), host=describe_host())
    result = decide_criterion(text, "q8-decode", "cpu")
    assert result.status == "blocked" and rule in result_names(result), result.reason


def test_unforged_cpu_speed_passes(tmp_path: Path) -> None:
    text = replace(record_report(tmp_path, make_native_report()), host=describe_host())
    result = decide_criterion(text, "q8-decode", "cpu")
    assert (result.status, round(result.measure["value"], 3)) == ("pass", 1.506), result.reason
    result = decide_criterion(replace(text, head=""), "q8-decode", "cpu")
    assert result_names(result) == {"head"}


def test_every_cpu_speed_rule_has_a_forgery() -> None:
    assert {rule for rule, _, _ in NATIVE.values()} == set(TIMED_RULES) - {"edited", "head"}


def test_evidence_of_another_command_decides_nothing(tmp_path: Path) -> None:
    bench = bench_report()
    bench["command"] = "run"
    result = decide_criterion(record_report(tmp_path, bench, validation_report()))
    assert result.status == "blocked" and result.measure["refused"] == []
    assert (
        isinstance(find_milestone("M1").criteria[-2], Criterion) and ReportFile(tmp_path, bench).command == "run"
    )
