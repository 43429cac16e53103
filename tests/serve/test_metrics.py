"""Figures are those of what ran: of a scheduler whose clock goes a millisecond a look, and of a server."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server
from prometheus_client.parser import text_string_to_metric_families
from ticking_scheduler import make_scheduler, run_scheduler
from vulkan_driver import require_driver

from zinc_rt.sched.plan import Batch
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler
from zinc_rt.sched.state import StepTimes
from zinc_rt.serve.config.settings import DeviceSettings
from zinc_rt.serve.observe.histogram import Histogram
from zinc_rt.serve.observe.metrics import find_finish_reason_label
from zinc_rt.serve.observe.model_metrics import ModelMetrics, RequestTimes

VLLM = """
    num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries prefix_cache_hits
    num_preemptions prompt_tokens generation_tokens spec_decode_num_draft_tokens
    spec_decode_num_accepted_tokens request_success time_to_first_token_seconds
    inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds
    request_decode_time_seconds iteration_tokens_total cache_config_info
"""


def sum_counts(histogram: Histogram) -> int:
    return int(histogram.counts.sum())


def serve_requests(scheduler: Scheduler, spaces: list, requests: int = 6) -> None:
    for number in range(1, requests + 1):
        tenant = number % len(spaces)
        sampling = Sampling(number, seed=number, n=1 + number % 2)
        scheduler.submit(NewRequest(number, tenant, [1, 2, 3] * number, spaces[tenant], sampling))


def test_value_counts_in_first_bucket_with_edge_not_below_it() -> None:
    histogram = Histogram((1, 2, 5))
    histogram.observe(0.5, 1, 1.5, 5, 6)
    assert histogram.buckets() == [("1.0", 2), ("2.0", 3), ("5.0", 4), ("+Inf", 5)] and histogram.sum == 14


def test_each_choice_has_one_first_token_and_gaps_for_the_rest() -> None:
    scheduler, ledger, spaces = make_scheduler(["ada", "bob"])
    ends: list[tuple[Request, RequestTimes, int]] = []
    metrics = ModelMetrics(scheduler, lambda *end: ends.append(end))
    serve_requests(scheduler, spaces)
    run_scheduler(scheduler)
    result = ledger.sums()[0]["tokens_generated"]
    choices = 3 * 1 + 3 * 2
    assert (
        sum_counts(metrics.first_token)
        == sum_counts(metrics.whole)
        == sum_counts(metrics.queue)
        == choices
        == len(ends)
    )
    assert sum_counts(metrics.between_tokens) == result - choices and metrics.generated_tokens.sum == result
    assert sum_counts(metrics.step_tokens) == ledger.sums()[1]["steps"] == sum_counts(metrics.step["device"])
    assert metrics.step_tokens.sum == ledger.sums()[1]["input_tokens"]
    assert sum(sum_counts(item) for item in metrics.tenant_wait.values()) == choices
    for request, times, now_ns in ends:
        assert (
            request.arrived_ns == times.arrived_ns <= times.admitted_ns < times.first_ns or request.generated == 1
        )
        assert now_ns > times.admitted_ns
    assert metrics.queue.sum < metrics.first_token.sum < metrics.whole.sum
    assert not metrics._times and not metrics._over  # nothing is kept of who has gone


def test_request_ending_without_a_token_leaves_nothing() -> None:
    scheduler, _, spaces = make_scheduler(["ada"])
    metrics = ModelMetrics(scheduler)
    serve_requests(scheduler, spaces, 14)
    scheduler.step()
    for number in range(1, 15):
        scheduler.cancel(number)
    run_scheduler(scheduler)
    assert sum_counts(metrics.whole) == 21 and not metrics._times


def test_tokens_per_second_cover_the_last_minute() -> None:
    scheduler, _, spaces = make_scheduler(["ada"])
    metrics = ModelMetrics(scheduler)
    assert metrics.compute_tokens_per_second() == 0
    serve_requests(scheduler, spaces)
    run_scheduler(scheduler)
    assert metrics.compute_tokens_per_second() == pytest.approx(metrics.generated_tokens.sum, rel=0.5)
    for _ in range(61_000):
        scheduler.clock_ns()
    assert metrics.compute_tokens_per_second() == 0


def test_every_finish_state_maps_to_a_vllm_reason() -> None:
    texts = {
        f"requests_{state.value}.{reason}" for state in State for reason in ("stop", "length", "deadline", "gone")
    }
    words = Counter(find_finish_reason_label(counter) for counter in texts)
    assert set(words) == {"", "stop", "length", "abort", "error"}
    assert find_finish_reason_label("requests_cancelled.stop") == "stop"  # a stop string
    assert find_finish_reason_label("tokens_generated") == find_finish_reason_label("requests_accepted") == ""


def scrape_metrics(serving: RunningServer, **headers: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    text = httpx.get(f"{serving.url}/metrics", headers=headers).raise_for_status().text
    result: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            result.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return result


def test_metrics_use_vllm_names_and_labels(serving: RunningServer) -> None:
    result = scrape_metrics(serving)
    label = ("model_name", MODEL)
    for name in VLLM.split():
        names = [item for item in result if re.fullmatch(f"vllm:{name}(_total|_bucket)?", item)]
        assert names and all(label in labels for name in names for labels in result[name]), name
    assert {dict(labels)["finished_reason"] for labels in result["vllm:request_success_total"]} == {
        "stop", "length", "abort", "error",
    }  # fmt: skip
    assert result["zinc_rt_simulated"] == {(): 0} and result["process_resident_memory_bytes"][()] > 1e6
    assert result["zinc_rt_tenant_slots"] == {(label, ("tenant", "default")): 0}


def test_histogram_buckets_are_cumulative_up_to_the_count(serving: RunningServer) -> None:
    result = scrape_metrics(serving)
    for name, samples in result.items():
        if name.endswith("_bucket"):
            for labels, count in result[name.replace("_bucket", "_count")].items():
                edges = {key: value for key, value in samples.items() if set(labels) < set(key)}
                in_order = [value for _, value in sorted(edges.items(), key=lambda e: float(dict(e[0])["le"]))]
                assert in_order == sorted(in_order) and in_order[-1] == count
                assert np.isfinite(result[name.replace("_bucket", "_sum")][labels])


def test_responses_are_counted_by_status(serving: RunningServer) -> None:
    before = scrape_metrics(serving)["zinc_rt_http_responses_total"].get((("code", "404"),), 0)
    for _ in range(3):
        assert httpx.get(f"{serving.url}/nowhere").status_code == 404
    assert scrape_metrics(serving)["zinc_rt_http_responses_total"][("code", "404"),] == before + 3


def test_openmetrics_is_returned_on_request(serving: RunningServer) -> None:
    answer = httpx.get(f"{serving.url}/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_request_failing_at_its_sampled_token_is_counted_once() -> None:
    scheduler: Any = SimpleNamespace(observers=[], limits=SimpleNamespace(ctx=64), clock_ns=lambda: 9, now_ns=5)
    metrics = ModelMetrics(scheduler)
    request: Any = SimpleNamespace(
        number=1, choice=0, tenant=0, arrived_ns=1, prompt=3, generated=1, state=State.FAILED
    )
    for what in ("arrive", "admit", "end"):
        metrics.event(what, request, 0)
    drawn = Batch(1, np.array([1]), np.array([0], np.int8), np.array([7], np.int32))
    plan: Any = SimpleNamespace(tokens=4)
    metrics.stepped(plan, drawn, StepTimes(1, 2, 3, 4))
    assert (sum_counts(metrics.whole), sum_counts(metrics.first_token)) == (1, 0)


@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native", "vulkan", "t1", "t2"])
@pytest.mark.parametrize("temperature", [0.9, 0.0])
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=5)
def test_served_token_costs_one_submission_and_one_wait(tier: str, temperature: float) -> None:
    """With penalties and logprobs, and greedy without."""
    if tier == "vulkan":
        require_driver()
    device = DeviceSettings(tier, "sim" if tier in ("t1", "t2") else "auto", graph_cache=False)
    body: dict[str, Any] = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 8, "ignore_eos": True}
    if temperature:
        body |= {"temperature": temperature, "presence_penalty": 0.4, "repetition_penalty": 1.2, "logprobs": 3}
    names = ("zinc_rt_submissions_total", "zinc_rt_waits_total", "vllm:generation_tokens_total")
    model = (("model_name", MODEL),)
    for serving in run_server(make_config(device=device)):
        answer = httpx.post(f"{serving.url}/v1/completions", json=body, timeout=300).raise_for_status().json()
        assert answer["usage"]["completion_tokens"] == 8
        before = scrape_metrics(serving)
        httpx.post(f"{serving.url}/v1/completions", json=body, timeout=300).raise_for_status()
        after = scrape_metrics(serving)
        assert [after[name][model] - before[name][model] for name in names] == [8, 8, 8]
