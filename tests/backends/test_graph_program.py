"""A lowered graph as dispatches: what lies where, which barriers there are, which grids are data."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pytest

from zinc_rt.backends.amd import graph_program
from zinc_rt.backends.amd.graph_program import InBlock, ProgramPlan
from zinc_rt.backends.amd.kernel_code import LoadedKernel
from zinc_rt.errors import UnsupportedError
from zinc_rt.ir.graph import Builder, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Grid, Launch, Ref, Sync, Temp
from zinc_rt.lower import lower
from zinc_rt.mem.plan import plan_memory
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.layout import Packet
from zinc_rt.pm4.packets import DispatchDirect, DispatchIndirect, EventWrite, SetShReg
from zinc_rt.pm4.registers import Sh

VA = 0x7_0000_0000
TAKES = {"first": (2, 2), "second": (3, 1), "step_grids": (3, 1)}  # buffers, constants


def planned(grid: Grid, capacity: Mapping[str, int], *, adds: int = 2) -> ProgramPlan:
    """A chain of additions, each two launches over a temporary."""

    def launches(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
        half = Temp("half", 1000)
        yield Launch("first", (Ref(node.inputs[0]), half), (7, 1.5), grid)
        yield SYNC
        yield Launch("second", (half, None, Ref(node.outputs[0], 16)), (-1,), grid)

    builder = Builder("chain")
    builder.buffer("step.counts", (3,), "i32", "step")
    for index in range(adds + 1):
        builder.buffer(f"act.x[{index}]", ("tokens", 4), "f32", "activation")
    for index in range(adds):
        builder.node(Op.ADD, (f"act.x[{index}]", f"act.x[{index}]"), (f"act.x[{index + 1}]",))
    graph = builder.build()
    entry = Entry(Op.ADD, launches, frozenset(["canonical-1"]))
    program = lower(graph, [entry], plan_memory(graph, capacity=capacity), ordering="canonical-1", tier="t1")
    return graph_program.plan(program)


def stream(plan: ProgramPlan) -> list[Packet]:
    kernels = {
        key: LoadedKernel(key[0], 0x10_0000_0100 * (1 + index), (1, 2, 3), (32, 1, 1), *TAKES[key[0]])
        for index, key in enumerate(dict.fromkeys(step.kernel for step in plan.dispatches))
    }
    return graph_program.packets(plan, VA, kernels, Generation.GFX12)


def test_steps_alternate_with_barriers_and_temporaries_are_used_again_behind_one() -> None:
    plan = planned((5, 1, 1), {"tokens": 1, "sequences": 1, "rows": 1})
    assert [None if step is None else step.launch.kernel for step in plan.steps] == [
        "first", None, "second", None, "first", None, "second",
    ]  # fmt: skip
    assert {step.temps["half"] for step in plan.dispatches} == {InBlock(0)}
    assert plan.temps_end == 1024 and plan.grids == ()


def test_the_block_holds_addresses_then_constants() -> None:
    plan = planned((5, 1, 1), {"tokens": 1, "sequences": 1, "rows": 1})
    image = graph_program.content(plan, VA, lambda ref: 0x1000 + ref.offset_bytes)
    first, second = [step.arguments_offset - plan.specs_offset for step in plan.dispatches][:2]
    assert struct.unpack_from("<QQIf", image, first) == (0x1000, VA, 7, 1.5)
    assert struct.unpack_from("<QQQI", image, second) == (VA, 0, 0x1010, 0xFFFFFFFF)
    assert all((VA + step.arguments_offset) % 64 == 0 for step in plan.dispatches)


def test_a_count_that_can_be_only_one_needs_no_grid_in_memory() -> None:
    plan = planned((5, "tokens", 1), {"tokens": 1, "sequences": 1, "rows": 1})
    assert {step.grid for step in plan.dispatches} == {(5, 1, 1)}
    assert not any(isinstance(packet, DispatchIndirect) for packet in stream(plan))


def test_a_count_of_the_step_is_read_from_memory_that_a_first_dispatch_writes() -> None:
    plan = planned((5, "tokens", 3), {"tokens": 16, "sequences": 1, "rows": 1})
    first, barrier = plan.steps[:2]
    assert first is not None and first.launch.kernel == "step_grids" and barrier is None
    grids = [packet for packet in stream(plan) if isinstance(packet, DispatchIndirect)]
    assert len(grids) == 4 and {grid.address for grid in grids} == {VA + plan.grids_offset}
    image = graph_program.content(plan, VA, lambda ref: 0x1000)
    assert struct.unpack_from("<3I", image, 0) == (5, 1 << 31, 3)
    assert struct.unpack_from("<QQQI", image, first.arguments_offset - plan.specs_offset) == (
        0x1000, VA + plan.specs_offset, VA + plan.grids_offset, 1,
    )  # fmt: skip


def test_a_dispatch_sets_only_the_registers_it_changes() -> None:
    packets = stream(planned((5, 1, 1), {"tokens": 1, "sequences": 1, "rows": 1}, adds=1))
    at = [index for index, packet in enumerate(packets) if isinstance(packet, DispatchDirect)]
    between = packets[at[0] + 1 : at[1]]
    assert isinstance(between[0], EventWrite)
    assert [p.register for p in between if isinstance(p, SetShReg)] == [Sh.PGM_LO, Sh.USER_DATA_0]
    [program] = [p.values for p in between if isinstance(p, SetShReg) and p.register == Sh.PGM_LO]
    assert program[0] | program[1] << 32 == 2 * 0x10_0000_0100 >> 8


def test_arguments_that_the_kernel_does_not_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TAKES, "second", (3, 2))
    with pytest.raises(ValueError, match="second takes 3 buffers and 2 constants, its row gives 3 and 1"):
        stream(planned((5, 1, 1), {"tokens": 1, "sequences": 1, "rows": 1}))


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 65536, 1), (1, 1, 65536), (1 << 32, 1, 1)])
def test_a_grid_that_no_dispatch_can_have_is_refused_with_its_kernel(grid: Grid) -> None:
    with pytest.raises(UnsupportedError, match=r"first wants .* workgroups"):
        planned(grid, {"tokens": 1, "sequences": 1, "rows": 1})
