"""Requests through the scheduler: each figure is computed from samples of the product's own front."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_evidence import (
    Change,
    bench_report,
    decide_criterion,
    record_report,
    result_names,
    scattered_runs,
    set_field,
    timed_runs,
    validation_report,
)

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.bench.requests import make_request_results, measure_requests
from zinc_rt.perf.bench.runs import BenchWorkload
from zinc_rt.perf.command import main
from zinc_rt.perf.gate.figures import FIGURES, REQUEST_FIGURES, compute_figure
from zinc_rt.perf.gate.milestones import REQUESTS, load_milestones
from zinc_rt.perf.machine import Sampler
from zinc_rt.perf.structure.lab import Lab

MODEL = FOLDER / "qwen3-q.gguf"


def test_requests_give_one_sample_a_run_and_the_cached_tokens(tmp_path: Path) -> None:
    engine = Engine(read_gguf(MODEL), CpuBackend("canonical-1"), slots=2)
    load = BenchWorkload(prompt_tokens=34, tokens=6, slots=2, warmup=1, runs=2)
    timed_runs = measure_requests(engine, load, Sampler(sysfs=tmp_path))
    assert len(timed_runs.warm) == len(timed_runs.idle) == len(timed_runs.steady) == 2
    assert timed_runs.cached == [32, 32], "two whole pages"
    assert [len(run) for run in timed_runs.gaps] == [6, 6]
    assert timed_runs.spans == [1.0, 1.0], "the host is asked for every token"
    results = {
        request_result.id: request_result.measure
        for request_result in make_request_results(timed_runs, load, "t_cpu")
    }
    assert set(results) == set(REQUEST_FIGURES) == set(REQUESTS)
    assert results["fairness"]["p99_over_p50"] >= 1 and results["endurance"]["tokens"] == 1
    alone = make_request_results(timed_runs, BenchWorkload(slots=1), "t_cpu")
    assert "fairness" not in {item.id for item in alone}, "a stream alone shows nothing of it"


def test_requests_that_do_not_fit_are_rejected() -> None:
    engine = Engine(read_gguf(MODEL), CpuBackend("canonical-1"), ctx=32)
    with pytest.raises(UsageError, match="do not fit the context"):
        measure_requests(engine, BenchWorkload(prompt_tokens=4, tokens=20), Sampler())


def test_every_request_criterion_has_a_bench() -> None:
    for criterion in (criterion for milestone in load_milestones() for criterion in milestone.criteria):
        if criterion.measure in REQUESTS:
            assert criterion.figure in FIGURES[criterion.measure].of and "--requests" in criterion.command


@pytest.mark.rest
def test_bench_command_records_requests(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    load = ["--slots", "2", "--prompt-tokens", "20", "--tokens", "4", "--runs", "2", "--ctx", "64"]
    line = ["bench", "--model", str(MODEL), "--tier", "t_cpu", *load, "--requests", "--json", str(path)]
    assert main(line) == 0
    body = json.loads(path.read_text())
    names = [result["id"] for result in body["results"]]
    assert names == ["aggregate", "prefill", "ttft", "ttft_warm", "idle_to_stream", "endurance", "fairness"]
    for criterion in (criterion for milestone in load_milestones() for criterion in milestone.criteria):
        if criterion.measure in REQUESTS:
            result = next(result for result in body["results"] if result["id"] == criterion.measure)
            assert compute_figure(criterion, result) == pytest.approx(result["measure"][criterion.figure])
    assert main([*line[:5], "--slots", "1,2", "--runs", "2", "--requests"]) == 2


def test_warm_prompt_and_idle_device_are_judged_on_the_simulated_device() -> None:
    from zinc_rt.perf.gate.milestones import find_milestone
    from zinc_rt.perf.gate.offered import GateInput
    from zinc_rt.perf.gate.verdict import evaluate

    with Lab(device="sim") as lab:
        for name in ("warm-prompt", "first-submission"):
            (result,) = evaluate(find_milestone("M5"), lab, GateInput(), only=name)
            assert result.status == "pass", result.reason


def add_warm_runs(seconds: float = 0.05, cached: int = 112) -> Change:
    def add_measure(bench: dict, valid: dict) -> None:  # type: ignore[type-arg]
        measure = {"seconds": 0.0, "prompt_tokens": 128, "runs": scattered_runs(seconds), "cached": [cached] * 5}
        measure["seconds"] = sorted(measure["runs"])[2]  # type: ignore[call-overload]
        bench["results"].append({"id": "ttft_warm", "tier": "t1", "status": "pass", "measure": measure})
        bench["device"]["tier"] = "t1"
        valid["details"]["devices"]["t1"] = valid["details"]["devices"].pop("t2")
        for result in (*bench["results"], *valid["results"]):
            result["tier"] = "t1"

    return add_measure


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (add_warm_runs(), ""),
        (add_warm_runs(cached=0), "counts"),
        (add_warm_runs(cached=64), "counts"),
        (add_warm_runs(seconds=1e-5), "ceiling"),
    ],
)
def test_warm_first_token_needs_a_cached_prompt(change: Change, rule: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation_report()
    change(bench, proof)
    result = decide_criterion(record_report(tmp_path, bench, proof), "ttft-warm", "M5")
    assert (result.status == "pass") is not bool(rule), result.reason
    assert not rule or rule in result_names(result), result.reason


@pytest.mark.parametrize(("others", "gaps", "accepted"), [(32, 128, True), (2, 128, False), (32, 20, False)])
def test_fairness_requires_full_slots_and_enough_gaps(
    others: int,
    gaps: int,
    accepted: bool,
    tmp_path: Path,
) -> None:
    bench, proof = bench_report(), validation_report()
    runs = timed_runs(1 / 100, tokens=gaps)
    values = sorted(value for run in runs for value in run)
    ratio = values[round(0.99 * len(values)) - 1] / values[round(0.5 * len(values)) - 1]
    measure = {"p99_over_p50": ratio, "runs": runs, "slots": 16, "others": others}
    rows = [{"id": "fairness", "tier": "t2", "status": "pass", "measure": measure}]
    bench["results"] = rows
    set_field("details.workload.slots", 16)(bench, proof)
    set_field("details.-sampled", None)(bench, proof)
    result = decide_criterion(record_report(tmp_path, bench, proof), "fairness", "M3")
    assert (result.status == "pass") is accepted, result.reason
    assert accepted or "counts" in result_names(result)
