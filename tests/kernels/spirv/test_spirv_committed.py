"""The committed SPIR-V is what its sources give, keeps its bits, and takes the arguments that rows give it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain

import pytest
from support import Counts

from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.spirv.compile import (
    BUILT,
    PROBES,
    GlslSource,
    build,
    hash_source,
    is_available,
    list_sources,
    read_source_hash,
)
from zinc_rt.kernels.spirv.table import KERNELS, TUNING, module, names
from zinc_rt.lower.dispatch_plan import dispatch_plan
from zinc_rt.lower.lower import choose_entry
from zinc_rt.lower.lowered_graph import Call, LoweredGraph
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.spirv.kernarg import STRUCT, Kernarg, read_kernarg
from zinc_rt.spirv.lint import lint_module
from zinc_rt.spirv.module import SpirvModule, read_module
from zinc_rt.spirv.opcodes import Opcode
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test.select import build_skeleton

OF_NO_CASE = {"self_test", "step_grids", "flash_attn_2048", "mla_flash_attn_2048"}
committed = pytest.mark.parametrize("source", list_sources(), ids=lambda source: source.name)


@cache
def read_kernel(name: str) -> SpirvModule:
    return read_module(module(name), name)


@pytest.mark.parametrize("source", [*list_sources(), *list_sources(PROBES)], ids=lambda source: source.name)
def test_committed_kernel_has_the_hash_of_its_source(source: GlslSource) -> None:
    built = read_module(source.built.read_bytes(), source.name)
    assert read_source_hash(built) == hash_source(source), "stale: zinc-rt vulkan compile"


@pytest.mark.rest(keep=3)
@committed
def test_lint_reports_nothing(source: GlslSource) -> None:
    assert lint_module(read_kernel(source.name)) == ()


def test_every_committed_kernel_has_a_source() -> None:
    assert {path.stem for path in BUILT.glob("*.spv")} == {source.name for source in list_sources()} == {*names()}


@pytest.mark.rest
@pytest.mark.skipif(not is_available(), reason='no compiler: extra "glsl" is not installed')
def test_committed_kernels_match_their_sources(slow_counts: Counts) -> None:
    """The hash above says so of each source; that the compiler gives the same bytes, some of them."""
    every = [*list_sources(), *list_sources(PROBES)]
    every = every[:: -(-len(every) // slow_counts(12, len(every)))]
    with ThreadPoolExecutor(2) as pool:  # each waits for a process of its own
        built = list(pool.map(build, every))
    assert [item.name for item, data in zip(every, built, strict=True) if item.built.read_bytes() != data] == []


@cache
def list_launches(family: str) -> tuple[Launch, ...]:
    """Select from the cases of a family that the set supports, in every ordering; among cases that differ only in
    sizes and values, the first and the widest.
    """
    return tuple(
        launch for ordering in sorted(TUNING.orderings) for launch in launches_of_ordering(family, ordering)
    )


def launches_of_ordering(family: str, ordering: str) -> Iterator[Launch]:
    shapes = defaultdict[object, list[Case]](list)
    for case in family_cases(family):
        shapes[case.op, str(case.attrs), case.dtype, case.kv, case.without, str(case.room)].append(case)
    widest = (max(alike, key=lambda case: max(case.dims.values())) for alike in shapes.values())
    for case in chain((alike[0] for alike in shapes.values()), widest):
        node = build_skeleton(case)
        entry = choose_entry(node.node, node.graph, KERNELS.entries, ordering)
        if isinstance(entry, str):
            continue
        together = node.make_shared_plan(BufferHeap.DEVICE_LOCAL, 256)
        program = LoweredGraph(node.graph, together, ordering, (Call(node.node, entry),))
        yield from (step.launch for step in dispatch_plan(program).dispatches)


@cache
def constant_types(name: str) -> tuple[int, ...]:
    """Return the opcodes of the types of a kernel's constants, in order."""
    result = read_kernel(name)
    ids = {id for id, text in result.names.items() if text == STRUCT}
    (block,) = (item for item in result.of(Opcode.TypeStruct) if item.operands[0] in ids)
    members = [result.definitions[id] for id in block.operands[1:]]
    return tuple(m.opcode for m in members if m.opcode != Opcode.TypePointer and m.operands[1] == 32)


@cache
def read_arguments(name: str) -> Kernarg:
    return read_kernarg(read_kernel(name), name)


@pytest.mark.rest
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_pass_the_arguments_kernels_take(family: str) -> None:
    seen = set()
    for launch in list_launches(family):
        takes = read_arguments(launch.kernel)
        assert len(launch.buffers) == len(takes.buffers), launch
        assert len(launch.constants) == len(takes.constants), launch
        for value, kind, name in zip(
            launch.constants, constant_types(launch.kernel), takes.constants, strict=True
        ):
            wanted = Opcode.TypeFloat if isinstance(value, float) else Opcode.TypeInt
            assert kind == wanted, f"{launch.kernel}: {name} is given {value!r}"
        assert not takes.spec_ids, launch
        assert any(buffer.stored for buffer in takes.buffers), f"{launch.kernel} stores nothing"
        seen.add(launch.kernel)
    assert seen


@pytest.mark.rest
def test_every_kernel_is_selected_by_some_row() -> None:
    kernels = {launch.kernel for family in FAMILIES for launch in list_launches(family)}
    assert set(names()) - kernels <= OF_NO_CASE


def test_workgroup_is_one_dimensional_with_32_to_128_invocations() -> None:
    for name in names():
        (mode,) = read_kernel(name).of(Opcode.ExecutionMode)
        assert 32 <= mode.operands[2] <= 128 and mode.operands[3:] == (1, 1), name
