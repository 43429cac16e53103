"""What a tier really ran: nodes dispatched, values that came back, kernels' code. A table's row is no evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.errors import UnsupportedError
from zinc_rt.exec import Stream
from zinc_rt.ir.graph import SYMBOLS, Builder, Node, Stage
from zinc_rt.ir.op import Op
from zinc_rt.isa.decode import decode_stream
from zinc_rt.isa.target import GENERATIONS, target_of
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, LabEngine, Measurement, prompt_of
from zinc_rt.resident import Resident, Variant
from zinc_rt.runner import COUNTS

PROMPT_TOKENS = 4


def dispatched(variant: Variant) -> list[Node]:
    """The nodes that submitting it computes on the tier's device, as the backend built them."""
    nodes = getattr(variant.built, "nodes", None)  # what a backend compiled: a GPU tier's with their dwords
    if nodes is None:
        return [call.node for call in variant.program.calls]
    found = [each[1] if isinstance(each, tuple) else each for each in nodes]
    return [node for node in found if node is not None]


def code_of(variant: Variant) -> dict[str, bytes]:
    """The machine code it dispatches, by kernel."""
    found: dict[str, bytes] = variant.built.kernels()
    return found


def nodes_not_run(lab: Lab, tier: str, models: str = "") -> Measurement:
    """Nodes of a prompt's and a token's graph that were not dispatched, or whose value is not the oracle's."""
    missing: dict[str, str] = {}
    total = 0
    for model in lab.models(models):
        bench = lab.bench(tier, model=model)
        for stage in ("prefill", "decode"):
            wanted = {id(node): node for node in bench.engine.graph(stage).nodes if node.op is not Op.BARRIER}
            ran = {node.label or repr(node) for node in _dispatched_in(bench, stage)}
            wrong = _values_differing(bench, lab.bench(registry.ORACLE, model=model), stage)
            for node in wanted.values():
                total += 1
                name = node.label or repr(node)
                if name not in ran:
                    missing[f"{Path(model).stem}/{stage}/{name}"] = "not dispatched"
                elif name in wrong:
                    missing[f"{Path(model).stem}/{stage}/{name}"] = wrong[name]
    count = len(lab.models(models))
    how = f"{total - len(missing)} of {total} nodes of {count} models ran on {tier} and gave the oracle's values"
    return Measurement(len(missing), how, {"missing": missing})


def _dispatched_in(bench: LabEngine, stage: Stage) -> list[Node]:
    """The nodes dispatched by the untapped graph, which runs in production."""
    engine, kept = bench.engine, bench.counted.ran
    sequence = engine.open()
    try:
        bench.counted.ran = set()
        engine.extend(sequence, prompt_of(engine.model.vocab, PROMPT_TOKENS), rows="last")
        if stage == "decode":
            bench.counted.ran = set()
            engine.extend(sequence, [1], rows="last")
        ran = bench.counted.ran
    finally:
        engine.release(sequence)
        bench.counted.ran = kept | bench.counted.ran
    return [node for replays, key in ran for node in dispatched(engine.variants.find(replays, key))]


def _values_differing(bench: LabEngine, oracle: LabEngine, stage: Stage) -> dict[str, str]:
    """Why the value of a node is not the oracle's, by node; every node of the stage is looked at."""
    seen = [dict(_tapped(each, stage)) for each in (bench, oracle)]
    wrong = {}
    for (label, buffer), want in seen[1].items():
        got = seen[0].get((label, buffer))
        if got is None:
            wrong[label] = f"gave no {buffer}"
        elif got != want:
            wrong[label] = f"gave another {buffer} than the oracle"
    return wrong


def _tapped(bench: LabEngine, stage: Stage) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Every output of every node, by the node and the buffer."""
    found: list[tuple[tuple[str, str], bytes]] = []
    engine = bench.engine

    def tap(node: Node, name: str, array: np.ndarray) -> None:
        found.append(((node.label or repr(node), name), array.tobytes()))

    sequence = engine.open()
    try:
        prompt = prompt_of(engine.model.vocab, PROMPT_TOKENS)
        engine.extend(sequence, prompt, rows="last", tap=tap if stage == "prefill" else None)
        if stage == "decode":
            engine.extend(sequence, [1], rows="last", tap=tap)
    finally:
        engine.release(sequence)
    yield from found


def ops_not_run(lab: Lab, tier: str) -> Measurement:
    """Opcodes without a kernel of this tier that has just given the oracle's bits, on small unkind operands."""
    from zinc_rt.backends.cpu.self_test import difference
    from zinc_rt.backends.cpu.self_test_cases import cases

    backend: Any = lab.bench(tier).engine.backend
    wrong: dict[str, str] = {}
    ran = set()
    for case in cases():
        try:
            found = difference(backend, case)
        except UnsupportedError as error:
            found = str(error).partition("\n")[0]
        ran.add(case.op)
        if found:
            wrong[case.op.name] = f"{case.name}: {found}"
    wanted = [op for op in Op if op is not Op.BARRIER]
    wrong |= {op.name: "no case runs it" for op in wanted if op not in ran}
    count = len(wanted)
    how = f"{count - len(wrong)} of {count} opcodes ran on {tier} and gave the oracle's bits"
    return Measurement(len(wrong), how, {"wrong": wrong})


def drafts_misjudged(lab: Lab, tier: str, sequences: int, drafted: int) -> Measurement:
    """VERIFY_K run alone on the tier, over drafts of which the target agrees with none, some and all tokens."""
    random = np.random.default_rng(0)
    target = random.integers(0, 3, (sequences, drafted + 1)).astype(np.int32)
    draft = np.where(random.random((sequences, drafted)) < 0.8, target[:, :drafted], 7).astype(np.int32)
    agreed = [
        next((i for i in range(drafted) if a[i] != b[i]), drafted) for a, b in zip(draft, target, strict=True)
    ]
    builder = Builder("verify_k")
    given = {"draft": draft, "target": target}
    inputs = tuple(builder.buffer(n, ("sequences", *a.shape[1:]), "i32", "step") for n, a in given.items())
    outputs = tuple(builder.buffer(n, ("sequences",), "i32", "output") for n in ("accepted", "following"))
    builder.buffer(COUNTS, (len(SYMBOLS),), "i32", "step")
    builder.node(Op.VERIFY_K, inputs, outputs)
    graph, backend = builder.build(), lab.bench(tier).engine.backend
    resident = Resident(backend, {}, {})
    variant = resident.build(graph, (sequences, sequences, 1), resident.graph("verify_k", graph))
    counts = [sequences, sequences, 1, 0]
    try:
        variant.write(COUNTS, np.array(counts, np.int32))
        for name, array in given.items():
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


def matrix_kernels_run(lab: Lab, tier: str, tokens: int) -> Measurement:
    """Kernels that a prompt of `tokens` dispatched whose machine code holds matrix instructions."""
    bench = lab.bench(tier)
    engine = bench.engine
    engine.forward(prompt_of(engine.model.vocab, min(tokens, engine.limits.ctx)), rows="last")
    code: dict[str, bytes] = {}
    for replays, key in bench.counted.ran:
        code |= code_of(engine.variants.find(replays, key))
    target = target_of(arch) if (arch := engine.backend.device.arch) in GENERATIONS else None
    found = sorted(
        name
        for name, image in code.items()
        if target is not None
        and any(
            item.instruction is not None and item.instruction.row.unit == "matrix"
            for item in decode_stream(image, target)
        )
    )
    if not found:
        raise CannotMeasure(
            f"none of the {len(code)} kernels of a prompt holds a matrix instruction: not built in this version"
        )
    return Measurement(len(found), f"{', '.join(found)} ran on {tier}")


def hottest_ops_native(lab: Lab, tier: str, count: int, models: str = "") -> Measurement:
    """How many of the ops that a token spends most on, by prediction, ran from machine code of the kernel set."""
    from zinc_rt.perf.predict.token_work import work_of

    cost: dict[str, float] = {}
    native: set[str] = set()
    for model in lab.models(models):
        bench = lab.bench(tier, model=model)
        work = work_of(lab.gguf(model), ctx=bench.engine.limits.ctx, position=PROMPT_TOKENS)
        whole = sum(node.instructions for node in work.nodes)
        for node in work.nodes:
            cost[node.op] = cost.get(node.op, 0.0) + node.instructions / whole
        for each in _dispatched_in(bench, "decode"):
            native.add(each.op.name)
        if not any(code_of(bench.engine.variants.find(*ran)) for ran in bench.counted.ran):
            raise CannotMeasure(f"{tier} dispatches no machine code")
    hottest = sorted(cost, key=cost.__getitem__, reverse=True)[:count]
    ran = [name for name in hottest if name in native]
    shares = ", ".join(f"{name} {cost[name] / sum(cost.values()):.0%}" for name in hottest)
    return Measurement(len(ran), f"{len(ran)} of {len(hottest)} ran on {tier}; by predicted work: {shares}")
