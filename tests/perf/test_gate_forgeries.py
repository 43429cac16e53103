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
    decided,
    names_of,
    put,
    put_forward,
    timed,
    validation,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identity
from zinc_rt.perf.gate.milestones import milestones
from zinc_rt.perf.gate.report_files import collect
from zinc_rt.perf.refusals.model import other_class
from zinc_rt.perf.refusals.rules import RULES
from zinc_rt.perf.synthetic import SHAPES

NAN = math.nan


def valid(path: str, value: Any = None) -> Change:
    return put(path, value, "validation")


def both(path: str, value: Any) -> Change:
    """A careful forgery: both reports are consistent."""
    return every(put(path, value), valid(path, value))


def every(*changes: Change) -> Change:
    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for change in changes:
            change(bench, valid)

    return change


def seconds(value: float, runs: int = 5, tokens: int = 128) -> Change:
    """Runs with that many seconds per token, and a matching summary."""
    return every(
        put("results.0.measure.runs", timed(value, runs, tokens)),
        put("results.0.measure.tokens_per_second", 1 / value if value else 0.0),
    )


def toy(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """A complete, valid report of the embedded model of the same architecture, with the pinned digest."""
    small = identity(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()
    for report in (bench, valid):
        report["model"] |= small
    valid["details"]["jobs"]["m"]["layers"] = [0, 4, 4]
    valid["results"] = [*valid["results"][:4], valid["results"][-1]]


def layers_left_out(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """A validation of one layer with logits of another run."""
    valid["results"] = [valid["results"][0], valid["results"][-1]]


def layers_counted_twice(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    first = valid["results"][0]
    valid["results"] = [*(copy.deepcopy(first) for _ in range(LAYERS)), valid["results"][-1]]


def result_twice(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    better = copy.deepcopy(bench["results"][0])
    bench["results"].insert(0, better)


def percentile_in_milliseconds(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    bench["results"][0]["measure"]["p50_seconds"] = 1e3 / 150


FORGERIES: dict[str, tuple[str, Change]] = {
    # simulated evidence, relabelled
    "its flag taken off, its profile left": ("simulated", put("device.profile", "r9700")),
    "its flag taken off, its shortcut left": (
        "simulated",
        put("shortcuts", ["t2: simulated device: no evidence about hardware"]),
    ),
    "its name": ("simulated", put("device.name", "Radeon AI PRO R9700 (simulated)")),
    "its assumptions left": ("simulated", put("details.assumptions", [{"id": "function_bits"}])),
    "its sanitizer's findings left": ("simulated", put("details.findings", ["bounds: a wave reads beyond"])),
    "a flag that is a word": ("simulated", put("device.simulated", "no")),
    "no flag": ("simulated", put("device.-simulated", None)),
    # another device
    "a card of the same chip": ("hardware", both("device.name", "Radeon RX 9070 series")),
    "the card's name on another chip": ("hardware", both("device.arch", "gfx1100")),
    "no device at all": ("hardware", put("device", {"tier": "t2", "simulated": False})),
    # clamps
    "clamped layers of experts": ("shortcuts", put("details.settings.decode_topk", 1)),
    "settings left out": ("shortcuts", put("details.-settings", None)),
    "one setting left out": ("shortcuts", put("details.settings.-lm_head_rows", None)),
    "no list of shortcuts": ("shortcuts", put("-shortcuts", None)),
    "an unchecked card": ("shortcuts", put("shortcuts", ["t2: pm4-test has not run (--unchecked)"])),
    # tokens and workload
    "tokens capped in one run of five": (
        "tokens",
        put("results.0.measure.runs", [*timed(1 / 150, 4), *timed(1 / 150, 1, 8, seed=1)]),
    ),
    "half of the tokens that were asked for": (
        "tokens",
        every(seconds(1 / 150, tokens=128), put("details.workload.tokens", 256)),
    ),
    "four slots sold as one": ("workload", put("details.workload.slots", 4)),
    "no warm-up": ("workload", put("details.workload.warmup", 0)),
    "a context of 128": ("workload", put("ctx", 128)),
    # another tier, part of a model
    "t1's report": ("tier", every(put("device.tier", "t1"), put("results.0.tier", "t1"))),
    "nodes on the host": ("whole-model", put("direct_compute_ops", 400)),
    "a model of no nodes": (
        "whole-model",
        every(put("direct_compute_ops", 0), put("details.workload.nodes", 0)),
    ),
    "nodes that are a yes": (
        "whole-model",
        every(put("direct_compute_ops", True), put("details.workload.nodes", True)),
    ),
    # another model
    "a toy under the pinned digest": ("model", toy),
    "a quarter of the layers": ("model", both("model.layers", 10)),
    "a narrower model": ("model", both("model.width", 1024)),
    "a small vocabulary": ("model", both("model.vocab", 512)),
    "fewer weights": ("model", both("model.parameters", 3_000_000_000)),
    "two bits a weight": ("model", both("model.weights", {"q2_k": 10_000_000_000})),
    "weights that are more than the file": ("model", both("model.size_bytes", 9_000_000_000)),
    "a size left out": ("model", put("model.-size_bytes", None)),
    "a quantisation left out": ("model", put("model.weights", {})),
    "layers in words": ("model", both("model.layers", "40")),
    "another file's digest": ("digest", both("model.digest", "cd" * 32)),
    "two models in one report": (
        "digest",
        put("model", {"models": [{"digest": "ab" * 32}, {"digest": "ab" * 32}]}),
    ),
    # bits
    "one layer validated of all": ("bits", layers_left_out),
    "one layer counted for all": ("bits", layers_counted_twice),
    "a validation of some layers that says so": ("bits", valid("details.jobs.m.layers", [0, 4, LAYERS])),
    "a validation without a decoded token": ("bits", valid("details.jobs.m.steps", 0)),
    "bits of another ordering": ("bits", valid("details.devices.t2.ordering", "float32-dequant")),
    "an oracle of another ordering": ("bits", valid("details.devices.t_cpu.ordering", "canonical-1-q8")),
    "a speed in an ordering without bits": ("bits", put("ordering", "float32-dequant")),
    "bits under a clamp": ("bits", valid("details.settings", {**SETTINGS, "lm_head_rows": 16})),
    "bits under a clamp that is only named": ("bits", valid("shortcuts", ["LM head capped to 16 rows"])),
    "bits with the settings left out": ("bits", valid("details.-settings")),
    "bits of another machine": ("bits", valid("details.host", {**HOST, "processor": "Intel Xeon"})),
    "bits of no machine": ("bits", valid("details.-host")),
    "bits of another firmware": ("bits", valid("details.devices.t2.firmware", "MEC 3060")),
    "bits of another commit": ("bits", valid("details.code", "beef" * 16)),
    "bits of a smaller model": ("bits", valid("model.layers", 4)),
    "bits that are equal in a word": ("bits", valid("results.3.measure.equal_bits", "yes")),
    "bits that are equal and differ": ("bits", valid("results.3.measure.max_abs", 0.5)),
    "values that are no numbers": ("bits", valid("results.3.measure.nonfinite", 12)),
    "logits of the prompt alone": ("bits", valid("results.40.measure.positions", 8)),
    "a validation of tomorrow": ("bits", valid("started", "2999-01-01T00:00:00+00:00")),
    "a failed check beside them": (
        "bits",
        lambda bench, valid: valid["results"].append({**valid["results"][0], "tier": "t_cpu", "status": "fail"}),
    ),
    # time and code
    "an older commit": ("stale", put("details.code", "0" * 64)),
    "a report of the future": ("stale", put("started", "2999-01-01T00:00:00+00:00")),
    "a day without a zone": ("stale", put("started", "2026-11-20T10:00:00")),
    "no day": ("stale", put("-started", None)),
    # numbers
    "a figure that is no number": ("numbers", put("results.0.measure.spread", NAN)),
    "one sample that is no number": ("numbers", put("results.0.measure.runs.2.7", NAN)),
    "an infinite clock": ("numbers", put("details.samples.3.gpu_clock_mhz", math.inf)),
    "a token in no time": ("numbers", put("results.0.measure.runs.1.0", 0.0)),
    "a token in less than none": ("numbers", put("results.0.measure.runs.1.0", -0.001)),
    "a speed in a word": ("numbers", put("results.0.measure.runs.0.0", "0.0066")),
    "a truth for a number": ("numbers", put("results.0.measure.runs.0.0", True)),
    "a result put in twice": ("numbers", result_twice),
    "a result that failed": ("numbers", put("results.0.status", "fail")),
    "more seconds than the report took": ("numbers", put("wall_seconds", 1.5)),
    "no wall time": ("numbers", put("-wall_seconds", None)),
    "percentiles in other units": ("numbers", percentile_in_milliseconds),
    # speed
    "seconds in another unit": ("ceiling", seconds(1 / 150_000)),
    "twice what the memory can deliver": ("ceiling", seconds(1 / 1000)),
    # drift and spread
    "no sensor": ("drift", put("details.samples", [])),
    "two sensor samples": (
        "drift",
        put("details.samples", [{"gpu_clock_mhz": 2350.0, "gpu_temperature_c": 60.0, "power_w": 240.0}] * 2),
    ),
    "the median of one": ("spread", seconds(1 / 150, runs=1)),
    "the median of two": ("spread", seconds(1 / 150, runs=2)),
    "the fastest of runs far apart": (
        "spread",
        put(
            "results.0.measure.runs", [timed(1 / s, 1, seed=i)[0] for i, s in enumerate((150, 120, 150, 110, 151))]
        ),
    ),
    # the summary
    "a summary that is better": ("samples", put("results.0.measure.tokens_per_second", 200.0)),
    "a summary that is no number": ("samples", put("results.0.measure.tokens_per_second", NAN)),
    "a summary in a word": ("samples", put("results.0.measure.tokens_per_second", "fast")),
    "no summary": ("samples", put("results.0.measure.-tokens_per_second", None)),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forgery_is_rejected_by_its_rule(forgery: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation()
    rule, change = FORGERIES[forgery]
    change(bench, proof)
    result = decided(put_forward(tmp_path, bench, proof))
    assert result.status == "blocked"
    assert rule in names_of(result), result.reason


def test_unforged_reports_pass(tmp_path: Path) -> None:
    result = decided(put_forward(tmp_path, bench_report(), validation()))
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
        collect([path])


def test_report_with_duplicate_key_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"schema": "zinc-rt-report/1", "ctx": 512, "ctx": 4096}')
    with pytest.raises(InputError, match="ctx twice"):
        collect([path])


# --- classes of models ---


@pytest.mark.parametrize(
    ("key", "shape"), [("qwen36", "qwen3.6-35b-a3b-q4_k_xl"), ("qwen3-8b", "qwen3-8b-q4_k_m")]
)
def test_class_is_defined_by_sizes_of_real_model(key: str, shape: str) -> None:
    model = next(c.model for m in milestones() for c in m.criteria if c.model is not None and c.model.key == key)
    sizes = SHAPES[shape].sizes
    assert (model.layers, model.width, model.vocab) == (sizes.layers, sizes.hidden, sizes.vocab)
    assert model.architectures == (SHAPES[shape].architecture,)


@pytest.mark.parametrize("model", sorted(FOLDER.glob("*.gguf")), ids=lambda path: path.stem)
def test_toy_models_have_no_class(model: Path) -> None:
    small = identity(read_gguf(model)).as_dict()
    for criterion in (c for m in milestones() for c in m.criteria if c.model is not None):
        assert criterion.model is not None and other_class(small, criterion.model) is not None
