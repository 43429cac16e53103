"""Forgeries, one a row: each is refused by the rule that is there for it, by name, and without it the gate passes.

Whoever forges here may edit any field, record what was edited in a history of his own, and relabel files.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    HOST,
    LAYERS,
    SETTINGS,
    Change,
    bench_report,
    decide_criterion,
    record_report,
    result_names,
    set_field,
    timed_runs,
    validation_report,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identify_model
from zinc_rt.perf.gate.milestones import load_milestones
from zinc_rt.perf.gate.report_files import collect_reports
from zinc_rt.perf.refusals.model import check_model_class
from zinc_rt.perf.refusals.rules import RULES
from zinc_rt.perf.synthetic import SHAPES

NAN = math.nan


def forge_validation(path: str, value: Any = None) -> Change:
    return set_field(path, value, "validation")


def forge_both_reports(path: str, value: Any) -> Change:
    """A careful forgery: both reports are consistent."""
    return combine_forgeries(set_field(path, value), forge_validation(path, value))


def combine_forgeries(*changes: Change) -> Change:
    def apply_forgeries(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for change in changes:
            change(bench, valid)

    return apply_forgeries


def forge_seconds(value: float, runs: int = 5, tokens: int = 128) -> Change:
    """Runs with that many seconds per token, and a matching summary."""
    return combine_forgeries(
        set_field("results.0.measure.runs", timed_runs(value, runs, tokens)),
        set_field("results.0.measure.tokens_per_second", 1 / value if value else 0.0),
    )


def forge_toy_model(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """A complete, valid report of the embedded model of the same architecture, with the pinned digest."""
    small = identify_model(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()
    for report in (bench, valid):
        report["model"] |= small
    valid["details"]["jobs"]["m"]["layers"] = [0, 4, 4]
    valid["results"] = [*valid["results"][:4], valid["results"][-1]]


def omit_layers(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """A validation of one layer with logits of another run."""
    valid["results"] = [valid["results"][0], valid["results"][-1]]


def duplicate_layers(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    first = valid["results"][0]
    valid["results"] = [*(copy.deepcopy(first) for _ in range(LAYERS)), valid["results"][-1]]


def duplicate_result(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    better = copy.deepcopy(bench["results"][0])
    bench["results"].insert(0, better)


def convert_percentile_to_milliseconds(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    bench["results"][0]["measure"]["p50_seconds"] = 1e3 / 150


FORGERIES: dict[str, tuple[str, Change]] = {
    # simulated evidence, relabelled
    "its flag taken off, its profile left": ("simulated", set_field("device.profile", "r9700")),
    "its flag taken off, its shortcut left": (
        "simulated",
        set_field("shortcuts", ["t2: simulated device: no evidence about hardware"]),
    ),
    "its name": ("simulated", set_field("device.name", "Radeon AI PRO R9700 (simulated)")),
    "its assumptions left": ("simulated", set_field("details.assumptions", [{"id": "function_bits"}])),
    "its sanitizer's findings left": ("simulated", set_field("details.findings", ["bounds: a wave reads beyond"])),
    "a flag that is a word": ("simulated", set_field("device.simulated", "no")),
    "no flag": ("simulated", set_field("device.-simulated", None)),
    # another device
    "a card of the same chip": ("hardware", forge_both_reports("device.name", "Radeon RX 9070 series")),
    "the card's name on another chip": ("hardware", forge_both_reports("device.arch", "gfx1100")),
    "no device at all": ("hardware", set_field("device", {"tier": "t2", "simulated": False})),
    # clamps
    "clamped layers of experts": ("shortcuts", set_field("details.settings.decode_topk", 1)),
    "settings left out": ("shortcuts", set_field("details.-settings", None)),
    "one setting left out": ("shortcuts", set_field("details.settings.-lm_head_rows", None)),
    "no list of shortcuts": ("shortcuts", set_field("-shortcuts", None)),
    "an unchecked card": ("shortcuts", set_field("shortcuts", ["t2: pm4-test has not run (--unchecked)"])),
    # tokens and workload
    "tokens capped in one run of five": (
        "tokens",
        set_field("results.0.measure.runs", [*timed_runs(1 / 150, 4), *timed_runs(1 / 150, 1, 8, seed=1)]),
    ),
    "half of the tokens that were asked for": (
        "tokens",
        combine_forgeries(forge_seconds(1 / 150, tokens=128), set_field("details.workload.tokens", 256)),
    ),
    "four slots sold as one": ("workload", set_field("details.workload.slots", 4)),
    "no warm-up": ("workload", set_field("details.workload.warmup", 0)),
    "a context of 128": ("workload", set_field("ctx", 128)),
    # another tier, part of a model
    "t1's report": ("tier", combine_forgeries(set_field("device.tier", "t1"), set_field("results.0.tier", "t1"))),
    "nodes on the host": ("whole-model", set_field("direct_compute_ops", 400)),
    "a model of no nodes": (
        "whole-model",
        combine_forgeries(set_field("direct_compute_ops", 0), set_field("details.workload.nodes", 0)),
    ),
    "nodes that are a yes": (
        "whole-model",
        combine_forgeries(set_field("direct_compute_ops", True), set_field("details.workload.nodes", True)),
    ),
    # another model
    "a toy under the pinned digest": ("model", forge_toy_model),
    "a quarter of the layers": ("model", forge_both_reports("model.layers", 10)),
    "a narrower model": ("model", forge_both_reports("model.width", 1024)),
    "a small vocabulary": ("model", forge_both_reports("model.vocab", 512)),
    "fewer weights": ("model", forge_both_reports("model.parameters", 3_000_000_000)),
    "two bits a weight": ("model", forge_both_reports("model.weights", {"q2_k": 10_000_000_000})),
    "weights that are more than the file": ("model", forge_both_reports("model.size_bytes", 9_000_000_000)),
    "a size left out": ("model", set_field("model.-size_bytes", None)),
    "a quantisation left out": ("model", set_field("model.weights", {})),
    "layers in words": ("model", forge_both_reports("model.layers", "40")),
    "another file's digest": ("digest", forge_both_reports("model.digest", "cd" * 32)),
    "two models in one report": (
        "digest",
        set_field("model", {"models": [{"digest": "ab" * 32}, {"digest": "ab" * 32}]}),
    ),
    # bits
    "one layer validated of all": ("bits", omit_layers),
    "one layer counted for all": ("bits", duplicate_layers),
    "a validation of some layers that says so": (
        "bits",
        forge_validation("details.jobs.m.layers", [0, 4, LAYERS]),
    ),
    "a validation without a decoded token": ("bits", forge_validation("details.jobs.m.steps", 0)),
    "bits of another ordering": ("bits", forge_validation("details.devices.t2.ordering", "float32-dequant")),
    "an oracle of another ordering": (
        "bits",
        forge_validation("details.devices.t_cpu.ordering", "canonical-1-q8"),
    ),
    "a speed in an ordering without bits": ("bits", set_field("ordering", "float32-dequant")),
    "bits under a clamp": ("bits", forge_validation("details.settings", {**SETTINGS, "lm_head_rows": 16})),
    "bits under a clamp that is only named": (
        "bits",
        forge_validation("shortcuts", ["LM head capped to 16 rows"]),
    ),
    "bits with the settings left out": ("bits", forge_validation("details.-settings")),
    "bits of another machine": ("bits", forge_validation("details.host", {**HOST, "processor": "Intel Xeon"})),
    "bits of no machine": ("bits", forge_validation("details.-host")),
    "bits of another firmware": ("bits", forge_validation("details.devices.t2.firmware", "MEC 3060")),
    "bits of another commit": ("bits", forge_validation("details.code", "beef" * 16)),
    "bits of a smaller model": ("bits", forge_validation("model.layers", 4)),
    "bits that are equal in a word": ("bits", forge_validation("results.3.measure.equal_bits", "yes")),
    "bits that are equal and differ": ("bits", forge_validation("results.3.measure.max_abs", 0.5)),
    "values that are no numbers": ("bits", forge_validation("results.3.measure.nonfinite", 12)),
    "logits of the prompt alone": ("bits", forge_validation("results.40.measure.positions", 8)),
    "a validation of tomorrow": ("bits", forge_validation("started", "2999-01-01T00:00:00+00:00")),
    "a failed check beside them": (
        "bits",
        lambda bench, valid: valid["results"].append({**valid["results"][0], "tier": "t_cpu", "status": "fail"}),
    ),
    # time and code
    "an older commit": ("stale", set_field("details.code", "0" * 64)),
    "a report of the future": ("stale", set_field("started", "2999-01-01T00:00:00+00:00")),
    "a day without a zone": ("stale", set_field("started", "2026-11-20T10:00:00")),
    "no day": ("stale", set_field("-started", None)),
    # numbers
    "a figure that is no number": ("numbers", set_field("results.0.measure.spread", NAN)),
    "one sample that is no number": ("numbers", set_field("results.0.measure.runs.2.7", NAN)),
    "an infinite clock": ("numbers", set_field("details.samples.3.gpu_clock_mhz", math.inf)),
    "a token in no time": ("numbers", set_field("results.0.measure.runs.1.0", 0.0)),
    "a token in less than none": ("numbers", set_field("results.0.measure.runs.1.0", -0.001)),
    "a speed in a word": ("numbers", set_field("results.0.measure.runs.0.0", "0.0066")),
    "a truth for a number": ("numbers", set_field("results.0.measure.runs.0.0", True)),
    "a result put in twice": ("numbers", duplicate_result),
    "a result that failed": ("numbers", set_field("results.0.status", "fail")),
    "more seconds than the report took": ("numbers", set_field("wall_seconds", 1.5)),
    "no wall time": ("numbers", set_field("-wall_seconds", None)),
    "percentiles in other units": ("numbers", convert_percentile_to_milliseconds),
    # speed
    "seconds in another unit": ("ceiling", forge_seconds(1 / 150_000)),
    "twice what the memory can deliver": ("ceiling", forge_seconds(1 / 1000)),
    # drift and spread
    "no sensor": ("drift", set_field("details.samples", [])),
    "two sensor samples": (
        "drift",
        set_field("details.samples", [{"gpu_clock_mhz": 2350.0, "gpu_temperature_c": 60.0, "power_w": 240.0}] * 2),
    ),
    "the median of one": ("spread", forge_seconds(1 / 150, runs=1)),
    "the median of two": ("spread", forge_seconds(1 / 150, runs=2)),
    "the fastest of runs far apart": (
        "spread",
        set_field(
            "results.0.measure.runs",
            [timed_runs(1 / s, 1, seed=i)[0] for i, s in enumerate((150, 120, 150, 110, 151))],
        ),
    ),
    # the summary
    "a summary that is better": ("samples", set_field("results.0.measure.tokens_per_second", 200.0)),
    "a summary that is no number": ("samples", set_field("results.0.measure.tokens_per_second", NAN)),
    "a summary in a word": ("samples", set_field("results.0.measure.tokens_per_second", "fast")),
    "no summary": ("samples", set_field("results.0.measure.-tokens_per_second", None)),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgery_is_rejected_by_its_rule(forgery: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation_report()
    rule, change = FORGERIES[forgery]
    change(bench, proof)
    result = decide_criterion(record_report(tmp_path, bench, proof))
    assert result.status == "blocked"
    assert rule in result_names(result), result.reason


def test_unforged_reports_pass(tmp_path: Path) -> None:
    result = decide_criterion(record_report(tmp_path, bench_report(), validation_report()))
    assert (result.status, result.reason.count("refused")) == ("pass", 0), result.reason


def test_at_least_fifty_forgeries_cover_every_rule() -> None:
    assert len(FORGERIES) >= 50
    elsewhere = {"edited", "head", "graph", "counts", "board", "sensors", "repeats", "order"}
    assert {rule for rule, _ in FORGERIES.values()} == set(RULES) - elsewhere


# --- JSON that is none ---


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_report_with_number_outside_json_is_rejected(word: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(bench_report()).replace("41.5", word))
    with pytest.raises(InputError, match=word):
        collect_reports([path])


def test_report_with_duplicate_key_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"schema": "zinc-rt-report/1", "ctx": 512, "ctx": 4096}')
    with pytest.raises(InputError, match="ctx occurs twice"):
        collect_reports([path])


# --- classes of models ---


@pytest.mark.parametrize(
    ("key", "shape"), [("qwen36", "qwen3.6-35b-a3b-q4_k_xl"), ("qwen3-8b", "qwen3-8b-q4_k_m")]
)
def test_class_is_defined_by_sizes_of_real_model(key: str, shape: str) -> None:
    model = next(
        c.model for m in load_milestones() for c in m.criteria if c.model is not None and c.model.key == key
    )
    sizes = SHAPES[shape].sizes
    assert (model.layers, model.width, model.vocab) == (sizes.layers, sizes.hidden, sizes.vocab)
    assert model.architectures == (SHAPES[shape].architecture,)


@pytest.mark.parametrize("model", sorted(FOLDER.glob("*.gguf")), ids=lambda path: path.stem)
def test_toy_models_have_no_class(model: Path) -> None:
    small = identify_model(read_gguf(model)).as_dict()
    for criterion in (c for m in load_milestones() for c in m.criteria if c.model is not None):
        assert criterion.model is not None and check_model_class(small, criterion.model) is not None
