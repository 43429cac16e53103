"""Measure what a tier actually ran: dispatched nodes, returned values, kernels' code. A table row is no
evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.engine.resident import Resident, Variant
from zinc_rt.engine.runner import COUNTS
from zinc_rt.exec import Stream
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import SYMBOLS, Builder, Node, OpGraph, Stage
from zinc_rt.ir.op import Op
from zinc_rt.isa.decoder import decode_stream
from zinc_rt.isa.target import TARGETS, target_of
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, LabEngine, Measurement, make_prompt

PROMPT_TOKENS = 4
WIDE = 1024  # activations per token, several steps of a matrix kernel


def list_dispatched_nodes(variant: Variant) -> list[Node]:
    """Return the nodes that a submission computes on the tier's device, according to the backend."""
    nodes = getattr(variant.built, "nodes", None)  # a backend's compiled program, with its dwords for a GPU tier
    if nodes is None:
        return [call.node for call in variant.program.calls]
    nodes_run = [node[1] if isinstance(node, tuple) else node for node in nodes]
    return [node for node in nodes_run if node is not None]


def find_code(variant: Variant) -> dict[str, bytes]:
    """Return the machine code that it dispatches, by kernel."""
    code: dict[str, bytes] = variant.built.kernels()
    return code


def nodes_not_run(lab: Lab, tier: str, models: str = "") -> Measurement:
    """Count nodes of the plain graphs of a prompt and a token that no dispatch computed or whose value differs
    from the oracle. A fused node computes the nodes between its inputs and outputs, whose values are then not
    observable. Every value is compared in a graph that keeps all of them, and the logits are also compared in the
    production graph.
    """
    missing: dict[str, str] = {}
    total = fused = 0
    for model in lab.models(models):
        bench, oracle = lab.open_engine(tier, model=model), lab.open_engine(registry.ORACLE, model=model)
        for stage in ("prefill", "decode"):
            graph = bench.engine.graph(stage)
            required = [node for node in graph.nodes if node.op is not Op.BARRIER]
            replay, want = _replay_stage(bench, stage), _replay_stage(oracle, stage)
            ran = {id(node) for item in replay.nodes for node in find_represented_nodes(graph, item)}
            fused += sum(len(find_represented_nodes(graph, node)) > 1 for node in replay.nodes)
            wrong = _find_differing_values(bench, oracle, stage)
            for node in required:
                total += 1
                name = node.label or repr(node)
                if id(node) not in ran:
                    missing[f"{Path(model).stem}/{stage}/{name}"] = "not dispatched"
                elif name in wrong:
                    missing[f"{Path(model).stem}/{stage}/{name}"] = wrong[name]
            if replay.logits.tobytes() != want.logits.tobytes():
                missing[f"{Path(model).stem}/{stage}/as replayed"] = "gave other logits than the oracle"
    count = len(lab.models(models))
    forms = f", {fused} dispatched nodes in fused forms" if fused else ""
    how = f"{total - len(missing)} of {total} nodes of {count} models ran on {tier} and gave the oracle's values"
    return Measurement(len(missing), how + forms, {"missing": missing, "fused": fused})


def find_represented_nodes(graph: OpGraph, node: Node) -> list[Node]:
    """Return the nodes of a plain graph that a replacement node computes, walking back from its outputs to its
    inputs.
    """
    written = {name: node for node in graph.nodes if node.op is not Op.BARRIER for name in node.outputs}
    replaced: dict[int, Node] = {}
    todo = [written[name] for name in node.outputs if name in written]
    while todo:
        item = todo.pop()
        if id(item) not in replaced:
            replaced[id(item)] = item
            todo += [written[name] for name in item.inputs if name in written and name not in node.inputs]
    return list(replaced.values())


def layers_joined(lab: Lab, tier: str) -> Measurement:
    """Count layers of a prompt that share a dispatched node with another layer; 0 if the logits differ from the
    oracle.
    """
    bench = lab.open_engine(tier)
    graph, replay = bench.engine.graph("prefill"), _replay_stage(bench, "prefill")
    if replay.logits.tobytes() != _replay_stage(lab.open_engine(registry.ORACLE), "prefill").logits.tobytes():
        return Measurement(0, f"a prompt on {tier} gave other logits than the oracle")
    layers: set[int] = set()
    ops: set[str] = set()
    for node in replay.nodes:
        of = {stand.layer for stand in find_represented_nodes(graph, node) if stand.layer is not None}
        if len(of) > 1:
            layers |= of
            ops.add(node.op.name)
    count = len({node.layer for node in graph.nodes if node.layer is not None})
    how = f"{len(layers)} of {count} layers of {lab.model.stem}'s prompt share a dispatch with another on {tier}"
    return Measurement(len(layers), how + (f": {', '.join(sorted(ops))}" if ops else ""))


@dataclass(frozen=True, slots=True)
class _Replay:
    """The dispatches and results of the untapped graph, which is used in production."""

    nodes: list[Node]
    logits: np.ndarray


def _replay_stage(bench: LabEngine, stage: Stage) -> _Replay:
    engine, kept = bench.engine, bench.counted.ran
    sequence = engine.open()
    try:
        bench.counted.ran = set()
        logits = engine.extend(sequence, make_prompt(engine.model.vocab, PROMPT_TOKENS), rows="last")
        if stage == "decode":
            bench.counted.ran = set()
            logits = engine.extend(sequence, [1], rows="last")
        ran = bench.counted.ran
    finally:
        engine.release(sequence)
        bench.counted.ran = kept | bench.counted.ran
    nodes = [node for replays, key in ran for node in list_dispatched_nodes(engine.variants.find(replays, key))]
    return _Replay(nodes, logits)


def _find_differing_values(bench: LabEngine, oracle: LabEngine, stage: Stage) -> dict[str, str]:
    """Return for every node of the stage why its value differs from the oracle."""
    seen = [dict(_tap_stage(item, stage)) for item in (bench, oracle)]
    wrong = {}
    for (label, buffer), want in seen[1].items():
        got = seen[0].get((label, buffer))
        if got is None:
            wrong[label] = f"gave no {buffer}"
        elif got != want:
            wrong[label] = f"gave another {buffer} than the oracle"
    return wrong


def _tap_stage(bench: LabEngine, stage: Stage) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Return every output of every node, by node and buffer."""
    tapped: list[tuple[tuple[str, str], bytes]] = []
    engine = bench.engine

    def tap(node: Node, name: str, array: np.ndarray) -> None:
        tapped.append(((node.label or repr(node), name), array.tobytes()))

    sequence = engine.open()
    try:
        prompt = make_prompt(engine.model.vocab, PROMPT_TOKENS)
        engine.extend(sequence, prompt, rows="last", tap=tap if stage == "prefill" else None)
        if stage == "decode":
            engine.extend(sequence, [1], rows="last", tap=tap)
    finally:
        engine.release(sequence)
    yield from tapped


def ops_not_run(lab: Lab, tier: str) -> Measurement:
    """Count opcodes for which no kernel of this tier reproduced the oracle's bits on small adversarial
    operands.
    """
    from zinc_rt.backends.cpu.self_test import describe_difference
    from zinc_rt.backends.cpu.self_test_cases import make_cases

    backend: Any = lab.open_engine(tier).engine.backend
    wrong: dict[str, str] = {}
    ran = set()
    for case in make_cases():
        try:
            mismatch = describe_difference(backend, case)
        except UnsupportedError as error:
            mismatch = str(error).partition("\n")[0]
        ran.add(case.op)
        if mismatch:
            wrong[case.op.name] = f"{case.name}: {mismatch}"
    required = [op for op in Op if op is not Op.BARRIER]
    wrong |= {op.name: "no case runs it" for op in required if op not in ran}
    count = len(required)
    how = f"{count - len(wrong)} of {count} opcodes ran on {tier} and gave the oracle's bits"
    return Measurement(len(wrong), how, {"wrong": wrong})


def drafts_misjudged(lab: Lab, tier: str, sequences: int, drafted: int) -> Measurement:
    """Run only VERIFY_K on the tier, with drafts of which the target accepts none, some and all tokens."""
    random = np.random.default_rng(0)
    target = random.integers(0, 3, (sequences, drafted + 1)).astype(np.int32)
    draft = np.where(random.random((sequences, drafted)) < 0.8, target[:, :drafted], 7).astype(np.int32)
    agreed = [
        next((i for i in range(drafted) if a[i] != b[i]), drafted) for a, b in zip(draft, target, strict=True)
    ]
    builder = Builder("verify_k")
    argument = {"draft": draft, "target": target}
    inputs = tuple(builder.buffer(n, ("sequences", *a.shape[1:]), "i32", "step") for n, a in argument.items())
    outputs = tuple(builder.buffer(n, ("sequences",), "i32", "output") for n in ("accepted", "following"))
    builder.buffer(COUNTS, (len(SYMBOLS),), "i32", "step")
    builder.node(Op.VERIFY_K, inputs, outputs)
    graph, backend = builder.build(), lab.open_engine(tier).engine.backend
    resident = Resident(backend, {}, {})
    variant = resident.build(graph, (sequences, sequences, 1), resident.graph("verify_k", graph))
    counts = [sequences, sequences, 1, 0]
    try:
        variant.write(COUNTS, np.array(counts, np.int32))
        for name, array in argument.items():
            variant.write(name, array)
        backend.wait(variant.submit(Stream("verify_k")), 600)
        accepted, following = (variant.read(name, counts).copy() for name in ("accepted", "following"))
    finally:
        resident.unload()
    wrong = sum(
        int(accepted[row]) != count or int(following[row]) != int(target[row, count])
        for row, count in enumerate(agreed)
    )
    how = f"{sequences} drafts of {drafted} tokens on {tier}, {min(agreed)} to {max(agreed)} of them agreed with"
    return Measurement(wrong, how)


def matrix_kernels_run(lab: Lab, tier: str, tokens: int, quants: Sequence[str], ordering: str) -> Measurement:
    """Count the kernels with matrix instructions that a prompt of `tokens` dispatched in the prefill ordering
    `ordering`; 0 if its logits differ from the oracle. Uses a model of one wide layer, in each type of `quants`.
    """
    from zinc_rt.golden.tiny_models.writer import write_tiny

    kernels: set[str] = set()
    seen = 0
    for quant in quants:
        model = lab.folder() / f"wide-{quant}.gguf"
        write_tiny(model, "qwen3", seed=0, quant=quant, layers=1, hidden=WIDE, ffn=64, head_dim=16)
        bench, oracle = (
            lab.open_engine(item, model=model, prefill_ordering=ordering) for item in (tier, registry.ORACLE)
        )
        prompt = make_prompt(bench.engine.model.vocab, tokens)
        logits = [item.engine.forward(prompt, rows="last", role="prompt") for item in (bench, oracle)]
        if logits[0].tobytes() != logits[1].tobytes():
            return Measurement(0, f"a prompt in {quant} on {tier} gave other logits than the oracle")
        code: dict[str, bytes] = {}
        for replays, key in bench.counted.ran:
            code |= find_code(bench.engine.variants.find(replays, key))
        seen += len(code)
        kernels |= {
            name
            for name, image in code.items()
            if _has_matrix_instruction(image, bench.engine.backend.device.arch)
        }
    if not kernels:
        raise CannotMeasure(
            f"none of the {seen} kernels of a prompt contains a matrix instruction: not implemented in this "
            "version"
        )
    how = f"{', '.join(sorted(kernels))} ran on {tier} in {ordering}, {tokens} tokens with the oracle's logits"
    return Measurement(len(kernels), how)


def _has_matrix_instruction(image: bytes, arch: str) -> bool:
    if arch not in TARGETS or not TARGETS[arch].has_decoder:
        return False
    instructions = (item.instruction for item in decode_stream(image, target_of(arch)))
    return any(instruction is not None and instruction.row.unit == "matrix" for instruction in instructions)


def hottest_ops_native(lab: Lab, tier: str, count: int, models: str = "") -> Measurement:
    """Count how many of the ops with the largest predicted time of a token ran from machine code of the kernel
    set.
    """
    from zinc_rt.perf.predict.token_work import compute_work

    cost: dict[str, float] = {}
    native: set[str] = set()
    for model in lab.models(models):
        bench = lab.open_engine(tier, model=model)
        model_work = compute_work(lab.read_model(model), ctx=bench.engine.limits.ctx, position=PROMPT_TOKENS)
        whole = sum(work.issued for work in model_work.each)
        for work in model_work.each:
            ops = work.op.split("+")
            for op in ops:
                cost[op] = cost.get(op, 0.0) + work.issued / whole / len(ops)
        native |= {node.op.name for node in _replay_stage(bench, "decode").nodes}
        if not any(find_code(bench.engine.variants.find(*ran)) for ran in bench.counted.ran):
            raise CannotMeasure(f"{tier} does not dispatch machine code")
    hottest = sorted(cost, key=cost.__getitem__, reverse=True)[:count]
    ran = [name for name in hottest if name in native]
    shares = ", ".join(f"{name} {cost[name] / sum(cost.values()):.0%}" for name in hottest)
    return Measurement(len(ran), f"{len(ran)} of {len(hottest)} ran on {tier}; by predicted work: {shares}")
