"""The fused graph: what becomes one node, what stays apart; that it is verified and gives the oracle's bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ir.model_graphs import GOLDEN, MODELS, model_graph

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.graph import ABSENT, Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.fuse import fuse_graph, with_operands
from zinc_rt.ir.verify import verify_graph
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

WIDTH = 8


def always_fuse(node: Node, graph: OpGraph) -> bool:
    return True


def count_ops(graph: OpGraph) -> Counter[Op]:
    return Counter(node.op for node in graph.nodes)


def residual_graph(extra: Callable[[Builder], None] = lambda builder: None, *, size: int = WIDTH) -> OpGraph:
    """h = a + b, then its norm; a and b are embedded."""
    builder = Builder("residual")
    builder.buffer("request[slot].token_id", ("tokens",), "i32", "step")
    builder.buffer("model.table", (4, WIDTH), "f32", "weight")
    builder.buffer("model.norm", (size,), "f32", "weight")
    for name in ("act.a", "act.b", "act.h"):
        builder.buffer(name, ("tokens", WIDTH), "f32", "activation")
    builder.buffer("act.y", ("tokens", WIDTH), "f32", "output")
    for name in ("act.a", "act.b"):
        builder.node(Op.EMBED, ("request[slot].token_id", "model.table"), (name,))
    builder.node(Op.ADD, ("act.a", "act.b"), ("act.h",), label="h")
    extra(builder)
    builder.node(Op.RMS_NORM, ("act.h", "model.norm"), ("act.y",), eps=1e-6, size=size)
    return builder.build()


def test_add_and_norm_are_fused_and_the_sum_stays_visible() -> None:
    def add_doubled_output(builder: Builder) -> None:
        builder.buffer("act.twice", ("tokens", WIDTH), "f32", "output")
        builder.node(Op.SCALE, ("act.h", ABSENT), ("act.twice",), factor=2.0)

    for graph in (residual_graph(), residual_graph(add_doubled_output)):
        fused = fuse_graph(graph, always_fuse)
        verify_graph(fused)
        node = next(node for node in fused.nodes if node.op is Op.RESIDUAL_RMS_NORM)
        assert node.inputs == ("act.a", "act.b", "model.norm") and node.outputs == ("act.h", "act.y")
        assert node.attrs == {"eps": 1e-6} and not count_ops(fused)[Op.ADD] and not count_ops(fused)[Op.RMS_NORM]


def test_norm_of_part_of_the_sum_is_not_fused() -> None:
    graph = residual_graph(size=WIDTH // 2)
    assert fuse_graph(graph, always_fuse) is graph


def test_nodes_without_a_fused_kernel_stay_unchanged() -> None:
    graph = model_graph("qwen3-q")
    assert fuse_graph(graph, lambda node, of: False) is graph
    only_norms = fuse_graph(graph, lambda node, of: node.op is Op.RESIDUAL_RMS_NORM)
    assert (
        count_ops(only_norms)[Op.RMS_NORM_FUSED_ROPE_KV_WRITE] == 0
        and count_ops(only_norms)[Op.RESIDUAL_RMS_NORM] == 2 * 3
    )


@pytest.mark.parametrize("name", MODELS)
def test_fusing_models_removes_nodes_but_no_operands(name: str) -> None:
    graph = model_graph(name)
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    assert len(fused.nodes) < len(graph.nodes) and count_ops(fused)[Op.ADD] < count_ops(graph)[Op.ADD]
    read = {item for node in graph.nodes for item in node.inputs if graph.buffers.get(item) and "model." in item}
    assert read <= {item for node in fused.nodes for item in node.inputs}
    assert {spec.name for spec in graph.by_role("output", "state")} == {
        spec.name for spec in fused.by_role("output", "state")
    }


def projection_graph(
    *ops: Op, extra: Callable[[Builder], None] = lambda builder: None, size: int = WIDTH
) -> OpGraph:
    """The norm of an embedding and a projection of it for each of `ops`, which also use the last
    projection."""
    builder = Builder("projected", "decode")
    builder.buffer("request[slot].token_id", ("tokens",), "i32", "step")
    builder.buffer("model.table", (4, WIDTH), "f32", "weight")
    builder.buffer("model.norm", (size,), "f32", "weight")
    for name in ("act.x", "act.n"):
        builder.buffer(name, ("tokens", WIDTH), "f32", "activation")
    builder.node(Op.EMBED, ("request[slot].token_id", "model.table"), ("act.x",))
    builder.node(Op.RMS_NORM, ("act.x", "model.norm"), ("act.n",), eps=1e-5, size=size)
    before = "act.x"
    for number, op in enumerate(ops):
        last = number == len(ops) - 1
        builder.buffer(f"model.w[{number}]", (WIDTH, WIDTH), "f32", "weight")
        builder.buffer(f"act.p[{number}]", ("tokens", WIDTH), "f32", "activation")
        builder.buffer(f"act.y[{number}]", ("tokens", WIDTH), "f32", "output" if last else "activation")
        builder.node(Op.MATMUL, ("act.n", f"model.w[{number}]"), (f"act.p[{number}]",))
        builder.node(op, (before, f"act.p[{number}]"), (f"act.y[{number}]",))
        before = f"act.y[{number}]"
    extra(builder)
    return builder.build()


def test_projection_fuses_the_norm_before_and_the_sum_after_it() -> None:
    graph = projection_graph(Op.ADD)
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    _, node = fused.nodes
    assert node.op is Op.MATMUL and node.attrs == {"eps": 1e-5} and node.outputs == ("act.y[0]",)
    assert node.inputs == ("act.x", "model.w[0]", ABSENT, ABSENT, "model.norm", "act.x", ABSENT)
    of_heads = fuse_graph(projection_graph(Op.ADD, size=WIDTH // 2), always_fuse)
    assert count_ops(of_heads)[Op.RMS_NORM] == 1 and not count_ops(of_heads)[Op.ADD]


def test_norm_with_other_readers_is_kept() -> None:
    def read_input(builder: Builder) -> None:
        builder.buffer("act.twice", ("tokens", WIDTH), "f32", "output")
        builder.node(Op.SCALE, ("act.n", ABSENT), ("act.twice",), factor=2.0)

    fused = fuse_graph(projection_graph(Op.ADD, extra=read_input), always_fuse)
    assert count_ops(fused)[Op.RMS_NORM] == 1 and not count_ops(fused)[Op.ADD]


def test_norm_fuses_with_three_projections_but_is_repeated_for_four() -> None:
    graph = projection_graph(Op.SWIGLU, Op.SWIGLU, Op.SWIGLU)
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    node = next(node for node in fused.nodes if node.op is Op.RMS_NORM_FUSED_QKV)
    assert node.inputs[:5] == ("act.x", "model.norm", "model.w[0]", "model.w[1]", "model.w[2]")
    assert node.outputs == ("act.p[0]", "act.p[1]", "act.p[2]") and not count_ops(fused)[Op.MATMUL]
    four = fuse_graph(projection_graph(*[Op.SWIGLU] * 4), always_fuse)
    verify_graph(four)
    assert [node.inputs[4] for node in four.nodes if node.op is Op.MATMUL] == ["model.norm"] * 4
    assert not count_ops(four)[Op.RMS_NORM]


def test_many_tokens_keep_norms_and_projections_separate() -> None:
    graph = replace(projection_graph(Op.ADD), stage="prefill")
    assert fuse_graph(graph, always_fuse) is graph


def test_gate_up_and_their_product_are_one_node() -> None:
    graph = model_graph("gemma3-q") if "gemma3-q" in MODELS else model_graph("qwen3-q")
    fused = fuse_graph(graph, always_fuse)
    wanted = sum(count_ops(graph)[op] for op in (Op.SWIGLU, Op.GEGLU))
    nodes = [node for node in fused.nodes if node.op is Op.RMS_NORM_FUSED_MLP_GATE_UP]
    assert len(nodes) == wanted > 0 and {len(node.outputs) for node in nodes} == {1}
    assert {node.attrs["activation"] for node in nodes} <= {"silu", "gelu"}


def run_steps(model: Path, transform: Callable[[OpGraph], OpGraph] | None) -> np.ndarray:
    """Return the logits of a prompt, then of tokens one by one, which covers both stages."""
    with Engine(
        read_gguf(model), CpuBackend("canonical-1", threads=1), ctx=32, options=EngineOptions(transform=transform)
    ) as engine:
        sequence = engine.open()
        return np.concatenate([engine.extend(sequence, item) for item in ([3, 1, 4, 1, 5, 9], [2], [6])])


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("architecture", ["qwen3", "qwen35moe", "gemma3", "phi3", "deepseek2", "mamba"])
def test_oracle_gives_fused_and_plain_graphs_the_same_bits(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    fused = run_steps(path, lambda graph: fuse_graph(graph, always_fuse))
    assert fused.tobytes() == run_steps(path, None).tobytes()


def test_experts_fuse_into_router_two_projections_and_sum() -> None:
    graph = model_graph("qwen35moe-q")
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    summed = [node for node in fused.nodes if node.op is Op.MOE_DOWN_ACC]
    assert summed and all(ABSENT not in node.inputs[5:7] and node.label.startswith("l_out-") for node in summed)
    shared = {node.outputs[0] for node in fused.nodes if node.op is Op.SHARED_EXPERT}
    assert {node.inputs[5] for node in summed} == shared
    assert not count_ops(fused)[Op.MOE_SWIGLU] and not count_ops(fused)[Op.ADD]
    routers = [node for node in fused.nodes if node.op is Op.MOE_GATE_TOPK]
    assert all(node.inputs[3] != ABSENT and node.attrs["activation"] == "silu" for node in routers)
    projected = [(node.outputs[3], *node.inputs[4:6]) for node in routers]
    plain = [node for node in graph.nodes if node.op in (Op.MOE_GATE_UP, Op.MOE_SWIGLU)]
    assert projected == [(y.outputs[0], *up.inputs[1:3]) for up, y in zip(plain[::2], plain[1::2], strict=True)]
    shared_experts = [node for node in fused.nodes if node.op is Op.SHARED_EXPERT]
    assert len(shared_experts) == len(routers) and not count_ops(fused)[Op.MOE_GATE_UP]
    assert all(node.inputs[-1] == router_norm(node, routers) for node in shared_experts)
    assert count_ops(fused)[Op.RMS_NORM] == 1, "the last one: every other norm is computed by its readers"


def test_router_of_another_input_or_with_an_early_reader_is_not_fused_with_experts() -> None:
    graph = fuse_graph(model_graph("qwen35moe-q"), lambda node, of: not node.outputs[3:])
    router = next(node for node in graph.nodes if node.op is Op.MOE_GATE_TOPK)
    experts = next(node for node in graph.nodes if node.op is Op.MOE_GATE_UP and node.layer == router.layer)

    def count_fused(changed: Node, *extra: Node) -> int:
        nodes = [node for old in graph.nodes for node in ((changed, *extra) if old is router else (old,))]
        fused = fuse_graph(replace(graph, nodes=tuple(nodes)), always_fuse)
        return sum(node.op is Op.MOE_GATE_UP for node in fused.nodes if node.layer == router.layer)

    assert experts.inputs[0] == router.inputs[0] and count_fused(router) == 0
    assert count_fused(with_operands(router, norm_w="model.output_norm")) == 1
    assert count_fused(replace(router, attrs={**router.attrs, "eps": 0.5})) == 1
    early = Node(Op.SOFTCAP, (router.outputs[2],), ("act.early",), {"cap": 1.0}, router.layer, "early")
    assert count_fused(router, early) == 1


def router_norm(node: Node, routers: list[Node]) -> str:
    return next(router.inputs[3] for router in routers if router.layer == node.layer)


def test_norm_of_experts_is_kept_for_another_reader() -> None:
    builder = Builder("experts")
    for name, shape in (("w.norm", (8,)), ("w.gate", (4, 8)), ("w.up", (4, 8)), ("w.down", (8, 4))):
        builder.buffer(name, shape, "f32", "weight")
    for name in ("act.x", "act.normed", "act.h"):
        builder.buffer(name, ("tokens", 8), "f32", "activation")
    for name in ("act.out", "act.twice"):
        builder.buffer(name, ("tokens", 8), "f32", "output")
    builder.node(Op.SCALE, ("act.h", ABSENT), ("act.x",), factor=1.0)
    builder.node(Op.RMS_NORM, ("act.x", "w.norm"), ("act.normed",), eps=1e-6, size=8)
    weights = ("w.gate", "w.up", "w.down", *[ABSENT] * 5)
    builder.node(Op.SHARED_EXPERT, ("act.normed", *weights), ("act.out",))
    alone = fuse_graph(builder.build(), always_fuse)
    assert not count_ops(alone)[Op.RMS_NORM] and alone.nodes[-1].inputs[0] == "act.x"
    builder.node(Op.SCALE, ("act.normed", ABSENT), ("act.twice",), factor=2.0)
    assert count_ops(fuse_graph(builder.build(), always_fuse))[Op.RMS_NORM] == 1


def test_gate_of_an_attention_is_fused() -> None:
    limits = SequenceLimits(ctx=64, slots=2)
    graph = build_model(read_gguf(GOLDEN / "qwen35moe-q.gguf"), limits, "decode").graph
    fused = fuse_graph(graph, always_fuse)
    gated = [node for node in fused.nodes if node.op is Op.FLASH_ATTN and node.inputs[6] != ABSENT]
    assert len(gated) == count_ops(graph)[Op.SIGMOID_MUL] > 0 and not count_ops(fused)[Op.SIGMOID_MUL]
    rotated = [node for node in fused.nodes if node.op is Op.QKV_FUSED_ROPE_KV_WRITE]
    both = [node.outputs[0] for node in graph.nodes if (node.label or "").startswith("Qcur_full-")]
    assert [node.outputs[0] for node in rotated] == [node.inputs[6] for node in gated] == both
    norms = [node.attrs["eps"] for node in graph.nodes if node.op is Op.RMS_NORM]
    assert {node.attrs[name] for node in rotated for name in ("eps", "head_eps")} <= set(norms)
    assert not count_ops(fused)[Op.RMS_NORM_FUSED_QKV]
    assert all(node.attrs["q_skip"] == node.attrs["head_dim"] for node in rotated)
    assert all(node.attrs["gate_skip"] == node.attrs["value_dim"] for node in gated)
    assert not count_ops(fused)[Op.SLICE]
    verify_graph(fused)


def test_gated_norm_is_fused_into_the_projection_that_reads_it() -> None:
    limits = SequenceLimits(ctx=64, slots=2)
    graph = build_model(read_gguf(GOLDEN / "qwen35moe-q.gguf"), limits, "decode").graph
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    norms = [node for node in graph.nodes if node.op is Op.SSM_GATED_NORM]
    gated = [node for node in fused.nodes if node.op is Op.MATMUL and node.inputs[6] != ABSENT]
    assert [(node.inputs[0], node.inputs[6], node.inputs[4]) for node in gated] == [node.inputs for node in norms]
    assert all(node.inputs[5] != ABSENT and node.label.startswith("attn_residual-") for node in gated)
    heads = graph.buffers[norms[0].inputs[0]].shape[-1] // graph.buffers[norms[0].inputs[2]].shape[0]
    assert {node.attrs["norm_groups"] for node in gated} == {heads} and not count_ops(fused)[Op.SSM_GATED_NORM]
    prefill = fuse_graph(replace(graph, stage="prefill"), always_fuse)
    assert count_ops(prefill)[Op.SSM_GATED_NORM] == len(norms) > 0, "tiles of tokens do not norm them each"


def test_projection_is_fused_into_the_convolution_that_reads_it() -> None:
    limits = SequenceLimits(ctx=64, slots=2)
    graph = build_model(read_gguf(GOLDEN / "qwen35moe-q.gguf"), limits, "decode").graph
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    conv = [node for node in graph.nodes if node.op is Op.SSM_CONV1D_UPDATE_IDS]
    both = [node for node in fused.nodes if node.op is Op.MATMUL_FUSED_CONV1D_IDS]
    assert [(node.inputs[2:8], node.outputs) for node in both] == [
        (node.inputs[1:], node.outputs) for node in conv
    ]
    assert all(node.inputs[8] != ABSENT and node.attrs["disjoint"] for node in both)
    assert not count_ops(fused)[Op.SSM_CONV1D_UPDATE_IDS]
    prefill = fuse_graph(replace(graph, stage="prefill"), always_fuse)
    assert count_ops(prefill)[Op.SSM_CONV1D_UPDATE_IDS] == len(conv) > 0


def test_scaled_expert_sum_is_not_fused_as_residual() -> None:
    """The third summand has no port: it stays an ADD."""
    builder = Builder("experts")
    for name, shape in (
        ("act.x", ("tokens", 2, 4)),
        ("act.w", ("tokens", 2)),
        *((f"act.r[{i}]", ("tokens", 4)) for i in range(6)),
    ):
        builder.buffer(name, shape, "f32", "activation" if name != "act.r[5]" else "output")
    builder.buffer("act.ids", ("tokens", 2), "i32", "activation")
    builder.buffer("model.down", (3, 4, 4), "f32", "weight")
    builder.node(Op.MOE_DOWN_ACC, ("act.x", "model.down", "act.ids", "act.w"), ("act.r[0]",))
    for index, other in enumerate(("act.r[1]", "act.r[1]", "act.r[1]")):
        total = f"act.r[{(0, 2, 3)[index]}]"
        builder.node(Op.ADD, (total, other), (f"act.r[{(2, 3, 5)[index]}]",))
    fused = fuse_graph(builder.build(), always_fuse)
    assert [node.op for node in fused.nodes] == [Op.MOE_DOWN_ACC, Op.ADD]
    assert fused.nodes[0].inputs[5:7] == ("act.r[1]", "act.r[1]")


def test_norm_is_fused_with_the_following_add() -> None:
    graph = model_graph("gemma4-q")
    fused = fuse_graph(graph, always_fuse)
    verify_graph(fused)
    summed = [node for node in fused.nodes if node.op is Op.RMS_NORM and node.inputs[2] != ABSENT]
    assert summed and not count_ops(fused)[Op.ADD] and not count_ops(fused)[Op.RESIDUAL_RMS_NORM]
    none = fuse_graph(graph, lambda node, of: node.op is not Op.RMS_NORM)
    assert all(node.inputs[2] == ABSENT for node in none.nodes if node.op is Op.RMS_NORM)


def test_head_fusion_works_when_keys_are_written_before_queries() -> None:
    graph = model_graph("gemma4-q")
    fused = count_ops(fuse_graph(graph, always_fuse))
    assert (
        fused[Op.RMS_NORM_FUSED_ROPE_KV_WRITE] + fused[Op.QKV_FUSED_ROPE_KV_WRITE]
        == count_ops(graph)[Op.KV_WRITE_BATCHED]
        > 0
    )
    apart = count_ops(fuse_graph(graph, lambda node, of: node.op is not Op.RMS_NORM_FUSED_QKV))
    assert not apart[Op.RMS_NORM_FUSED_ROPE_KV_WRITE] and not apart[Op.QKV_FUSED_ROPE_KV_WRITE]
