"""A lowered graph as dispatches: what lies where, which barriers there are, which grids are data."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from lower.chains import ONE, make_chain, plan_chain

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Builder, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Grid, Launch, Ref, Sync, Temp
from zinc_rt.kernels.sets import Merging
from zinc_rt.lower import Barrier, Dispatch, dispatch_plan, lower
from zinc_rt.lower.dispatch_plan import GridInBlock, find_operand_addresses
from zinc_rt.lower.levels import REACH, Touch, group_by_level
from zinc_rt.mem.plan import plan_memory


def test_steps_alternate_with_barriers_and_reuse_temporaries() -> None:
    plan = plan_chain((5, 1, 1))
    assert [step.launch.kernel if isinstance(step, Dispatch) else step.buffers for step in plan.steps] == [
        "first", (), "second", ("act.x[1]", "act.x[2]"), "first", (), "second",
    ]  # fmt: skip
    assert {step.temps["half"] for step in plan.dispatches} == {0}
    assert plan.temps_bytes == 1024 and plan.grids == ()


def test_each_dispatch_records_its_node() -> None:
    program = make_chain((5, "tokens", 1), {**ONE, "tokens": 16})
    first, second = (call.node for call in program.calls)
    assert [step.node for step in dispatch_plan(program).dispatches] == [None, first, first, second, second]


def test_arguments_are_placed_after_temporaries_and_grids() -> None:
    plan = plan_chain((5, "tokens", 1), {**ONE, "tokens": 16})
    ends = [plan.temps_bytes, plan.specs_offset + 12, plan.grids_offset + 12]
    for step in plan.dispatches:
        assert step.arguments_offset % 64 == 0 and step.arguments_offset >= max(ends)
        ends.append(step.arguments_offset + step.launch.kernarg_bytes)
    assert ends[-1] <= plan.size_bytes


def test_count_fixed_at_one_needs_no_grid_in_memory() -> None:
    assert {step.grid for step in plan_chain((5, "tokens", 1)).dispatches} == {(5, 1, 1)}


def test_step_count_is_read_from_memory_written_by_the_first_dispatch() -> None:
    plan = plan_chain((5, "tokens", 3), {**ONE, "tokens": 16})
    first, barrier, *others = plan.steps
    assert isinstance(first, Dispatch) and barrier == Barrier(()) and first.node is None
    assert first.launch.kernel == "step_grids" and first.launch.constants == (1,)
    assert first.launch.buffers == (Ref("step.counts"), Temp("specs", 12), Temp("grids", 12))
    assert first.temps == {"specs": plan.specs_offset, "grids": plan.grids_offset}
    grid = GridInBlock(plan.grids_offset, (5, "tokens", 3))
    assert {step.grid for step in others if isinstance(step, Dispatch)} == {grid}
    assert struct.unpack("<3I", plan.grid_specs) == (5, 1 << 31, 3)


def test_grid_count_unknown_to_the_first_dispatch_is_rejected() -> None:
    with pytest.raises(
        UnsupportedError,
        match="a grid cannot depend on the count entries: step_grids supports only tokens, sequences, rows",
    ):
        plan_chain(("entries", 1, 1), {**ONE, "entries": 2})


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 65536, 1), (1, 1, 65536), (1 << 32, 1, 1)])
def test_impossible_grid_is_rejected_with_its_kernel(grid: Grid) -> None:
    with pytest.raises(UnsupportedError, match=r"x-0: first needs .* workgroups"):
        plan_chain(grid)


def test_zeroed_temporaries_are_separate_and_zeroed_by_the_first_dispatch() -> None:
    def list_launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        buffers = Temp("count", 12, zeroed=True), Temp("half", 1000)
        yield Launch("counting", (Ref(node.inputs[0]), *buffers, Ref(node.outputs[0])))

    chain = make_chain((5, 1, 1), ONE)
    entry = replace(chain.calls[0].entry, code=list_launches)
    chain = lower(chain.graph, (entry,), chain.plan, ordering="canonical-1", tier="t1")
    for merging in (None, make_merging(lambda launch: None)):
        plan = dispatch_plan(replace(chain, merging=merging))
        first, barrier, one, _, other = plan.steps
        assert isinstance(first, Dispatch) and isinstance(barrier, Barrier)
        assert isinstance(one, Dispatch) and isinstance(other, Dispatch)
        begin, end = first.temps["zeroed"], first.temps["zeroed"] + 512
        assert first.launch.kernel == "zero_words" and first.launch.constants == (128,) and first.grid == (1, 1, 1)
        assert [one.temps["count"], other.temps["count"]] == [begin, begin + 256]
        assert end <= plan.temps_bytes and all(step.temps["half"] + 1000 <= begin for step in (one, other))


def test_every_part_of_the_block_has_a_name() -> None:
    program = make_chain((5, "tokens", 1), {**ONE, "tokens": 16}, adds=1)
    plan = dispatch_plan(program)
    block = [
        (offset + size_bytes, name)
        for where, offset, size_bytes, name in find_operand_addresses(plan, program.graph, program.plan)
        if not where
    ]
    assert [name for _, name in block] == [
        "arguments of step_grids for chain 16,1,1,1",
        "specs of chain 16,1,1,1",
        "grids of chain 16,1,1,1",
        "arguments of first for x-0",
        "half of x-0",
        "arguments of second for x-0",
        "half of x-0",
        "grids of chain 16,1,1,1",
    ]
    assert max(end for end, _ in block) <= plan.size_bytes


def merge_launches(launches: Sequence[Launch]) -> Launch:
    return Launch("both", tuple(buffer for item in launches for buffer in item.buffers))


def make_merging(key: Callable[[Launch], Hashable | None]) -> Merging:
    return Merging(2, key, merge_launches)


def plan_independent_nodes(count: int, key: Callable[[Launch], Hashable | None]) -> list[str]:
    """Return the kernels of a plan of that many independent nodes."""

    def list_launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
        yield Launch("one", (Ref(node.inputs[0]), Temp(f"of {node.label}", 8), Ref(node.outputs[0])))

    builder = Builder("independent")
    builder.buffer("step.counts", (8,), "i32", "step")
    builder.buffer("act.x", ("tokens", 4), "f32", "activation")
    for index in range(count):
        builder.buffer(f"act.y[{index}]", ("tokens", 4), "f32", "output")
        builder.node(Op.ADD, ("act.x", "act.x"), (f"act.y[{index}]",), label=f"y-{index}")
    graph = builder.build()
    entry = Entry(Op.ADD, list_launches, frozenset(["canonical-1"]))
    program = lower(graph, (entry,), plan_memory(graph, capacity=ONE), ordering="canonical-1", tier="t1")
    plan = dispatch_plan(replace(program, merging=make_merging(key)))
    for step in plan.dispatches:
        assert {buffer.name for buffer in step.launch.buffers if isinstance(buffer, Temp)} <= set(step.temps)
    return [step.launch.kernel for step in plan.dispatches]


def test_independent_launches_are_packed_into_fewest_dispatches() -> None:
    assert plan_independent_nodes(2, lambda launch: 1) == ["both"]
    assert plan_independent_nodes(5, lambda launch: 1) == ["both", "both", "one"]
    assert plan_independent_nodes(3, lambda launch: launch.buffers[2]) == ["one"] * 3
    assert plan_independent_nodes(2, lambda launch: None) == ["one"] * 2


def test_launches_separated_by_a_barrier_are_not_merged() -> None:
    program = replace(make_chain((5, 1, 1), ONE), merging=make_merging(lambda launch: 1))
    assert [step.launch.kernel for step in dispatch_plan(program).dispatches] == ["first", "second"] * 2


def plan_shared_temporaries(*nodes: tuple[str, str]) -> list[str]:
    """Return the kernels of a plan whose nodes, given as (input, output), write their input to a temporary and
    read it.
    """

    def list_launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        record = Temp(f"of {node.inputs[0]}", 64)
        yield Launch("make", (Ref(node.inputs[0]), record), makes=record)
        yield SYNC
        yield Launch("read", (record, Ref(node.outputs[0])))

    builder = Builder("shared")
    builder.buffer("step.counts", (8,), "i32", "step")
    for name in sorted({name for node in nodes for name in node}):
        builder.buffer(name, ("tokens", 4), "f32", "output")
    for source, target in nodes:
        builder.node(Op.ADD, (source, source), (target,))
    graph = builder.build()
    entry = Entry(Op.ADD, list_launches, frozenset(["canonical-1"]))
    program = lower(graph, (entry,), plan_memory(graph, capacity=ONE), ordering="canonical-1", tier="t1")
    plan = dispatch_plan(replace(program, merging=make_merging(lambda launch: None)))
    places = {step.temps[f"of {step.node.inputs[0]}"] for step in plan.dispatches if step.node}
    assert len(places) == sum(step.launch.kernel == "make" for step in plan.dispatches)
    return ["-" if isinstance(step, Barrier) else step.launch.kernel for step in plan.steps]


def test_derived_data_is_computed_once_for_all_readers() -> None:
    assert plan_shared_temporaries(("x", "a"), ("x", "b"), ("x", "c")) == ["make", "-", "read", "read", "read"]
    assert plan_shared_temporaries(("x", "a"), ("y", "b")) == ["make", "make", "-", "read", "read"]
    behind_a_barrier = plan_shared_temporaries(("x", "a"), ("a", "b"), ("x", "c"))
    assert behind_a_barrier == ["make", "-", "read", "read", "-", "make", "-", "read"]


def test_derived_data_is_recomputed_after_its_buffer_changes() -> None:
    assert plan_shared_temporaries(("x", "x"), ("x", "b")) == ["make", "-", "read", "-", "make", "-", "read"]


def test_dependency_level_holds_every_unblocked_launch() -> None:
    """Two chains of a, b, c one behind the other, and what joins them."""
    chains = [[f"{step}{chain}"] for chain in "xy" for step in "abc"]

    def touched_ranges(launch: str) -> list[Touch]:
        if launch == "join":
            return [("x", 0, 8, False), ("y", 4, 8, False)]
        return [(launch[1], 0, 8, True)]

    levels = [["ax", "ay"], ["bx", "by"], ["cx", "cy"], ["join"]]
    assert group_by_level([*chains, ["join"]], touched_ranges) == levels
    apart = group_by_level([*chains, ["join"]], lambda launch: [("one", 0, 8, True)])
    assert apart == [*chains, ["join"]]
    assert group_by_level([["a"], ["b"]], lambda launch: [("one", 0, 8, False)]) == [["a", "b"]]
    assert group_by_level(
        [["a"], ["b"]], lambda launch: [("one", 8 * ord(launch), 8 * ord(launch) + 8, True)]
    ) == [["a", "b"]]


def test_launch_moves_no_further_than_its_reach() -> None:
    intervals = [[number] for number in range(REACH + 2)]
    levels = group_by_level(intervals, lambda number: [("chain", 0, 1, True)] if number <= REACH else [])
    assert levels[2] == [2, REACH + 1]
