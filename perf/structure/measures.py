"""Structural criteria: counts of the runtime's behaviour on any available device, including a simulated one.

Each function takes the lab and a criterion's arguments and returns a number and how it came about. It raises
CannotMeasure where there is nothing to count yet: that blocks a gate and never passes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.engine.engine import LOGITS, Engine
from zinc_rt.host.errors import ZincError
from zinc_rt.ir.graph import ABSENT, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.verify import verify_graph
from zinc_rt.ir.violations import VerifyError
from zinc_rt.perf.structure.executed import (
    drafts_misjudged,
    hottest_ops_native,
    layers_joined,
    matrix_kernels_run,
    nodes_not_run,
    ops_not_run,
)
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, LabEngine, Measurement, make_prompt
from zinc_rt.perf.structure.requests import submissions_to_first_token, tokens_computed_warm
from zinc_rt.perf.structure.slots import (
    require_varying,
    values_differing_in_a_batch,
    values_moved_by_neighbours,
    values_moved_by_paging,
)
from zinc_rt.sched.mixes.mix import PAGES_SHARE, SLOTS
from zinc_rt.sched.simulation.schedule_checks import CheckOutcome, run_checks
from zinc_rt.sched.simulation.simulate import SimulationSettings, simulate
from zinc_rt.sched.simulation.workloads import WORKLOADS
from zinc_rt.sched.step_cost import PREDICTED
from zinc_rt.validate.command import parser
from zinc_rt.validate.isolation.trial import MixTrial
from zinc_rt.validate.isolation.verdict import MixVerdict
from zinc_rt.validate.prepare import prepare_jobs

SEED = 1


def scheduled(lab: Lab, workload: str, check: str, figure: str) -> Measurement:
    """Return one figure of one check of `zinc-rt sched-test`: the real scheduler in virtual time. Counts and
    shares are the scheduler's. Seconds are predicted for a card, and only their ratios are evaluated.
    """
    outcome = _check_outcome(workload, check)
    if outcome.status == "skip" or figure not in outcome.measure:
        raise CannotMeasure(f"sched-test --workload {workload}: {check}: {outcome.reason or 'says no ' + figure}")
    value = float(outcome.measure[figure])
    how = f"zinc-rt sched-test --workload {workload} --seed {SEED}: {figure.replace('_', ' ')}, in virtual time"
    return Measurement(value, how, {"measure": dict(outcome.measure), "first_bad": dict(outcome.first_bad)})


def _check_outcome(name: str, check: str) -> CheckOutcome:
    workload = WORKLOADS[name]
    checks = [item for item in workload.checks if item.id == check]
    arrivals = workload.arrivals(np.random.default_rng(SEED))
    settings = SimulationSettings(slots=workload.slots, pages=workload.pages, seed=SEED)
    seen = simulate(arrivals, workload.tenants, settings, PREDICTED)
    if seen.broken is not None:
        raise CannotMeasure(f"step {seen.broken.step} broke: {seen.broken.problems[0]}")
    baseline = None
    if any(check.needs_baseline for check in checks):
        plain = SimulationSettings(slots=workload.slots, pages=workload.pages, seed=SEED, policy="fcfs")
        baseline = simulate(arrivals, workload.tenants, plain, PREDICTED)
    (outcome,) = run_checks(checks, seen, baseline)
    return outcome


def requests_disturbed(lab: Lab, tier: str, requests: int) -> Measurement:
    """Count requests of a mix whose bits or tokens differ from a solo run, and wrong plans or invariants."""
    mixed = _run_mix(lab, tier, requests)
    wrong = len(mixed.witness.diverged) + len(list(mixed.describe_lost_requests())) + len(mixed.wrong)
    return Measurement(
        wrong,
        f"{mixed.format_summary()} on {tier}",
        {"mix": mixed.report_figures(), "digest": list(mixed.lines())},
    )


def requests_at_once(lab: Lab, tier: str, slots: int, requests: int) -> Measurement:
    """Return the maximum number of concurrent slots, in a mix without a disturbed request."""
    mixed = _run_mix(lab, tier, requests, slots=slots)
    if not mixed.passed:
        return Measurement(0, next(mixed.lines()), {"digest": list(mixed.lines())})
    bound = mixed.witness.bound
    return Measurement(
        bound, f"{bound} slots at once, {mixed.format_summary()} on {tier}", {"mix": mixed.report_figures()}
    )


def _run_mix(lab: Lab, tier: str, requests: int, *, slots: int = 0) -> MixVerdict:
    """Run a mix on a tier, like `zinc-rt validate --isolation`. Raise CannotMeasure if it cannot run."""
    line = ["--isolation", "--model", str(lab.model), "--tiers", tier, "--device", lab.device_option]
    try:
        arguments = parser().parse_args(line)
        arguments.observer = lab.observer
        (job,) = prepare_jobs(arguments, lab.settings)
    except ZincError as error:
        raise CannotMeasure(str(error).partition("\n")[0]) from error
    trial = MixTrial(job, SEED, requests, slots=slots or SLOTS, pages_share=1.0 if slots else PAGES_SHARE)
    (spec,) = job.tiers
    with trial.open_engine(spec) as engine:
        lab.devices.setdefault(tier, engine.backend.device)
        return next(trial.verdicts(spec, engine))


PROMPT_TOKENS = 4
DECODED = 8  # tokens over which counts per token are taken, without warm-up
APPENDIX_B = (
    "EMBED RMS_NORM RMS_NORM_FUSED_QKV RMS_NORM_FUSED_MLP_GATE_UP ROPE RMS_NORM_FUSED_ROPE_KV_WRITE FLASH_ATTN "
    "FLASH_ATTN_BATCHED MOE_GATE_TOPK MOE_GATE_UP MOE_SWIGLU MOE_DOWN_ACC SHARED_EXPERT SSM_CONV1D SSM_DELTA_NET "
    "SSM_GATED_NORM RESIDUAL_RMS_NORM LM_HEAD ARGMAX SAMPLE KV_WRITE_BATCHED MATMUL_WMMA_F16 MATMUL_WMMA_Q4K "
    "BARRIER STREAM_OUT LOAD_REQUEST_STATE STORE_REQUEST_STATE VERIFY_K"
)


# --- without a device ---------------------------------------------------------------------------------------


def original_opcodes(lab: Lab) -> Measurement:
    names = APPENDIX_B.split()
    kept = [name for number, name in enumerate(names) if Op.__members__.get(name) == number]
    return Measurement(len(kept), f"{len(kept)} of {len(names)} names of Appendix B have its numbers")


def planted_graphs_refused(lab: Lab) -> Measurement:
    """Count rejected graphs. Each has one injected change in a graph of a model that is valid without it."""
    graph = lab.open_engine("t_cpu").engine.graph("decode")
    verify_graph(graph)
    refused = {}
    for name, plant in PLANTS.items():
        try:
            verify_graph(plant(graph))
            refused[name] = ""
        except VerifyError as error:
            refused[name] = str(error).partition("\n")[0]
    count = sum(bool(reason) for reason in refused.values())
    return Measurement(
        count / len(refused), f"{count} of {len(refused)} broken graphs refused", {"refused": refused}
    )


def _with_input(graph: OpGraph, name: str) -> OpGraph:
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, inputs=(name, *first.inputs[1:])), *rest))


def _with_shape(graph: OpGraph, shape: tuple[int | str, ...]) -> OpGraph:
    name = graph.nodes[-1].inputs[0]
    return replace(graph, buffers={**graph.buffers, name: replace(graph.buffers[name], shape=shape)})


PLANTS: Mapping[str, Callable[[OpGraph], OpGraph]] = {
    "a buffer that is not there": lambda graph: _with_input(graph, "act.nowhere"),
    "an operand left out": lambda graph: _with_input(graph, ABSENT),
    "a shape that does not fit": lambda graph: _with_shape(graph, ("tokens", 7)),
    "a dimension of zero": lambda graph: _with_shape(graph, ("tokens", 0)),
    "a node before its producer": lambda graph: replace(graph, nodes=tuple(reversed(graph.nodes))),
}


def rank_of_tier(lab: Lab, tier: str) -> Measurement:
    order = [row.tier for row in registry.preferred()]
    return Measurement(order.index(tier) + 1, f"auto tries {', '.join(order)}")


def tokens_as_the_oracle(lab: Lab, tier: str, tokens: int) -> Measurement:
    """Count greedy tokens that agree with T-CPU, up to the first difference."""
    if not registry.spec(tier).built:
        raise CannotMeasure(f"tier {tier} is not built in this version")
    generated = [_generate_greedily(lab.open_engine(item).engine, tokens) for item in (tier, registry.ORACLE)]
    same = next((i for i, (a, b) in enumerate(zip(*generated, strict=True)) if a != b), tokens)
    return Measurement(same, f"{same} of {tokens} tokens of {tier} are T-CPU's")


def not_built(lab: Lab, what: str) -> Measurement:
    """A criterion whose subject does not exist yet. The change that implements it replaces this measure."""
    raise CannotMeasure(f"{what}: not built in this version")


def _generate_greedily(engine: Engine, count: int) -> list[int]:
    sequence = engine.open()
    try:
        logits = engine.extend(sequence, make_prompt(engine.model.vocab, PROMPT_TOKENS), rows="last")
        generated = [int(logits[-1].argmax())]
        while len(generated) < count:
            generated.append(int(engine.advance([(sequence, generated[-1:])], [0]).tokens[0]))
        return generated
    finally:
        engine.release(sequence)


# --- cost of a token and a prompt ---------------------------------------------------------------------------


def _decode_cost(lab: Lab, tier: str) -> tuple[list[int], list[int], LabEngine]:
    """Return the submissions and dwords of each of DECODED tokens, after a prompt and one token, for which the
    variants are built.
    """
    bench = lab.open_engine(tier)
    engine = bench.engine
    sequence = engine.open()
    try:
        logits = engine.extend(sequence, make_prompt(engine.model.vocab, PROMPT_TOKENS), rows="last")
        submissions, dwords = [], []
        for step in range(DECODED + 1):
            before = bench.submissions, bench.counted.published_dw
            logits = engine.extend(sequence, [int(logits[-1].argmax())])
            if step:
                submissions.append(bench.submissions - before[0])
                dwords.append(bench.counted.published_dw - before[1])
        return submissions, dwords, bench
    finally:
        engine.release(sequence)


def submissions_a_token(lab: Lab, tier: str, persistent: bool = False) -> Measurement:
    if persistent:
        raise CannotMeasure("a persistent kernel: not built in this version")
    submissions, dwords, bench = _decode_cost(lab, tier)
    words = f", {max(dwords)} dwords on {len(bench.counted.queues)} queues" if bench.counted.queues else ""
    return Measurement(
        max(submissions),
        f"{sum(submissions)} submissions for {DECODED} tokens by {tier}'s ring{words}",
        {"submissions": submissions, "dwords": dwords},
    )


def ring_dwords_a_token(lab: Lab, tier: str) -> Measurement:
    _, dwords, bench = _decode_cost(lab, tier)
    if not bench.counted.queues:
        raise CannotMeasure(f"{tier} has no ring")
    dispatches = len(bench.engine.graph("decode").nodes)
    how = f"{min(dwords)} to {max(dwords)} dwords a token for {dispatches} nodes, all queues"
    return Measurement(max(dwords), how, {"dwords": dwords})


def _count_prompt_submissions(bench: LabEngine, tokens: int) -> tuple[int, int]:
    """Return the submissions of a prompt whose variants are built, and its number of tokens."""
    engine = bench.engine
    count = min(tokens, engine.limits.ctx)
    for _ in range(2):
        sequence = engine.open()
        before = bench.submissions
        engine.extend(sequence, make_prompt(engine.model.vocab, count), rows="last")
        engine.release(sequence)
    return bench.submissions - before, count


def submissions_a_prompt(lab: Lab, tier: str, tokens: int) -> Measurement:
    submissions, count = _count_prompt_submissions(lab.open_engine(tier), tokens)
    return Measurement(submissions, f"{submissions} for a prompt of {count} tokens on {tier}")


def submissions_beyond_chunks(lab: Lab, tier: str, tokens: int) -> Measurement:
    """Measure submissions beyond one per chunk. The host decides this, so any tier shows it; a long prompt on a
    simulated device takes minutes. The model has a single layer and is generated for its context length.
    """
    from zinc_rt.golden.tiny_models.writer import write_tiny

    model = lab.folder() / "long.gguf"
    write_tiny(model, "qwen3", seed=0, quant="f32", layers=1, context=2 * tokens)
    bench = lab.open_engine(tier, model=model)
    submissions, count = _count_prompt_submissions(bench, tokens)
    chunks = -(-count // bench.engine.limits.step_tokens)
    if chunks == 1:
        raise CannotMeasure(f"{count} tokens fit in one chunk, so chunking was not tested")
    return Measurement(
        abs(submissions - chunks), f"{submissions} for a prompt of {count} tokens on {tier}, {chunks} chunks"
    )


def prefill_difference(lab: Lab, tier: str, tokens: int) -> Measurement:
    engine = lab.open_engine(tier).engine
    prompt = make_prompt(engine.model.vocab, min(tokens, engine.limits.ctx))
    whole = engine.forward(prompt, rows="last")[-1]
    steps = engine.forward(prompt, rows="last", prefill="stepwise")[-1]
    require_varying(whole)
    difference = float(np.abs(whole.astype(np.float64) - steps).max())
    same = whole.tobytes() == steps.tobytes()
    how = f"{len(prompt)} tokens on {tier}: {'the same bits' if same else f'differ by {difference:g}'}"
    return Measurement(0.0 if same else difference or float("inf"), how)


def tokens_generated(lab: Lab, tier: str, tokens: int) -> Measurement:
    from zinc_rt.engine.answering import Answering
    from zinc_rt.sched.sampling import Sampling

    if clamps := lab.settings.list_shortcuts():
        raise CannotMeasure(f"a shortcut is active: {clamps[0]}")
    engine = lab.open_engine(tier).engine
    asking = Answering(engine)
    asked = asking.submit(
        make_prompt(engine.model.vocab, PROMPT_TOKENS), Sampling(max_tokens=tokens, ignore_eos=True)
    )
    while not asked.done:
        asking.step()
    (answer,) = asked.answers
    generated = answer.token_ids
    how = f"{len(generated)} tokens on {tier}, {len(set(generated))} different, stopped: {answer.ended}"
    return Measurement(len(generated), how)


# --- bits ---------------------------------------------------------------------------------------------------


def values_differing_from_oracle(lab: Lab, tier: str, models: str = "") -> Measurement:
    results = [r for model in lab.models(models) for r in lab.run_validation((tier, "t_cpu"), model)]
    compared = [r for r in results if r.tier == tier and r.kind in ("layer", "node", "experts", "logits", "tap")]
    exact = [r for r in compared if r.limit.get("bits")]
    layers = [r for r in exact if r.kind == "layer"]
    logits = [r for r in exact if r.kind == "logits" and r.reference == "t_cpu"]
    if not layers or not logits or len(exact) < len(compared):
        raise CannotMeasure(f"{len(exact)} of {len(compared)} values of {tier} were compared bit for bit")
    wrong = [r.id for r in exact if r.status != "pass" or not r.measure.get("equal_bits", True)]
    positions = sum(int(r.measure.get("positions", 0)) for r in logits)
    how = f"{len(layers)} layers and {positions} positions of logits of {tier} against t_cpu, {len(logits)} models"
    return Measurement(len(wrong), how, {"wrong": wrong, "compared": [r.id for r in exact]})


def sanitizer_findings(lab: Lab, tier: str, models: str = "") -> Measurement:
    validated = [r for model in lab.models(models) for r in lab.run_validation((tier, "t_cpu"), model)]
    results = [r for r in validated if r.kind == "sanitizer"]
    if not results:
        raise CannotMeasure("hardware has no sanitizer; use --device sim")
    count = sum(int(r.measure["findings"]) for r in results)
    how = f"{count} findings at level {results[0].measure['level']} over {len(results)} models"
    return Measurement(count, how, {"first": [r.first_bad for r in results if r.first_bad]})


def tiers_differing(lab: Lab, tiers: Sequence[str]) -> Measurement:
    rows = []
    for tier in tiers:
        engine = lab.open_engine(tier).engine
        rows.append(engine.forward(make_prompt(engine.model.vocab, 2 * PROMPT_TOKENS)))
    require_varying(rows[0])
    wrong = sum(int((rows[0].view(np.uint32) != other.view(np.uint32)).sum()) for other in rows[1:])
    return Measurement(wrong, f"{rows[0].size} logits of {' and '.join(tiers)}")


def golden_tokens_differing(lab: Lab) -> Measurement:
    """Count greedy continuations of the embedded models that differ from those of llama.cpp."""
    from zinc_rt.golden.format import read_golden

    wrong, total, source = 0, 0, ""
    for model in lab.models("embedded"):
        golden = read_golden(model.with_suffix(".npz"))
        if golden.greedy_tokens is None or not len(golden.greedy_tokens):
            raise CannotMeasure(f"{golden.path.name} contains no greedy tokens")
        engine = lab.open_engine("t_cpu", model=model).engine
        sequence = engine.open()
        logits = engine.extend(sequence, [int(token) for token in golden.ids], rows="last")
        for token in golden.greedy_tokens:
            wrong += int(logits[-1].argmax()) != int(token)
            logits = engine.extend(sequence, [int(token)])
            total += 1
        engine.release(sequence)
        source = golden.source
    return Measurement(wrong, f"{total} tokens of {len(lab.models('embedded'))} models against {source}")


# --- placement ----------------------------------------------------------------------------------------------


def outputs_outside_bar(lab: Lab, tier: str) -> Measurement:
    bench = lab.open_engine(tier)
    plan = bench.engine.plan("decode", 1)
    outputs = {n: str(a.heap) for n, a in plan.allocations.items() if n.startswith("output/")}
    if LOGITS not in plan.placements or not outputs:
        raise CannotMeasure("the decode graph has no output buffer")
    wrong = [name for name, heap in outputs.items() if heap != "bar"]
    return Measurement(
        len(wrong), ", ".join(f"{name.partition('/')[2]} in {heap}" for name, heap in outputs.items())
    )


MEASURES: Mapping[str, Callable[..., Measurement]] = {
    item.__name__: item
    for item in (
        drafts_misjudged,
        golden_tokens_differing,
        hottest_ops_native,
        layers_joined,
        matrix_kernels_run,
        nodes_not_run,
        not_built,
        ops_not_run,
        original_opcodes,
        outputs_outside_bar,
        planted_graphs_refused,
        prefill_difference,
        rank_of_tier,
        requests_disturbed,
        requests_at_once,
        ring_dwords_a_token,
        sanitizer_findings,
        scheduled,
        submissions_to_first_token,
        tokens_computed_warm,
        submissions_a_prompt,
        submissions_a_token,
        submissions_beyond_chunks,
        tiers_differing,
        tokens_as_the_oracle,
        tokens_generated,
        values_differing_from_oracle,
        values_differing_in_a_batch,
        values_moved_by_neighbours,
        values_moved_by_paging,
    )
}
