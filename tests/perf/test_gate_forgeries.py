"""Forgeries, one a row: each is refused by the rule that is there for it, by name, and without it the gate passes.

Whoever forges here may edit any field, record what was edited in a history of his own, and relabel files.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    CODE,
    HOST,
    LAYERS,
    SETTINGS,
    bench_report,
    llama_bench_output,
    native_details,
    put_forward,
    validation,
    with_peer,
)

from zinc_rt.code_version import runtime_version
from zinc_rt.errors import InputError
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host import host
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identity
from zinc_rt.perf.bench.peers import llama_bench
from zinc_rt.perf.command import main as perf
from zinc_rt.perf.gate.milestones import Criterion, find_milestone, milestones
from zinc_rt.perf.gate.offered import GateInput, OfferedReport
from zinc_rt.perf.gate.report_files import ReportFile, collect
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.history.chain import append, read
from zinc_rt.perf.refusals.model import other_class
from zinc_rt.perf.refusals.rules import AGAINST, RULES, TIMED_RULES, refusals
from zinc_rt.perf.structure.lab import Lab
from zinc_rt.perf.synthetic import SHAPES
from zinc_rt.report import Result
from zinc_rt.validate.command import main as validate

Change = Callable[[dict[str, Any], dict[str, Any]], Any]
NAN = math.nan
DOT = re.compile(r"\.(?=[a-z_-]|\d+(?:\.|$))")  # a model's name has others


def put(path: str, value: Any, report: str = "bench") -> Change:
    """Sets one field: "details.samples.0.power_w". A path that ends in "-" takes it away."""

    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        place: Any = bench if report == "bench" else valid
        *folders, last = DOT.split(path)
        for name in folders:
            place = place[int(name)] if isinstance(place, list) else place[name]
        if last.startswith("-"):
            del place[last[1:]]
        else:
            place[int(last) if isinstance(place, list) else last] = value

    return change


def valid(path: str, value: Any = None) -> Change:
    return put(path, value, "validation")


def both(path: str, value: Any) -> Change:
    """The forger is careful: both reports tell the same story."""
    return every(put(path, value), valid(path, value))


def every(*changes: Change) -> Change:
    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for each in changes:
            each(bench, valid)

    return change


def seconds(value: float, runs: int = 5, tokens: int = 128) -> Change:
    """Runs of that many seconds a token, with a summary that fits."""
    made = [[value] * tokens for _ in range(runs)]
    return every(
        put("results.0.measure.runs", made),
        put("results.0.measure.tokens_per_second", 1 / value if value else 0.0),
    )


def toy(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """The embedded model of the same architecture, whole and honest, under the digest that is pinned."""
    small = identity(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()
    for report in (bench, valid):
        report["model"] |= small
    valid["details"]["jobs"]["m"]["layers"] = [0, 4, 4]
    valid["results"] = [*valid["results"][:4], valid["results"][-1]]


def layers_left_out(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    """One layer validated, and logits of another run."""
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
        put("shortcuts", ["t2: simulated device: says nothing about hardware"]),
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
        put("results.0.measure.runs", [*[[1 / 150] * 128] * 4, [1 / 150] * 8]),
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
        put("details.samples", [{"gpu_clock_mhz": 2350.0, "gpu_temperature_c": 60.0}] * 2),
    ),
    "the median of one": ("spread", seconds(1 / 150, runs=1)),
    "the median of two": ("spread", seconds(1 / 150, runs=2)),
    "the fastest of runs far apart": (
        "spread",
        put("results.0.measure.runs", [[1 / s] * 128 for s in (150, 120, 150, 110, 150)]),
    ),
    # the summary
    "a summary that is better": ("samples", put("results.0.measure.tokens_per_second", 200.0)),
    "a summary that is no number": ("samples", put("results.0.measure.tokens_per_second", NAN)),
    "a summary in a word": ("samples", put("results.0.measure.tokens_per_second", "fast")),
    "no summary": ("samples", put("results.0.measure.-tokens_per_second", None)),
}


def decided(given: GateInput, only: str = "decode", milestone: str = "M1") -> Result:
    with Lab() as lab:
        (result,) = evaluate(find_milestone(milestone), lab, given, only=only)
    return result


def names_of(result: Result) -> set[str]:
    """The rules that refused, as a person reads them."""
    return {name for name in (*RULES, *AGAINST, *TIMED_RULES) if f"{name}: " in result.reason}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_refused_by_its_rule(forgery: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation()
    rule, change = FORGERIES[forgery]
    change(bench, proof)
    result = decided(put_forward(tmp_path, bench, proof))
    assert result.status == "blocked"
    assert rule in names_of(result), result.reason


def test_what_they_start_from_passes(tmp_path: Path) -> None:
    result = decided(put_forward(tmp_path, bench_report(), validation()))
    assert (result.status, result.reason.count("refused")) == ("pass", 0), result.reason


def test_there_are_fifty_and_every_rule_has_one() -> None:
    assert len(FORGERIES) >= 50
    assert {rule for rule, _ in FORGERIES.values()} == set(RULES) - {"edited", "head"}, "those two are below"


# --- the history ---


def test_a_history_without_its_head_proves_nothing(tmp_path: Path) -> None:
    given = put_forward(tmp_path, bench_report(), validation())
    result = decided(replace(given, head=""))
    assert result.status == "blocked" and names_of(result) == {"head"}
    assert "nobody noted" in result.reason


def forged_history(folder: Path, how: str) -> GateInput:
    """`how` the file is forged, after its head was noted."""
    fast, slow = bench_report(), bench_report()
    slow["started"] = "2026-11-21T10:00:00+00:00"
    slow["results"][0]["measure"] |= {"runs": [[1 / 100] * 128 for _ in range(5)], "tokens_per_second": 100.0}
    given = put_forward(folder, fast, validation(), slow)
    path, offered = folder / "history.jsonl", [given.reports[0], given.reports[1]]
    lines = path.read_text().splitlines()
    if how == "its end left out":
        path.write_text("\n".join(lines[:2]) + "\n")
    elif how == "made anew":
        path.unlink()
        for each in offered:
            append(path, each.command, each.report, {})
    elif how == "a line of no JSON":
        path.write_text("\n".join([lines[0], "{", *lines[1:]]) + "\n")
    elif how == "a line twice":
        path.write_text("\n".join([*lines, lines[0]]) + "\n")
    elif how == "another schema":
        path.write_text(path.read_text().replace("zinc-rt-history/1", "zinc-rt-history/9", 1))
    elif how == "as another command's":
        path.unlink()
        for each in offered:
            append(path, "run", each.report, {})
        return replace(given, reports=offered, history=read(path), head=read(path).head)
    return replace(given, reports=offered, history=read(path))


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ("its end left out", "head"),
        ("made anew", "head"),
        ("a line of no JSON", "edited"),
        ("a line twice", "edited"),
        ("another schema", "edited"),
        ("as another command's", "edited"),
    ],
)
def test_a_forged_history_is_refused(how: str, rule: str, tmp_path: Path) -> None:
    result = decided(forged_history(tmp_path, how))
    assert result.status == "blocked" and rule in names_of(result), result.reason


def test_a_report_recorded_before_it_began_is_refused(tmp_path: Path) -> None:
    given = put_forward(tmp_path, bench_report(), validation())
    assert given.history is not None
    early = [replace(entry, at="2020-01-01T00:00:00+00:00") for entry in given.history.entries]
    result = decided(replace(given, history=replace(given.history, entries=tuple(early))))
    assert names_of(result) == {"stale"} and "recorded before" in result.reason


def test_a_later_report_that_is_kept_back_is_asked_for(tmp_path: Path) -> None:
    """The slow one of the next day is in the history, and not among what is put forward."""
    result = decided(forged_history(tmp_path, ""))
    assert names_of(result) == {"edited"} and "entry 3, that is kept back" in result.reason


def test_a_file_that_is_read_is_believed_before_a_report(tmp_path: Path) -> None:
    """--models: the digest is right, and the shape is the file's, not what the report says of it."""
    given = put_forward(tmp_path, bench_report(), validation())
    small = {"digest": "ab" * 32, **identity(read_gguf(FOLDER / "qwen35moe-q.gguf")).as_dict()}
    result = decided(replace(given, model_digest="", models={"ab" * 32: small}))
    assert names_of(result) == {"digest"} and "the file of this digest has" in result.reason


def test_what_the_commands_write_is_refused_only_for_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of bench and validate themselves, of a toy on a tier that is no GPU: all else about them is as the
    rules want it, so that evidence of the card with the right model would do."""
    model, history = str(FOLDER / "qwen3-q.gguf"), str(tmp_path / "h.jsonl")
    for name in ("ZINC_RT_TIER", "ZINC_RT_LM_HEAD_ROWS"):
        monkeypatch.delenv(name, raising=False)
    load = ["--prompt-tokens", "4", "--tokens", "4", "--runs", "3", "--ctx", "64"]
    bench = ["bench", "--model", model, "--tier", "t_cpu_native", *load, "--history", history]
    assert perf([*bench, "--json", str(tmp_path / "b.json")]) == 0
    tiers = ["--tiers", "t_cpu_native,t_cpu", "--ctx", "64", "--json", str(tmp_path / "v.json")]
    assert validate(["--model", model, *tiers]) == 0
    assert perf(["history", history, "--add", str(tmp_path / "v.json")]) == 0
    capsys.readouterr()
    known = read(Path(history))
    decode = next(each for each in find_milestone("M1").criteria if each.id == "decode")
    reports = collect([tmp_path / "b.json", tmp_path / "v.json"])[0]
    digest = reports[0].model_digests[0]
    bench_result = reports[0].result("decode")
    assert bench_result is not None
    given = GateInput(reports, (), known, digest, known.head, runtime_version())
    case = OfferedReport(replace(decode, tier="t_cpu_native"), reports[0], bench_result, given)
    refused = {reason.partition(":")[0] for reason in refusals(case)}
    assert refused <= {"hardware", "tokens", "workload", "model", "drift", "spread", "ceiling"}, refusals(case)
    assert {"hardware", "tokens", "model", "drift"} <= refused


# --- peers ---


def peer_field(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda measure: measure["peer"].update({name: value})


def outputs(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    """llama-bench's own words with some of them changed."""

    def change(measure: dict[str, Any]) -> None:
        made = []
        for text in measure["peer"]["outputs"]:
            (row,) = json.loads(text)
            made.append(json.dumps([{**row, **changes}]))
        measure["peer"]["outputs"] = made

    return change


PEERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing of it kept": lambda measure: measure.pop("peer"),
    "a script": peer_field("kind", "script"),
    "a program nobody knows": peer_field("program", "slow-bench"),
    "no digest of the program": peer_field("sha256", ""),
    "a program that was gone": peer_field("kind", "missing"),
    "no output": peer_field("outputs", []),
    "fewer outputs than runs": lambda measure: measure["peer"]["outputs"].pop(),
    "one output for all": peer_field("outputs", [llama_bench_output(160.0)] * 5),
    "a table that looks like it": peer_field("outputs", [f"| tg128 | {n} ± 0 |" for n in range(5)]),
    "no build": outputs(build_commit=""),
    "another model": outputs(model_n_params=8_000_000_000),
    "another quantisation": outputs(model_size=60_000_000_000),
    "on the processor": outputs(gpu_info="", backends="CPU"),
    "half of the layers on the card": outputs(n_gpu_layers=20),
    "eight tokens": outputs(n_gen=8),
    "behind a long prompt": outputs(n_prompt=4000),
    "a slower run put down": lambda measure: measure.update(
        pairs=[[150.0, 120.0]] * 5, ratio=1.25, ratio_low=1.25
    ),
    "an average its samples deny": outputs(avg_ts=100.0),
    "no speed": outputs(avg_ts=0.0, samples_ts=[0.0]),
    "a ratio its pairs deny": lambda measure: measure.update(ratio=2.0),
    "a ratio that is no number": lambda measure: measure.update(ratio=NAN),
}


@pytest.mark.parametrize("forgery", PEERS)
def test_a_peer_that_is_none_is_refused(forgery: str, tmp_path: Path) -> None:
    bench = with_peer(bench_report())
    PEERS[forgery](bench["results"][1]["measure"])
    result = decided(put_forward(tmp_path, bench, validation()), "against-peer")
    assert result.status == "blocked"
    assert names_of(result) & {"peer", "numbers"}, result.reason


def test_what_llama_bench_says_is_read() -> None:
    said = llama_bench(llama_bench_output(160.0))
    assert (said.tokens_per_second, said.version, said.generated) == (160.0, "0c1e57098 (6900)", 128)
    with pytest.raises(InputError, match="one text generation test"):
        llama_bench("[]")


# --- JSON that is none ---


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_report_with_a_number_that_json_lacks_is_no_report(word: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(bench_report()).replace("41.5", word))
    with pytest.raises(InputError, match=word):
        collect([path])


def test_a_key_written_twice_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"schema": "zinc-rt-report/1", "ctx": 512, "ctx": 4096}')
    with pytest.raises(InputError, match="ctx twice"):
        collect([path])


# --- classes of models ---


@pytest.mark.parametrize(
    ("key", "shape"), [("qwen36", "qwen3.6-35b-a3b-q4_k_xl"), ("qwen3-8b", "qwen3-8b-q4_k_m")]
)
def test_a_class_is_that_of_the_real_models_sizes(key: str, shape: str) -> None:
    wanted = next(c.model for m in milestones() for c in m.criteria if c.model is not None and c.model.key == key)
    sizes = SHAPES[shape].sizes
    assert (wanted.layers, wanted.width, wanted.vocab) == (sizes.layers, sizes.hidden, sizes.vocab)
    assert wanted.architectures == (SHAPES[shape].architecture,)


@pytest.mark.parametrize("model", sorted(FOLDER.glob("*.gguf")), ids=lambda path: path.stem)
def test_no_toy_is_of_any_class(model: Path) -> None:
    small = identity(read_gguf(model)).as_dict()
    for criterion in (c for m in milestones() for c in m.criteria if c.model is not None):
        assert criterion.model is not None and other_class(small, criterion.model) is not None


# --- this machine's CPU ---


def native_report() -> dict[str, Any]:
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
    "a run that is no number": ("samples", "results.0.measure.runs.0", NAN),
    "a run of nothing": ("samples", "results.0.measure.runs.0", -1.0),
    "a noisy machine's": ("samples", "results.0.measure.conditions.load", [9.0] * 6),
    "the oracle's": ("samples", "results.0.tier", "t_cpu"),
    "of tomorrow": ("stale", "started", "2999-01-01T00:00:00+00:00"),
}


@pytest.mark.parametrize("forgery", NATIVE)
def test_a_forged_speed_of_the_cpu_is_refused(forgery: str, tmp_path: Path) -> None:
    report = native_report()
    rule, path, value = NATIVE[forgery]
    put(path, value)(report, {})
    given = replace(put_forward(tmp_path, report), host=host())
    result = decided(given, "q8-decode", "cpu")
    assert result.status == "blocked" and rule in names_of(result), result.reason


def test_the_speed_of_the_cpu_they_start_from_passes(tmp_path: Path) -> None:
    given = replace(put_forward(tmp_path, native_report()), host=host())
    result = decided(given, "q8-decode", "cpu")
    assert (result.status, round(result.measure["value"], 3)) == ("pass", 1.506), result.reason
    result = decided(replace(given, head=""), "q8-decode", "cpu")
    assert names_of(result) == {"head"}


def test_every_rule_of_the_cpus_speeds_has_a_forgery() -> None:
    assert {rule for rule, _, _ in NATIVE.values()} == set(TIMED_RULES) - {"edited", "head"}


def test_an_evidence_of_another_command_decides_nothing(tmp_path: Path) -> None:
    bench = bench_report()
    bench["command"] = "run"
    result = decided(put_forward(tmp_path, bench, validation()))
    assert result.status == "blocked" and result.measure["refused"] == []
    assert (
        isinstance(find_milestone("M1").criteria[-2], Criterion) and ReportFile(tmp_path, bench).command == "run"
    )
