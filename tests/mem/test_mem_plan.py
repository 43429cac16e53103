from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import ABSENT, Builder, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import BufferPlacement, MemoryPlan, plan_memory

CAPACITY = {"tokens": 16, "sequences": 2, "rows": 1}


def small_graph(layers: int = 3, quant: str = "q8_0") -> OpGraph:
    """Two projections per layer over a residual stream, a state that is updated in place, and one output."""
    g = Builder("small")
    token = g.buffer("request[slot].token_id", ("tokens",), "i32", "step")
    for field in ("position", "slot"):
        g.buffer(f"request[slot].{field}", ("tokens",), "i32", "step")
    row = g.buffer("request.row", ("rows",), "i32", "step")
    table = g.buffer("model.embed_table", (100, 64), quant, "weight")
    hidden = g.buffer("act.embd", ("tokens", 64), "f32", "activation")
    g.node(Op.EMBED, (token, table), (hidden,))
    for n in range(layers):
        up = g.buffer(f"model.ffn.up[{n}]", (192, 64), quant, "weight")
        down = g.buffer(f"model.ffn.down[{n}]", (64, 192), "q4_0", "weight")
        g.buffer(f"state.kv_k[{n}]", (64, 64), "f32", "state")
        wide = g.buffer(f"act.wide[{n}]", ("tokens", 192), "f32", "activation")
        g.node(Op.MATMUL, (hidden, up), (wide,), layer=n)
        out = g.buffer(f"act.out[{n}]", ("tokens", 64), "f32", "activation")
        g.node(Op.MATMUL, (wide, down), (out,), layer=n)
        hidden_next = g.buffer(f"act.l_out[{n}]", ("tokens", 64), "f32", "activation")
        g.node(Op.ADD, (hidden, out), (hidden_next,), layer=n)
        hidden = hidden_next
    logits = g.buffer("out.logits", ("rows", 100), "f32", "output")
    g.node(Op.LM_HEAD, (hidden, table, row), (logits,))
    return g.build()


def activation_spans(graph: OpGraph) -> dict[str, tuple[int, int]]:
    """Return the first and last node that uses each activation, by a simple search."""
    names = [spec.name for spec in graph.by_role("activation")]
    touching = {
        name: [index for index, node in enumerate(graph.nodes) if name in (*node.inputs, *node.outputs)]
        for name in names
    }
    return {name: (min(index), max(index)) for name, index in touching.items() if index}


def is_overlapping(a: BufferPlacement, b: BufferPlacement) -> bool:
    return (
        a.allocation == b.allocation
        and a.offset_bytes < b.offset_bytes + b.size_bytes
        and b.offset_bytes < a.offset_bytes + a.size_bytes
    )


def check(graph: OpGraph, plan: MemoryPlan) -> None:
    """Check the requirements of every plan, byte by byte."""
    assert set(plan.placements) == set(graph.buffers)
    alive = activation_spans(graph)
    for a, b in itertools.combinations(graph.buffers, 2):
        if is_overlapping(plan.placements[a], plan.placements[b]):
            assert a in alive and b in alive, f"{a} and {b} share bytes and are no activations"
            assert not plan.tap
            assert alive[a][1] < alive[b][0] or alive[b][1] < alive[a][0], f"{a} and {b} are alive together"
    for name, allocation in plan.allocations.items():
        used = bytearray(allocation.size_bytes)
        for placement in plan.placements.values():
            if placement.allocation == name:
                end = placement.offset_bytes + placement.size_bytes
                assert end <= allocation.size_bytes
                used[placement.offset_bytes : end] = b"\1" * placement.size_bytes
        assert sum(used) == allocation.payload_bytes
        assert allocation.size_bytes % plan.alignment == 0
    assert plan.total_bytes == sum(use.total_bytes for use in plan.usage().values())
    assert MemoryPlan.from_json(plan.to_json()) == plan


def test_each_weight_class_is_one_allocation_with_an_offset_per_layer():
    plan = plan_memory(small_graph(), capacity=CAPACITY)
    row = 64 // 32 * 34
    ups = [plan.placements[f"model.ffn.up[{n}]"] for n in range(3)]
    assert {p.allocation for p in ups} == {"weight/model.ffn.up[*]"}
    assert [p.size_bytes for p in ups] == [192 * row] * 3
    assert [p.offset_bytes for p in ups] == [0, 13056, 26112]  # 192 * 68 is a multiple of 256
    assert plan.allocations["weight/model.ffn.up[*]"].heap is BufferHeap.DEVICE_LOCAL
    assert plan.allocations["state/state.kv_k[*]"].size_bytes == 3 * 64 * 64 * 4
    check(small_graph(), plan)


def test_step_block_is_one_host_mapped_allocation():
    plan = plan_memory(small_graph(), capacity=CAPACITY)
    fields = [plan.placements[f"request[slot].{field}"] for field in ("token_id", "position", "slot")]
    assert [p.offset_bytes for p in fields] == [0, 64, 128]
    assert {p.allocation for p in fields} == {"step"}
    assert plan.placements["request.row"] == BufferPlacement("step", 192, 4)
    assert plan.allocations["step"].heap is BufferHeap.HOST_VISIBLE
    assert plan.allocations["step"].payload_bytes == 196
    assert plan.allocations["output/out.logits"].heap is BufferHeap.BAR


def test_arena_does_not_grow_with_layers_and_stays_near_its_floor():
    plan = plan_memory(small_graph(20), capacity=CAPACITY)
    assert plan.arena_floor_bytes == 16 * 64 * 4 * 2 + 16 * 192 * 4
    assert plan.allocations["activation"].size_bytes <= 1.25 * plan.arena_floor_bytes
    check(small_graph(20), plan)


def test_lingering_value_keeps_its_bytes_for_the_given_node_count():
    graph = small_graph(20)
    plan = plan_memory(graph, capacity=CAPACITY, linger=2)
    check(graph, plan)
    for number, node in enumerate(graph.nodes):
        placements = [plan.placements[name] for name in node.outputs if graph.buffers[name].role == "activation"]
        for earlier in graph.nodes[max(0, number - 2) : number]:
            for name in {*earlier.inputs, *earlier.outputs} - {*node.outputs, ABSENT}:
                placement = plan.placements[name]
                assert not any(
                    placement.allocation == other.allocation
                    and placement.offset_bytes < other.offset_bytes + other.size_bytes
                    and other.offset_bytes < placement.offset_bytes + placement.size_bytes
                    for other in placements
                ), (name, node)
    assert plan.allocations["activation"].size_bytes < 3 * plan.arena_floor_bytes


def test_tap_mode_reuses_no_memory():
    graph = small_graph()
    plan = plan_memory(graph, capacity=CAPACITY, tap=True)
    check(graph, plan)
    demand = sum(plan.placements[spec.name].size_bytes for spec in graph.by_role("activation"))
    assert plan.allocations["activation"].payload_bytes == demand


def test_in_place_output_shares_the_placement_of_its_input():
    g = Builder("inplace")
    ring = g.buffer("host_ring.tokens", (8, 4), "i32", "output")
    cursor = g.buffer("host_ring.cursor", (1,), "i32", "state")
    token = g.buffer("act.token", ("rows",), "i32", "activation")
    slot, position = (g.buffer(f"step.{name}", ("rows",), "i32", "step") for name in ("slot", "position"))
    record = g.buffer("slots.record", (2, 64), "i32", "table")
    g.node(Op.STREAM_OUT, (token, slot, position, record, ring, cursor), (ring, cursor))
    plan = plan_memory(g.build(), capacity=CAPACITY)
    assert plan.placements["host_ring.tokens"] == BufferPlacement("output/host_ring.tokens", 0, 128)


def test_usage_counts_every_byte_of_every_heap():
    plan = plan_memory(small_graph(1), capacity=CAPACITY)
    use = plan.usage()
    assert use[BufferHeap.HOST_VISIBLE].payload_bytes == 196
    assert use[BufferHeap.HOST_VISIBLE].padding_bytes == 60
    assert use[BufferHeap.BAR].payload_bytes == 400
    assert use[BufferHeap.BAR].total_bytes == 512
    assert json.loads(plan.to_json())["usage"]["bar"] == {"payload_bytes": 400, "padding_bytes": 112}


def one_buffer(shape, dtype="f32", role="activation") -> OpGraph:
    g = Builder("one")
    g.buffer("act.x", shape, dtype, role)
    return g.build()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (one_buffer(("pages", 4)), "act.x: no capacity given for 'pages'; given: tokens, sequences, rows"),
        (one_buffer((2, 33), "q8_0", "weight"), "act.x: 33 elements are not whole blocks of 32"),
        (one_buffer((2, 32), "q9_9", "weight"), "act.x: unknown dtype 'q9_9'"),
        (one_buffer((0, 32)), "act.x: dimension 0 is 0"),
        (one_buffer((4,), role="mystery"), "act.x: unknown role mystery"),
    ],
)
def test_unplaceable_buffer_is_reported(graph, message):
    with pytest.raises(InputError, match=message):
        plan_memory(graph, capacity=CAPACITY)


def test_plan_of_another_format_is_rejected():
    data = plan_memory(small_graph(), capacity=CAPACITY).as_dict()
    with pytest.raises(InputError, match="format 2; this build reads 1"):
        MemoryPlan.from_dict({**data, "format": 2})
    stray = {"act.x": {"allocation": "step", "offset_bytes": 0, "size_bytes": 10**9}}
    typed = {"act.x": {"allocation": "step", "offset_bytes": "0", "size_bytes": 1}}
    changed = [{"allocations": {"a": {"heap": "floppy"}}}, {"placements": stray}, {"placements": typed}]
    for text in ("", "[]", "{}", *(json.dumps({**data, **change}) for change in changed)):
        with pytest.raises(InputError, match="memory plan"):
            MemoryPlan.from_json(text)


@st.composite
def random_graphs(draw: st.DrawFn) -> OpGraph:
    """Activations of unusual sizes that are used by random nodes; the plan depends only on the names."""
    g = Builder("random")
    count = draw(st.integers(1, 12))
    names = [
        g.buffer(f"act.x[{n}]", (draw(st.integers(1, 9)), draw(st.integers(1, 200))), "f32", "activation")
        for n in range(count)
    ]
    for n in range(draw(st.integers(0, 3))):
        g.buffer(f"model.w[{n}]", (draw(st.integers(1, 5)), 32), draw(st.sampled_from(["q8_0", "f16"])), "weight")
    for _ in range(draw(st.integers(1, 15))):
        used = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
        g.node(Op.ADD, tuple(used[1:]), (used[0],))
    return g.build()


@pytest.mark.rest
@given(graph=random_graphs(), tap=st.booleans(), alignment=st.sampled_from([16, 64, 256]))
def test_live_buffers_do_not_overlap(graph, tap, alignment):
    plan = plan_memory(graph, capacity=CAPACITY, tap=tap, alignment=alignment)
    check(graph, plan)
    assert plan.allocations["activation"].size_bytes >= plan.arena_floor_bytes
