"""Determine the kernels that a case dispatches on a kernel set, without computing anything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod

import numpy as np

from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.ir.dtypes import count_row_bytes, find_array_layout
from zinc_rt.ir.op import OPS, Port
from zinc_rt.kernels.cases import Case, Operand
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower.dispatch_plan import dispatch_plan
from zinc_rt.lower.lower import choose_entry
from zinc_rt.lower.lowered_graph import Call, LoweredGraph
from zinc_rt.lower.one_node import OneNode, build_one_node
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.validate.cases.table import FAMILIES, family_cases

PLAIN = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case on a kernel set: the kernels it dispatches, or the reason why its node is rejected."""

    case: Case
    kernels: tuple[str, ...]
    refused: str = ""


def plan_cases(cases: Iterable[Case], kernels: KernelSet, ordering: str) -> list[PlannedCase]:
    """Plan each case. Cases that differ only in their values dispatch the same kernels."""
    known: dict[str, PlannedCase] = {}
    selected = []
    for case in cases:
        key = replace(case, values="plain", seed=0).text()
        if key not in known:
            known[key] = plan_case(case, kernels, ordering)
        selected.append(replace(known[key], case=case))
    return selected


def find_new_cases(cases: Iterable[PlannedCase], known: Iterable[PlannedCase]) -> list[PlannedCase]:
    """Return the plans that dispatch other kernels than the same case does in `known`."""
    met = {(plan.case.text(), plan.kernels) for plan in known}
    return [plan for plan in cases if (plan.case.text(), plan.kernels) not in met] if met else list(cases)


def plan_case(case: Case, kernels: KernelSet, ordering: str) -> PlannedCase:
    """Plan one case. A rejection is a result, so UnsupportedError is never raised."""
    node = build_skeleton(case)
    entry = choose_entry(node.node, node.graph, kernels.entries, ordering)
    if isinstance(entry, str):
        return PlannedCase(case, (), entry)
    program = LoweredGraph(
        node.graph,
        node.make_shared_plan(BufferHeap.DEVICE_LOCAL, 256),
        ordering,
        (Call(node.node, entry),),
        merging=kernels.merging,
    )
    try:
        return PlannedCase(case, find_dispatched_kernels(program, kernels))
    except UnsupportedError as error:
        return PlannedCase(case, (), str(error))


def find_dispatched_kernels(program: LoweredGraph, kernels: KernelSet) -> tuple[str, ...]:
    """Return the set's own kernels that a program dispatches, each once, in order; for the oracle, its opcodes."""
    known = kernels.names()
    if kernels.target == "numpy-reference":
        return tuple(dict.fromkeys(call.node.op.name.lower() for call in program.calls))
    names = dict.fromkeys(step.launch.kernel for step in dispatch_plan(program).dispatches)
    return tuple(name for name in names if name in known)


def build_skeleton(case: Case) -> OneNode:
    """Build the case's node over uninitialised memory."""
    spec = OPS[case.op]
    operands = [None if port.name in case.without else _make_empty_operand(case, port) for port in spec.inputs]
    fresh = [_make_array(case, port) for port in case.fresh_ports()]
    return build_one_node(case.op, operands, fresh, capacity=case.room, **case.attrs)


def _make_empty_operand(case: Case, port: Port) -> Operand:
    if port.kind != "weight":
        return _make_array(case, port)
    shape, dtype = case.shape(port), case.find_dtype(port)
    if dtype in PLAIN:
        return Weight(dtype, shape, np.empty(shape, PLAIN[dtype]))
    return Weight(dtype, shape, np.empty((*shape[:-1], count_row_bytes(dtype, shape[-1])), np.uint8))


def _make_array(case: Case, port: Port) -> np.ndarray:
    rows, *columns = case.shape(port)
    if port.kind == "cache":
        kind, inner = find_array_layout(case.find_cache_dtype(port), tuple(columns))
        return np.empty((rows, *inner), kind)
    array = np.empty((rows, *columns), np.int32 if port.kind == "index" else np.float32)
    if port.name == "sequence":
        array = np.sort(np.arange(array.size, dtype=np.int32) % case.dims["S"])
    return array


def select_plans(plans: Iterable[PlannedCase], globs: Sequence[str]) -> list[PlannedCase]:
    """Return the plans that dispatch a kernel matching one of these patterns. With patterns, rejected cases are
    excluded.
    """
    if not globs:
        return list(plans)
    return [plan for plan in plans if any(matches_globs(name, globs) for name in plan.kernels)]


def matches_globs(kernel: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(kernel, glob) for glob in globs)


def check_globs(globs: Sequence[str], sets: Iterable[KernelSet]) -> None:
    """Check the patterns of --kernel. Raise UsageError for a pattern that matches no kernel of these sets."""
    known = sorted({name for kernels in sets for name in kernels.names()})
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            near = difflib.get_close_matches(glob, known, 4)
            raise UsageError(
                f"--kernel {glob}: no kernel matches this name",
                next=f"did you mean {', '.join(near)}?"
                if near
                else f"there are {', '.join(known[:8])} and others",
            )


def list_cases(families: Sequence[str]) -> list[Case]:
    """Return every case of these families. Raise UsageError for an unknown family."""
    for name in families:
        if name not in FAMILIES:
            raise UsageError(f"--family {name}: no such family", next=f"one of {', '.join(FAMILIES)}")
    return [case for name in families or FAMILIES for case in family_cases(name)]


def thin_plans(plans: Sequence[PlannedCase], maximum: int) -> list[PlannedCase]:
    """Return a sample of at most `maximum` cases per kernel group, evenly spread; keep rejected cases."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, plan in enumerate(plans):
        groups.setdefault(plan.kernels, []).append(number)
    kept = set()
    for kernels, numbers in groups.items():
        count = len(numbers) if not kernels else min(maximum, len(numbers))
        kept |= {numbers[(2 * i + 1) * len(numbers) // (2 * count)] for i in range(count)}
    return [plans[number] for number in sorted(kept)]


def count_elements(case: Case) -> int:
    """Return the number of elements of all operands."""
    return sum(prod(case.shape(port)) for port in OPS[case.op].inputs if port.name not in case.without)


def pick_one_plan_per_kernel(plans: Sequence[PlannedCase]) -> list[PlannedCase]:
    """Return a case of middling size for each kernel; one case may serve several kernels."""
    by_kernel: dict[str, list[int]] = {}
    sizes = [count_elements(plan.case) for plan in plans]
    for number in sorted(range(len(plans)), key=sizes.__getitem__):
        for kernel in plans[number].kernels:
            by_kernel.setdefault(kernel, []).append(number)
    kept: set[int] = set()
    for numbers in sorted(by_kernel.values(), key=len):
        if kept.isdisjoint(numbers):
            kept.add(numbers[len(numbers) // 2])
    return [plans[number] for number in sorted(kept)]
