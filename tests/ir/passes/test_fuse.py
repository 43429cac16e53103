"""The fused graph: what becomes one node, what stays apart; that it is verified and gives the oracle's bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ir.model_graphs import MODELS, model_graph

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine import Engine
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.graph import ABSENT, Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.fuse import fuse
from zinc_rt.ir.verify import verify
from zinc_rt.model.gguf import read_gguf

FUSED = (Op.RMS_NORM_FUSED_ROPE_KV_WRITE, Op.RESIDUAL_RMS_NORM)
WIDTH = 8


def always(node: Node, graph: OpGraph) -> bool:
    return True


def ops(graph: OpGraph) -> Counter[Op]:
    return Counter(node.op for node in graph.nodes)


def residual(more: Callable[[Builder], None] = lambda builder: None, *, size: int = WIDTH) -> OpGraph:
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
    more(builder)
    builder.node(Op.RMS_NORM, ("act.h", "model.norm"), ("act.y",), eps=1e-6, size=size)
    return builder.build()


def test_a_sum_and_its_norm_are_one_node_and_the_sum_stays_for_others() -> None:
    def doubled(builder: Builder) -> None:
        builder.buffer("act.twice", ("tokens", WIDTH), "f32", "output")
        builder.node(Op.SCALE, ("act.h", ABSENT), ("act.twice",), factor=2.0)

    for graph in (residual(), residual(doubled)):
        fused = fuse(graph, always)
        verify(fused)
        node = next(node for node in fused.nodes if node.op is Op.RESIDUAL_RMS_NORM)
        assert node.inputs == ("act.a", "act.b", "model.norm") and node.outputs == ("act.h", "act.y")
        assert node.attrs == {"eps": 1e-6} and not ops(fused)[Op.ADD] and not ops(fused)[Op.RMS_NORM]


def test_a_norm_of_parts_of_the_sum_stays_apart() -> None:
    graph = residual(size=WIDTH // 2)
    assert fuse(graph, always) is graph


def test_what_no_kernel_runs_stays_as_it_is() -> None:
    graph = model_graph("qwen3-q")
    assert fuse(graph, lambda node, of: False) is graph
    only_norms = fuse(graph, lambda node, of: node.op is Op.RESIDUAL_RMS_NORM)
    assert ops(only_norms)[FUSED[0]] == 0 and ops(only_norms)[FUSED[1]] == 2 * 3


@pytest.mark.parametrize("name", MODELS)
def test_models_lose_nodes_and_no_operand(name: str) -> None:
    graph = model_graph(name)
    fused = fuse(graph, always)
    verify(fused)
    assert len(fused.nodes) < len(graph.nodes) and ops(fused)[Op.RESIDUAL_RMS_NORM]
    read = {each for node in graph.nodes for each in node.inputs if graph.buffers.get(each) and "model." in each}
    assert read <= {each for node in fused.nodes for each in node.inputs}
    assert {spec.name for spec in graph.by_role("output", "state")} == {
        spec.name for spec in fused.by_role("output", "state")
    }


def logits(model: Path, transform: Callable[[OpGraph], OpGraph] | None) -> np.ndarray:
    with Engine(read_gguf(model), CpuBackend("canonical-1", threads=1), ctx=32, transform=transform) as engine:
        return engine.forward([3, 1, 4, 1, 5, 9, 2, 6, 5])


@pytest.mark.parametrize("architecture", ["qwen3", "qwen35moe", "gemma3", "phi3", "deepseek2", "mamba"])
def test_the_oracle_gives_the_fused_graph_the_bits_of_the_plain_one(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    fused = logits(path, lambda graph: fuse(graph, always))
    assert fused.tobytes() == logits(path, None).tobytes()


def test_the_shared_experts_sum_is_its_own_nodes() -> None:
    graph = model_graph("qwen35moe-q")
    fused = fuse(graph, always)
    shared = [node for node in fused.nodes if node.op is Op.SHARED_EXPERT]
    assert shared and all(node.inputs[5] != ABSENT and node.label.startswith("ffn_out-") for node in shared)
