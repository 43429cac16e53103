"""Splitting inverts fusion, and the comparison of graphs sees through both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pytest

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.differences import find_graph_difference
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.ir.passes.split import PARTS, split_graph, split_part
from zinc_rt.ir.verify import verify_graph
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q", "gemma4moe-q")


@cache
def build_graph(model: str, stage: Stage = "decode") -> OpGraph:
    return build_model(read_gguf(FOLDER / f"{model}.gguf"), SequenceLimits(ctx=64), stage).graph


@cache
def fuse_all(model: str, stage: Stage = "decode") -> OpGraph:
    return fuse_graph(build_graph(model, stage), lambda node, graph: True)


@pytest.mark.parametrize("stage", ["prefill", "decode"])
@pytest.mark.parametrize("model", MODELS)
def test_split_graph_computes_what_the_plain_one_does(model: str, stage: Stage) -> None:
    plain, fused = build_graph(model, stage), fuse_all(model, stage)
    assert len(fused.nodes) < len(plain.nodes)
    split = split_graph(fused)
    verify_graph(split)
    assert all(split_part(node, split) is None for node in split.nodes)
    assert find_graph_difference(plain, fused) == find_graph_difference(fused, plain) == ""
    assert find_graph_difference(plain, split) == ""


def test_every_fused_opcode_is_split() -> None:
    graphs = [fuse_all(model, stage) for model in MODELS for stage in ("prefill", "decode")]
    fused = {node.op for graph in graphs for node in graph.nodes if split_part(node, graph)}
    assert set(PARTS) - fused <= {Op.SHARED_EXPERT}, "opcodes that no model of these uses"
    fusing = {op for op in Op if "FUSED" in op.name or op is Op.RESIDUAL_RMS_NORM}
    assert fusing <= set(PARTS)


def list_wrong_attributes() -> Iterator[tuple[str, int, str]]:
    """Yield each attribute of a fused node of the smallest model: its number, and another value."""
    for index, node in enumerate(fuse_all("qwen3-q").nodes):
        if split_part(node, fuse_all("qwen3-q")) is not None:
            yield from ((node.label, index, name) for name in node.attrs)


@pytest.mark.parametrize(("label", "index", "name"), [*list_wrong_attributes()])
def test_wrong_attribute_of_a_fused_node_is_named(label: str, index: int, name: str) -> None:
    fused = fuse_all("qwen3-q")
    node = fused.nodes[index]
    value = node.attrs[name]
    if isinstance(value, str):
        other: str | float = {"neox": "norm", "norm": "neox", "silu": "gelu"}[value]
    else:
        other = 2 * value
    wrong = replace(node, attrs=MappingProxyType({**node.attrs, name: other}))
    graph = replace(fused, nodes=(*fused.nodes[:index], wrong, *fused.nodes[index + 1 :]))
    text = find_graph_difference(build_graph("qwen3-q"), graph)
    assert f"of layer {node.layer}" in text or node.layer is None
    expected = {"head_eps": "eps", "head_dim": "size", "activation": ""}.get(name, name)
    assert f"{expected} is " in text or (name == "activation" and "SWIGLU" in text and "is missing" in text)


def test_exchanged_operands_are_named() -> None:
    fused = fuse_all("qwen3-q")
    index = next(index for index, node in enumerate(fused.nodes) if node.op is Op.RMS_NORM_FUSED_MLP_GATE_UP)
    x, weight, gate, up = fused.nodes[index].inputs
    wrong = replace(fused.nodes[index], inputs=(x, weight, up, gate))
    graph = replace(fused, nodes=(*fused.nodes[:index], wrong, *fused.nodes[index + 1 :]))
    assert "gate is " in find_graph_difference(build_graph("qwen3-q"), graph)


def test_missing_and_extra_nodes_are_named() -> None:
    plain = build_graph("qwen3-q")
    index = next(index for index, node in enumerate(plain.nodes) if node.op is Op.ROPE)
    rope = plain.nodes[index]
    nodes = [
        replace(node, inputs=tuple(rope.inputs[0] if name == rope.outputs[0] else name for name in node.inputs))
        for node in plain.nodes
        if node is not rope
    ]
    without = replace(plain, nodes=tuple(nodes))
    assert find_graph_difference(plain, without) == f"ROPE {rope.label} of layer 0 is missing"
    twice = replace(
        plain, nodes=(*plain.nodes, replace(plain.nodes[index], inputs=(rope.outputs[0], *rope.inputs[1:])))
    )
    assert find_graph_difference(plain, twice) == f"ROPE {rope.label} of layer 0 is not in the model's graph"
