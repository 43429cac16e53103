"""Check a report's counts: nodes against the model's own graph, prompts and tokens against the workload."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.host.errors import ZincError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import compute_bits_per_weight
from zinc_rt.perf.gate.model_counts import ModelCounts, count_model, count_shape
from zinc_rt.perf.gate.offered import MIN_TOKENS, SubmittedReport, check_number

SHAPE_NODES = 0.15  # of a class's nodes, where only its shape is known
SHAPE_BYTES = 0.95  # of the bytes that a token of the class reads, at the same bits a weight
CACHED_SHARE = 0.75  # of a warm prompt: its last page is computed
FIRST_AFTER_PROMPT = 0.5  # of the prompt's seconds: only its last row is read in between
LEAST = 1  # of every count in a workload; a run to warm up is the rule `workload`'s
COUNTS = ("slots", "prompt_tokens", "tokens", "runs", "nodes")


def find_model_counts(case: SubmittedReport) -> tuple[ModelCounts | None, bool]:
    """Return the counts of the model, and whether they come from its file; (None, False) if neither a file nor a
    shape of its class is known.
    """
    required, report = case.criterion.model, case.evidence.report
    assert required is not None
    ordering = str(report.get("ordering"))
    arch, slots = case.criterion.hardware["arch"], case.criterion.slots
    file = case.given.models.get(case.evidence.model_digests[0]) if case.evidence.model_digests else None
    if file is not None and file.get("path"):
        try:
            gguf = read_gguf(Path(str(file["path"])))
            ctx = int(check_number(report.get("ctx"), "ctx"))
            return count_model(gguf, arch=arch, ordering=ordering, ctx=ctx, slots=slots), True
        except ZincError:
            pass  # the file is gone since it was named: its class is left
    if required.shape:
        return count_shape(required.shape, arch=arch, ordering=ordering, ctx=required.ctx, slots=slots), False
    return None, False


def graph(case: SubmittedReport) -> str | None:
    """Require the number of nodes that the model's own decode graph has, fused or not."""
    required = case.criterion.model
    assert required is not None
    nodes = check_number(case.evidence.workload.get("nodes"), "workload.nodes")
    for program in case.evidence.details.get("programs", []):
        if program["nodes"] != program["of"]:
            return f"{program['nodes']} of {program['of']} nodes of {program['graph']} ran on the tier"
    counts, exact = find_model_counts(case)
    if counts is None:
        if nodes < required.layers:
            return f"{nodes:g} nodes, {required.name} has {required.layers} layers"
        return None
    if exact:
        if nodes not in counts.nodes:
            known = " or ".join(map(str, counts.nodes))
            return f"{nodes:g} nodes, the graph of this file has {known}"
        return None
    low, high = counts.nodes[0] * (1 - SHAPE_NODES), counts.nodes[-1] * (1 + SHAPE_NODES)
    if not low <= nodes <= high:
        return f"{nodes:g} nodes, the graph of {required.name} has {counts.nodes[0]} to {counts.nodes[-1]}"
    return None


def find_weight_bytes(case: SubmittedReport) -> float:
    """Return the minimum number of weight bytes that a token reads: from the model's file, else from its class at
    the bits of the report, else from the class's active weights.
    """
    required, model = case.criterion.model, case.evidence.report.get("model", {})
    assert required is not None
    bits = compute_bits_per_weight(dict(model.get("weights", {})), int(model.get("parameters", 0)))
    bits = max(required.bits_a_weight[0], bits)
    counts, exact = find_model_counts(case)
    if counts is None:
        return required.active * bits / 8
    if exact:
        return float(counts.weight_bytes)
    return SHAPE_BYTES * counts.weight_bytes * min(1.0, bits / counts.bits)


def counts(case: SubmittedReport) -> str | None:
    """Require that the numbers of runs, prompts and tokens match the workload and fit the context."""
    load, slots = case.evidence.workload, case.criterion.slots
    for name in COUNTS:
        value = load.get(name, LEAST)
        if isinstance(value, bool) or not isinstance(value, int) or value < LEAST:
            return f"workload.{name} is {value!r}, expected {LEAST} or more"
    prompts, tokens = load.get("prompt_tokens", 0), load.get("tokens", 0)
    ctx = check_number(case.evidence.report.get("ctx"), "ctx")
    if prompts + tokens > ctx:
        return f"{prompts} + {tokens} tokens do not fit the context of {ctx:g}"
    warmup = load.get("warmup", 1)
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        return f"workload.warmup is {warmup!r}, expected a number of runs"
    for name in ("decode", "aggregate", "prefill", "ttft"):
        result = case.evidence.result(name)
        if result is None:
            continue
        measure = result["measure"]
        each_prompt = name in ("prefill", "ttft")
        expected = load.get("runs", 0) * (slots if each_prompt else 1)
        if expected and len(measure["runs"]) != expected:
            return f"{len(measure['runs'])} runs of {name}, the workload has {expected}"
        if name == "prefill" and prompts and measure["prompt_tokens"] != prompts:
            return f"prefill of {measure['prompt_tokens']} tokens, the workload has prompts of {prompts}"
        if not each_prompt and measure.get("slots", 1) != load.get("slots", measure.get("slots", 1)):
            return f"{measure.get('slots', 1)} slots in {name}, the workload has {load['slots']}"
    return _check_first_tokens(case) or _check_drawn_tokens(case) or _check_requests(case)


def _check_first_tokens(case: SubmittedReport) -> str | None:
    """A first token comes after its prompt."""
    prefill, first = case.evidence.result("prefill"), case.evidence.result("ttft")
    if prefill is None or first is None:
        return None
    for location, (prompt, token) in enumerate(
        zip(prefill["measure"]["runs"], first["measure"]["runs"], strict=False)
    ):
        if check_number(token, "a first token") < check_number(prompt, "a prompt"):
            return f"run {location}: the first token after {token:g} s, its prompt took {prompt:g} s"
        if token - prompt > FIRST_AFTER_PROMPT * prompt:
            return f"run {location}: the first token {token - prompt:.3g} s after its prompt of {prompt:.3g} s"
    return None


def _check_requests(case: SubmittedReport) -> str | None:
    """Require a prompt from the cache, enough gaps of the stream, and other requests for all slots."""
    measure, name = case.result.get("measure", {}), case.criterion.measure
    if name == "ttft_warm":
        minimum = CACHED_SHARE * case.evidence.workload.get("prompt_tokens", measure["prompt_tokens"])
        cached = [check_number(value, "cached") for value in measure["cached"]]
        if len(cached) != len(measure["runs"]) or min(cached) < minimum:
            return (
                f"{min(cached, default=0):g} prompt tokens were cached, expected {minimum:g} or more in every run"
            )
    if name == "fairness":
        if min(map(len, measure["runs"])) < MIN_TOKENS - 1:
            return f"{min(map(len, measure['runs']))} gaps in a run, expected {MIN_TOKENS - 1} or more"
        if check_number(measure["others"], "others") < case.criterion.slots:
            return f"{measure['others']} other requests for {case.criterion.slots} slots"
    if name == "idle_to_stream" and min(map(float, measure["steady"])) <= 0:
        return "a later token in no time"
    return None


def _check_drawn_tokens(case: SubmittedReport) -> str | None:
    """Require that as many tokens were sampled as were timed."""
    drawn = case.evidence.details.get("sampled")
    decoded = case.evidence.result("decode" if case.criterion.slots == 1 else "aggregate")
    if drawn is None or decoded is None:
        return None
    timed = decoded["measure"].get("slots", 1) * sum(len(run) for run in decoded["measure"]["runs"])
    if check_number(drawn.get("device"), "sampled.device") != timed:
        return f"{drawn.get('device')} tokens were drawn by the device, {timed} were timed"
    first = decoded["measure"].get("slots", 1) * len(decoded["measure"]["runs"])
    if check_number(drawn.get("host"), "sampled.host") != first:
        return f"{drawn.get('host')} first tokens were drawn by the host, {first} prompts were timed"
    return None
