"""Prometheus metrics at /metrics: vLLM's names where the meaning is the same, `zinc_rt_` for the rest.

A scrape reads the counters of the scheduler, the ledger and ModelMetrics; it keeps no counters itself. The
engine thread continues meanwhile: each value is consistent, but two values may be one step apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from zinc_rt.sched.kv.pages import Pool
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.usage.ledger import RESERVED
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.observe.histogram import Histogram
from zinc_rt.serve.observe.model_metrics import ModelMetrics
from zinc_rt.serve.tenants.auth import require_scope

TENANTS = 256  # that have a label of their own; the rest are one, `other`
OTHER = "other"

GAUGES: dict[str, tuple[str, Callable[[Scheduler], float]]] = {
    "vllm:num_requests_running": (
        "Choices of requests in a slot.",
        lambda s: s.limits.slots - len(s.slots.free),
    ),
    "vllm:num_requests_waiting": ("Requests waiting for a slot.", lambda s: sum(s.queues.by_class.values())),
    "vllm:kv_cache_usage_perc": (
        "Fraction of pages in use in the fullest page group; pages used only by the cache count as free.",
        lambda s: max(group.pool.used / group.pool.count for group in s.cache.pools),
    ),
    "zinc_rt_parked": (
        "Preempted requests that keep their pages.",
        lambda s: len(s.parked_requests),
    ),
}
# of the ledger's counters, summed over tenants
COUNTERS: dict[str, tuple[str, Callable[[Counter[str]], int]]] = {
    "vllm:prompt_tokens": (
        "Prompt tokens, including cached tokens.",
        lambda c: c["prompt_tokens_computed"] + c["prompt_tokens_cached"],
    ),
    "vllm:generation_tokens": ("Tokens drawn.", lambda c: c["tokens_generated"]),
    "vllm:num_preemptions": (
        "Requests that were preempted or evicted.",
        lambda c: c["parks"] + c["evictions"],
    ),
    "zinc_rt_evictions": ("Requests whose pages were evicted; they are recomputed.", lambda c: c["evictions"]),
    "zinc_rt_tokens_recomputed": ("Tokens recomputed after an eviction or a failed step.",
                                  lambda c: c["tokens_recomputed"]),
    "vllm:spec_decode_num_draft_tokens": ("Draft tokens verified.", lambda c: c["draft_inputs"]),
    "vllm:spec_decode_num_accepted_tokens": (
        "Draft tokens that were accepted.",
        lambda c: c["draft_inputs"] - c["draft_rejected"],
    ),
}  # fmt: skip
HISTOGRAMS: dict[str, tuple[str, Callable[[ModelMetrics], Histogram]]] = {
    "vllm:time_to_first_token_seconds": ("Time from arrival to the first token.", lambda m: m.first_token),
    "vllm:inter_token_latency_seconds": ("Time between consecutive tokens.", lambda m: m.between_tokens),
    "vllm:e2e_request_latency_seconds": ("Time from arrival to the end of the request.", lambda m: m.whole),
    "vllm:request_queue_time_seconds": ("Time from arrival to the first slot.", lambda m: m.queue),
    "vllm:request_inference_time_seconds": ("Time from the first slot to the end.", lambda m: m.running),
    "vllm:request_prefill_time_seconds": ("Time from the first slot to the first token.", lambda m: m.prefill),
    "vllm:request_decode_time_seconds": ("Time from the first token to the end.", lambda m: m.decode),
    "vllm:request_prompt_tokens": ("Prompt tokens per request.", lambda m: m.prompt_tokens),
    "vllm:request_generation_tokens": ("Answer tokens per request.", lambda m: m.generated_tokens),
    "vllm:iteration_tokens_total": ("Tokens computed per step.", lambda m: m.step_tokens),
}
TENANT_TOKENS = {
    "prompt": "prompt_tokens_computed",
    "prompt_cached": "prompt_tokens_cached",
    "generated": "tokens_generated",
    "discarded": "tokens_discarded",
    "recomputed": "tokens_recomputed",
}
HELD = {
    "slots": "Slots in use by a tenant.",
    "waiting": "Waiting requests of a tenant.",
    "kv_pages": "Pages charged to a tenant.",
    "share": "Dominant share of a tenant: its largest fraction of any resource.",
}


@dataclass(eq=False, slots=True)
class ServerCollector(Collector):
    """A collector for the metric families of all resident models, created at each scrape."""

    server: InferenceServer
    responses: Mapping[int, int]  # so many by status

    def collect(self) -> Iterable[Metric]:
        models = list(self.server.models.values())
        yield from _make_process_families(self.server, models, self.responses)
        counts = {model.id: model.core.ledger.list_by_account() for model in models}
        totals = {model: _sum_accounts(by_account) for model, by_account in counts.items()}
        for name, (words, read) in GAUGES.items():
            gauge = GaugeMetricFamily(name, words, labels=["model_name"])
            for model in models:
                gauge.add_metric([model.id], read(model.core.scheduler))
            yield gauge
        for name, (words, count) in COUNTERS.items():
            counter = CounterMetricFamily(name, words, labels=["model_name"])
            for model in models:
                counter.add_metric([model.id], count(totals[model.id]))
            yield counter
        for name, (words, of) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, words, labels=["model_name"])
            for model in models:
                _add_histogram(histogram, [model.id], of(model.metrics))
            yield histogram
        yield from _make_cache_families(models)
        yield from _make_request_families(models, totals)
        yield from _make_engine_families(models)
        yield from _make_budget_families(models)
        yield from _make_tenant_families(models, counts)


def _sum_accounts(by_account: Mapping[str, Counter[str]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for counters in by_account.values():
        totals.update(counters)
    return totals


def _add_histogram(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    family.add_metric(labels, histogram.buckets(), histogram.sum)


def _make_process_families(
    server: InferenceServer, models: list[ServedModel], responses: Mapping[int, int]
) -> Iterator[Metric]:
    simulated = any(model.core.engine.backend.device.simulated for model in models)
    words = "1 if the device is simulated: the values are not those of a GPU."
    yield GaugeMetricFamily("zinc_rt_simulated", words, value=simulated)
    yield GaugeMetricFamily(
        "zinc_rt_draining", "1 while the server accepts no new requests.", value=server.draining
    )
    if server.store is not None:
        words = "Age of the oldest usage record not yet in the ledger file."
        yield GaugeMetricFamily("zinc_rt_ledger_lag_seconds", words, value=server.store.health().lag_s)
    answered = CounterMetricFamily("zinc_rt_http_responses", "Responses by HTTP status.", labels=["code"])
    for status, count in sorted(dict(responses).items()):
        answered.add_metric([str(status)], count)
    yield answered


def _make_cache_families(models: list[ServedModel]) -> Iterator[Metric]:
    """Return the metrics of the prefix cache, in tokens as in vLLM, and the pool size, which routers use as a
    weight."""
    queries = CounterMetricFamily(
        "vllm:prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        labels=["model_name"],
    )
    hits = CounterMetricFamily(
        "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", labels=["model_name"]
    )
    info = GaugeMetricFamily(
        "vllm:cache_config_info", "Constant 1, labelled with the pool size.",
        labels=["model_name", "block_size", "num_gpu_blocks", "enable_prefix_caching"],
    )  # fmt: skip
    for model in models:
        cache = model.core.scheduler.cache
        queries.add_metric([model.id], cache.prefix.counts.lookups)
        hits.add_metric([model.id], cache.prefix.counts.hit)
        pages = min(group.pages for group in cache.groups)
        info.add_metric([model.id, str(cache.page_tokens), str(pages), "True"], 1)
    yield from (queries, hits, info)


def _make_request_families(models: list[ServedModel], totals: Mapping[str, Counter[str]]) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "vllm:request_success", "Finished choices by finish reason.", labels=["model_name", "finished_reason"]
    )
    for model in models:
        reasons = Counter(stop=0, length=0, abort=0, error=0)
        for counter, count in totals[model.id].items():
            if finish_reason := find_finish_reason_label(counter):
                reasons[finish_reason] += count
        for reason, count in sorted(reasons.items()):
            family.add_metric([model.id, reason], count)
    yield family


def find_finish_reason_label(counter: str) -> str:
    """Return vLLM's finish reason for a ledger counter (requests_finished.stop ...), or "" for another
    counter."""
    state, _, reason = counter.partition(".")
    if reason == "stop":  # a stop string is found by who reads: for the scheduler its request was cancelled
        return "stop"
    return {
        "requests_finished": "length",
        "requests_cancelled": "abort",
        "requests_expired": "abort",
        "requests_failed": "error",
    }.get(state, "")


def _make_engine_families(models: list[ServedModel]) -> Iterator[Metric]:
    step = HistogramMetricFamily(
        "zinc_rt_step_seconds",
        "Time of the phases of a step: planning, execution, processing of results.",
        labels=["model_name", "phase"],
    )
    hangs = CounterMetricFamily("zinc_rt_hangs", "Steps that failed or hung.", labels=["model_name"])
    families = [
        CounterMetricFamily(f"zinc_rt_{name}", words, labels=["model_name"])
        for name, words in (
            ("submissions", "Submissions to the device since it was opened: steps, page copies, uploads."),
            ("waits", "Waits of the host for the device since it was opened."),
        )
    ]
    late = CounterMetricFamily(
        "zinc_rt_masks_late",
        "Rows drawn by a submission of their own because their token mask was late.",
        labels=["model_name"],
    )
    waiting = GaugeMetricFamily(
        "zinc_rt_waiting", "Requests waiting for a slot.", labels=["model_name", "priority"]
    )
    pages = GaugeMetricFamily("zinc_rt_kv_pages", "Pages of all page groups.", labels=["model_name", "owner"])
    rows = GaugeMetricFamily("zinc_rt_state_rows", "Rows of recurrent state.", labels=["model_name", "owner"])
    findings = CounterMetricFamily(
        "zinc_rt_device_findings", "Findings of the simulated device.", labels=["model_name"]
    )
    marked = CounterMetricFamily(
        "zinc_rt_answers_with_findings",
        "Requests in progress at or after a finding; their answers are marked.",
        labels=["model_name"],
    )
    for model in models:
        scheduler = model.core.scheduler
        for phase, histogram in model.metrics.step.items():
            _add_histogram(step, [model.id, phase], histogram)
        hangs.add_metric([model.id], scheduler.counts.failed_steps)
        late.add_metric([model.id], scheduler.counts.masks_late)
        submission = model.core.engine.runner.submission
        for family in families:
            family.add_metric([model.id], submission[family.name.removeprefix("zinc_rt_")])
        for priority in Priority:
            waiting.add_metric([model.id, priority.name.lower()], scheduler.queues.by_class[priority])
        for owner, count in _count_owners(group.pool for group in scheduler.cache.pools).items():
            pages.add_metric([model.id, owner], count)
        if (pool := scheduler.cache.rows) is not None:
            for owner, count in _count_owners([pool]).items():
                rows.add_metric([model.id, owner], count)
        if model.core.engine.backend.instrument is not None:
            findings.add_metric([model.id], len(model.core.findings()))
            marked.add_metric([model.id], model.marked_answers)
    yield from (step, hangs, *families, late, waiting, pages, rows, findings, marked)


def _make_budget_families(models: list[ServedModel]) -> Iterator[Metric]:
    steps = CounterMetricFamily(
        "zinc_rt_budget_steps",
        "Steps in which a latency budget limited prompts, or in which the decodes alone exceed it.",
        labels=["model_name", "outcome"],
    )
    longest = GaugeMetricFamily(
        "zinc_rt_budget_infeasible_seconds",
        "Longest expected time of decodes that alone exceed their latency budget; 0: none did.",
        labels=["model_name"],
    )
    ratio = GaugeMetricFamily(
        "zinc_rt_step_cost_ratio",
        "Measured over predicted time of a step, by its kind and its largest number of tokens.",
        labels=["model_name", "kind", "tokens"],
    )
    for model in models:
        scheduler = model.core.scheduler
        steps.add_metric([model.id, "limited"], scheduler.counts.limited_steps)
        steps.add_metric([model.id, "infeasible"], scheduler.counts.infeasible_steps)
        longest.add_metric([model.id], scheduler.counts.infeasible_ns / 1e9)
        for row in scheduler.cost.report():
            ratio.add_metric([model.id, "prefill" if row.prompts else "decode", str(row.tokens)], row.ratio)
    yield from (steps, longest, ratio)


def _count_owners(pools: Iterable[Pool]) -> dict[str, int]:
    """Return how many pages are used by requests, used only by the cache, and free."""
    owners = Counter(request=0, cache=0, free=0)
    for pool in pools:
        owners.update(request=pool.used, cache=pool.idle, free=pool.free)
    return owners


def _make_tenant_families(
    models: list[ServedModel], counts: Mapping[str, Mapping[str, Counter[str]]]
) -> Iterator[Metric]:
    tokens = CounterMetricFamily(
        "zinc_rt_tenant_tokens", "Tokens of a tenant.", labels=["model_name", "tenant", "kind"]
    )
    labels = ["model_name", "tenant"]
    held = [GaugeMetricFamily(f"zinc_rt_tenant_{name}", words, labels=labels) for name, words in HELD.items()]
    waited = HistogramMetricFamily(
        "zinc_rt_tenant_wait_seconds", "Time from arrival to the first slot.", labels=labels
    )
    for model in models:
        scheduler = model.core.scheduler
        names = [tenant.name for tenant in scheduler.tenants]
        label = {name: name if index < TENANTS else OTHER for index, name in enumerate(names)}
        kinds: Counter[tuple[str, str]] = Counter()
        for name, counters in counts[model.id].items():
            if not name.startswith(RESERVED):
                for kind, counter in TENANT_TOKENS.items():
                    kinds[label.get(name, OTHER), kind] += counters[counter]
        for (name, kind), count in kinds.items():
            tokens.add_metric([model.id, name, kind], count)
        for name, values in _list_held_resources(scheduler, names, label).items():
            for family, value in zip(held, values, strict=True):
                family.add_metric([model.id, name], value)
        for tenant, histogram in sorted(model.metrics.tenant_wait.items()):
            if tenant < TENANTS:
                _add_histogram(waited, [model.id, names[tenant]], histogram)
    yield from (tokens, *held, waited)


def _list_held_resources(
    scheduler: Scheduler, names: list[str], label: Mapping[str, str]
) -> dict[str, list[float]]:
    """Return the values of HELD, by label."""
    values: dict[str, list[float]] = {}
    for number, name in enumerate(names):
        usage = scheduler.usage(number)
        parts = [usage.slots / scheduler.limits.slots]
        parts += [used / group.pages for used, group in zip(usage.pages, scheduler.cache.groups, strict=True)]
        sums = values.setdefault(label[name], [0.0] * len(HELD))
        for index, value in enumerate((usage.slots, usage.waiting, sum(usage.pages), max(parts))):
            sums[index] += value
    return values


def make_registry(server: InferenceServer, responses: Mapping[int, int]) -> CollectorRegistry:
    """Return the metric registry of a server, with process metrics. It has no global state."""
    collectors = CollectorRegistry(auto_describe=False)
    collectors.register(ServerCollector(server, responses))
    ProcessCollector(registry=collectors)
    return collectors


def make_router(server: InferenceServer, responses: Mapping[int, int]) -> APIRouter:
    """Return the route GET /metrics, for keys with the scope admin unless the configuration opens it to all."""
    routes = APIRouter(dependencies=[] if server.config.server.metrics_open else [Depends(require_scope("admin"))])
    kept = make_registry(server, responses)

    @routes.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:  # in a worker thread: the event loop serves streams meanwhile
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(kept), media_type=content_type)

    return routes
