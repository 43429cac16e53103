from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import is_same
from ir_text_reader import parse_text
from model_graphs import FORMS, MODELS, model_graph

from zinc_rt.ir.graph import ABSENT, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.serial import from_bytes, to_bytes
from zinc_rt.ir.text import to_text
from zinc_rt.ir.verify import find_violations, verify_graph

EVERY = [(name, form) for name in MODELS for form in FORMS]


def without_node(graph: OpGraph, index: int) -> OpGraph:
    return replace(graph, nodes=graph.nodes[:index] + graph.nodes[index + 1 :])


def test_test_models_exist():
    assert len(MODELS) >= 3


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize(("name", "form"), EVERY)
def test_model_graph_is_valid_and_round_trips_in_both_formats(name, form):
    graph = model_graph(name, form)
    verify_graph(graph)
    assert is_same(from_bytes(to_bytes(graph)), graph)
    assert is_same(parse_text(to_text(graph)), graph)


@pytest.mark.parametrize(("name", "form"), EVERY)
def test_removing_any_model_barrier_is_detected(name, form):
    graph = model_graph(name, form)
    barriers = [index for index, node in enumerate(graph.nodes) if node.op is Op.BARRIER]
    assert barriers
    for index in barriers:
        assert "missing-barrier" in {f.rule for f in find_violations(without_node(graph, index))}, graph.nodes[
            index
        ]


@pytest.mark.rest
@pytest.mark.parametrize("name", MODELS)
def test_removing_any_producer_node_is_detected(name):
    graph = model_graph(name)
    for index, node in enumerate(graph.nodes):
        later = {used for after in graph.nodes[index + 1 :] for used in after.inputs if used != ABSENT}
        fed = [o for o in node.outputs if o in later and graph.buffers[o].role in ("activation", "output")]
        if fed:
            assert "read-before-write" in {f.rule for f in find_violations(without_node(graph, index))}, node


@pytest.mark.rest
@pytest.mark.parametrize("name", MODELS)
def test_every_model_operand_accepts_only_its_dtype(name):
    graph = model_graph(name)
    for buffer in graph.by_role("activation", "state", "step"):
        other = "i32" if buffer.dtype == "f32" else "f32"
        touched = any(buffer.name in (*node.inputs, *node.outputs) for node in graph.nodes)
        bad = replace(graph, buffers={**graph.buffers, buffer.name: replace(buffer, dtype=other)})
        assert bool(find_violations(bad)) == touched, buffer
