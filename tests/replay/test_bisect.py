"""A tier with one thing wrong: bisect names that node, in few replays, and the node alone shows it again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from planted import (
    PlantedBackend,
    PlantedFault,
    drop_store,
    flip_bit,
    omit_node,
    overlap_buffer,
    replace_op,
    return_unchanged,
    shift_position,
    shift_table,
    swap_experts,
)
from replay_runs import cpu_backend, record_run, run_steps

from zinc_rt.backends import registry
from zinc_rt.backends.base import Finding
from zinc_rt.backends.cpu.oracle import BoundCall, CpuBackend, CpuExecutable
from zinc_rt.engine.devices import ORACLE
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.exec import Buffer, DeadlineMissed
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.lower import Call, LoweredGraph
from zinc_rt.model.gguf import read_gguf
from zinc_rt.replay import command
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.one_node_log import emit_repro
from zinc_rt.replay.run import replay
from zinc_rt.trace.recorder import record

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """`node` is the planted one, or the first that reads what was planted."""

    name: str
    model: str
    node: str
    plant: PlantedFault

    def __str__(self) -> str:
        return f"{self.name}: {self.node} of {self.model}"


TABLES = ("constant.rope.cos", "constant.rope.sin")
CASES = [
    Case("wrong constant", "qwen3-q", "attn_norm-1", replace_op("attn_norm-1", eps=1e-3)),
    Case("stale buffer", "qwen3-q", "ffn_swiglu-2", omit_node("ffn_swiglu-2")),
    Case("dropped write of keys", "qwen3-q", "kv_write-1", drop_store("kv_write-1")),
    Case("one position late", "qwen3-q", "Kcur-2", shift_position("Kcur-2")),
    Case("wrong rope table", "qwen3-q", "Qcur-0", shift_table(*TABLES)),
    Case("flipped bit", "qwen3-q", "Vcur-1", flip_bit("model.attn.v_weight[1]", 40, 1)),
    Case("swapped experts", "qwen35moe-q", "ffn_moe_logits-1", swap_experts("ffn_moe_logits-1")),
    Case("flipped bit of a recurrent layer", "qwen35moe-q", "beta-1", flip_bit("model.ssm.beta_weight[1]", 70, 3)),
]


@pytest.fixture(scope="session")
def model_logs(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("logs")

    @cache
    def record_log(model: str) -> Path:
        return record_run(folder / f"{model}.zlog", model)

    return record_log


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.rest(keep=1)
def test_planted_node_is_found_and_its_repro_fails(case: Case, model_logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    planted = partial(PlantedBackend, plant=case.plant)
    log = model_logs(case.model)
    assert not replay(log, planted).equal
    result = bisect(log, planted)
    assert result.where is not None and result.where.label == case.node, result.text
    assert result.replays <= result.allowed and result.where.differing > 0

    emitted = emit_repro(log, result, tmp_path / "repro", planted)
    alone = replay(emitted.log, planted)
    assert alone.differences and alone.differences[0].label == case.node
    assert replay(emitted.log, ORACLE).equal


def test_emitted_test_fails_only_with_the_defect(
    model_logs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    planted = partial(PlantedBackend, plant=CASES[0].plant)
    emitted = emit_repro(model_logs("qwen3-q"), bisect(model_logs("qwen3-q"), planted), tmp_path, planted)
    spec = importlib.util.spec_from_file_location("emitted", emitted.test)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "choose_tier", lambda *names, **options: planted)
    with pytest.raises(AssertionError, match="attn_norm-1"):
        module.test_the_node_has_the_bits_of_the_oracle()
    monkeypatch.setattr(module, "choose_tier", lambda *names, **options: ORACLE)
    module.test_the_node_has_the_bits_of_the_oracle()


class ReorderingBackend(CpuBackend):
    """Runs dispatches between barriers in reverse order; the barrier before the node `without` is omitted."""

    def __init__(self, ordering: str, without: str = "") -> None:
        super().__init__(ordering, spec=registry.spec("t1"))
        self._without = without

    def build(self, program: LoweredGraph, buffers: Mapping[str, Buffer]) -> CpuExecutable:
        variant = super().build(program, buffers)
        groups: list[list[BoundCall]] = [[]]
        calls = iter(variant.calls)
        for index, step in enumerate(program.steps):
            if isinstance(step, Call):
                groups[-1].append(next(calls))
                continue
            after = next((item for item in program.steps[index:] if isinstance(item, Call)), None)
            if after is None or after.node.label != self._without:
                groups.append([])
        return replace(variant, calls=tuple(call for group in groups for call in reversed(group)))


def test_memory_reuse_defect_is_bisected_without_taps(model_logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = model_logs("qwen3-q")
    planted = partial(PlantedBackend, plant=overlap_buffer("act.attn_norm[1]", "act.l_out[0]"))
    result = bisect(log, planted)
    assert result.where is not None and not result.where.tapped, result.lines
    assert (result.where.label, result.where.buffer) == ("attn_norm-1", "act.l_out[0]")
    assert result.replays <= result.allowed
    emitted = emit_repro(log, result, tmp_path, planted)
    assert replay(emitted.log, planted).differences and replay(emitted.log, ORACLE).equal


def test_dropped_barrier_is_found_with_overlapping_work(model_logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = model_logs("qwen3-q")
    dropping = partial(ReorderingBackend, without="ffn_norm-1")
    assert replay(log, ReorderingBackend).equal, "the barriers there are do order everything"
    result = bisect(log, dropping)
    assert result.where is not None and result.where.label == "ffn_norm-1", result.lines
    assert result.replays <= result.allowed


class ReportingBackend(CpuBackend):
    """Behaves like a simulated device that reports a finding once although every bit is right."""

    def __init__(self, ordering: str, node: str = "") -> None:
        super().__init__(ordering, spec=registry.spec("t1"))
        self._node = node
        self._found: list[Finding] = []
        self.instrument = self  # type: ignore[assignment]

    def findings(self) -> list[Finding]:
        return list(self._found)

    def build(self, program: LoweredGraph, buffers: Mapping[str, Buffer]) -> CpuExecutable:
        variant = super().build(program, buffers)

        def report_finding(call: BoundCall) -> BoundCall:
            def run_code(*operands: Any, **own: Any) -> Any:
                node = call.node if self._node else None
                self._found = self._found or [Finding("stray-read", "a lane read beside its buffer", node=node)]
                return call.code(*operands, **own)

            return replace(call, code=run_code) if call.node.label == (self._node or "attn_norm-1") else call

        return replace(variant, calls=tuple(map(report_finding, variant.calls)))


def test_unreproducible_sanitizer_finding_still_fails(model_logs) -> None:  # type: ignore[no-untyped-def]
    result = bisect(model_logs("qwen3-q"), ReportingBackend)
    assert result.failed and result.step == 0 and result.where is None
    assert result.text == (
        "t1: step 0 is the first that differs: the simulated device found: stray-read: a lane read beside its "
        "buffer; no node could be named"
    )
    assert result.as_dict() == {"step": 0, "cause": result.cause}
    assert result.replays <= result.allowed


def test_finding_that_names_its_node_is_accepted(model_logs) -> None:  # type: ignore[no-untyped-def]
    result = bisect(model_logs("qwen3-q"), partial(ReportingBackend, node="ffn_norm-2"))
    assert result.where is not None and result.where.label == "ffn_norm-2", result.lines
    assert result.where.finding == "stray-read: a lane read beside its buffer"


class UnstableBackend(CpuBackend):
    """`first` happens to what a node makes in its first run, `then` in every other."""

    def __init__(self, ordering: str, first: Change, then: Change = return_unchanged) -> None:
        super().__init__(ordering, spec=registry.spec("t1"))
        self._first, self._then = first, then
        self._runs = 0

    def build(self, program: LoweredGraph, buffers: Mapping[str, Buffer]) -> CpuExecutable:
        variant = super().build(program, buffers)

        def change_result(call: BoundCall) -> BoundCall:
            def run_code(*operands: Any, **own: Any) -> Any:
                self._runs += 1
                return (self._first if self._runs == 1 else self._then)(call.code(*operands, **own))

            return replace(call, code=run_code) if call.node.label == "result_output" else call

        return replace(variant, calls=tuple(map(change_result, variant.calls)))


def double_result(result: Any) -> Any:
    return 2 * result


def raise_hang(result: Any) -> Any:
    raise DeadlineMissed("the queue stood still")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        (double_result, return_unchanged, "is the first that differs: request[slot].logits has other bits"),
        (double_result, raise_hang, "is the first that differs: request[slot].logits has other bits"),
        (raise_hang, return_unchanged, "does not end: the queue stood still"),
    ],
    ids=["not again", "then a hang", "a hang"],
)
def test_bisection_dead_end_fails_with_the_observation(  # type: ignore[no-untyped-def]
    first: Change,
    then: Change,
    message: str,
    model_logs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = model_logs("qwen3-q")
    opener = partial(UnstableBackend, first=first, then=then)
    result = bisect(log, opener)
    assert result.failed and result.where is None
    assert message in result.text, result.text

    monkeypatch.setattr("zinc_rt.replay.bisect.bisect", lambda log, choice, **options: result)
    assert command.main([str(log), "--tiers", "t_cpu", "--bisect", "--emit-repro", "nowhere"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("FAIL") and message in out.splitlines()[-1]


def fuse_all(graph: OpGraph) -> OpGraph:
    return fuse_graph(graph, lambda node, graph: True)


def widen_norms(graph: OpGraph) -> OpGraph:
    """Fuse as a pass would that gives its nodes another epsilon."""
    nodes = [
        replace(node, attrs={**node.attrs, "eps": 1e-3}) if node.op.name.endswith("GATE_UP") else node
        for node in fuse_all(graph).nodes
    ]
    return replace(graph, buffers=fuse_all(graph).buffers, nodes=tuple(nodes))


def record_fused(path: Path, transform: Callable[[OpGraph], OpGraph] = fuse_all) -> Path:
    engine_options = EngineOptions(transform=transform)
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    with Engine(gguf, cpu_backend(), ctx=32, options=engine_options) as engine, record(engine, path):
        run_steps(engine)
    return path


def test_wrong_attribute_of_a_pass_is_named_by_layer_node_and_attribute(tmp_path: Path) -> None:
    result = bisect(
        record_fused(tmp_path / "run.zlog", widen_norms), partial(PlantedBackend, plant=PlantedFault())
    )
    text = "t1: the recorded graph is not the model's: qwen3-decode: RMS_NORM ffn_norm-0 of layer 0: eps is "
    assert result.where is None and result.text.startswith(text), result.text
    assert result.text.endswith("in the model's graph and 0.001 in the recorded one")
    assert result.as_dict()["graph"] == result.graph != ""


def drop_operand(label: str, op: str, at: int) -> PlantedFault:
    """The node runs without an operand, as a fused kernel would that forgets a part."""

    def run_without(code: Callable[..., Any]) -> Callable[..., Any]:
        def run(math: Any, *operands: Any, **attrs: Any) -> Any:
            return code(math, *(None if index == at else item for index, item in enumerate(operands)), **attrs)

        return run

    return PlantedFault(label, op, code=run_without)


def turn_otherwise(code: Callable[..., Any]) -> Callable[..., Any]:
    """Rotate other pairs, in the fused kernel and in the plain one."""

    def run(*operands: Any, **attrs: Any) -> Any:
        return code(*operands, **({**attrs, "mode": "norm"} if "mode" in attrs else attrs))

    return run


@pytest.mark.parametrize(
    ("label", "plant", "part"),
    [
        (
            "ffn_swiglu-1",
            replace_op("ffn_swiglu-1", "RMS_NORM_FUSED_MLP_GATE_UP", eps=1e-2),
            "norm and activation",
        ),
        ("Qcur-1", replace_op("Qcur-1", "QKV_FUSED_ROPE_KV_WRITE", head_eps=1e-1), "norm and projections"),
        ("Qcur-1", PlantedFault("Qcur-1", code=turn_otherwise), "ROPE"),
        ("l_out-1", drop_operand("l_out-1", "MATMUL", 5), "residual sum"),
    ],
)
def test_wrong_part_of_a_fused_kernel_is_named(label: str, plant: PlantedFault, part: str, tmp_path: Path) -> None:
    result = bisect(record_fused(tmp_path / "run.zlog"), partial(PlantedBackend, plant=plant))
    assert result.where is not None and result.where.label == label, result.lines
    assert result.where.part == part and f"its {part}" in result.text, result.lines
    assert result.replays <= result.allowed and not result.graph


def test_log_without_its_model_says_that_graphs_are_not_compared(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes((FOLDER / "qwen3-q.gguf").read_bytes())
    log = tmp_path / "run.zlog"
    with Engine(read_gguf(model), cpu_backend(), ctx=32) as engine, record(engine, log, embed_weights=True):
        run_steps(engine)
    model.unlink()
    result = bisect(log, partial(PlantedBackend, plant=PlantedFault()))
    assert any(line.startswith("graphs are not compared with the model's own: ") for line in result.lines)


def test_tier_without_defect_matches_the_oracle(model_logs) -> None:  # type: ignore[no-untyped-def]
    result = bisect(model_logs("qwen3-q"), partial(PlantedBackend, plant=PlantedFault()))
    assert result.where is None and result.text == (
        "t1: not reproduced: every step has the bits of t_cpu, and had them when it was recorded"
    )
    assert result.as_dict() == {"reproduced": False, "recorded": ""}


def test_failure_that_is_not_reproduced_names_the_recorded_step(tmp_path: Path) -> None:
    log = tmp_path / "run.zlog"
    plant = PlantedFault("attn_out-0", "MATMUL", code=lambda code: lambda *a, **o: -code(*a, **o))
    backend = PlantedBackend("canonical-1", plant)
    with Engine(read_gguf(FOLDER / "qwen3-q.gguf"), backend, ctx=32) as engine, record(engine, log):
        engine.forward([1, 2, 3])
    result = bisect(log, partial(PlantedBackend, plant=PlantedFault()))
    assert not result.failed and result.recorded == "step 0 had other bits in request[slot].logits"
    assert result.text.endswith("but step 0 had other bits in request[slot].logits when it was recorded")
