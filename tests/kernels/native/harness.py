"""Runs one node on t_cpu_native and holds every output against the oracle, bit for bit.

    check(Op.MATMUL, x, weight(values, "q8_0"), None, None)            # operands in port order, None: absent
    check(Op.RMS_NORM, x, w, eps=1e-6, size=64, capacity={"tokens": 8})

Each check runs in both orderings, on one thread and on two, with claims of several sizes and in another order.
test_native_variants.py runs the tests with other libraries, and with operands between guarded pages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels.native.guarded import copy_between_guards

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.library import Library, build_library, load
from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.backends.cpu.one_node import Operand, Place, run_node
from zinc_rt.backends.cpu.self_test import has_same_bits
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.table import ORDERINGS
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS

LIBRARY = "ZINC_RT_TEST_LIBRARY"  # a file, in place of this machine's library
GUARD = "ZINC_RT_TEST_GUARD"  # "before" or "behind": operands against pages without access

# threads, how ranges are cut
WAYS = (
    (1, TaskSplitting()),
    (2, TaskSplitting(least=1)),
    (2, TaskSplitting(least=3, shuffle=1)),
    (1, TaskSplitting(least=2, shuffle=6)),
)


@cache
def load_code() -> Library:
    """The library for this machine; skip with the reason if nothing compiles. Wrong bits at any level are an
    error, because a wrong kernel must not count as a missing one.
    """
    if named := os.environ.get(LIBRARY):
        return Library(load(Path(named).read_bytes()), "test", "")
    try:
        build.list_levels()
        build.find_compiler()
    except UnsupportedError as error:
        pytest.skip(str(error))
    result = build_library()
    assert all("SIGILL" in note for note in result.notes), "; ".join(result.notes)
    return result


@cache
def make_backend(ordering: str, threads: int, splitting: TaskSplitting) -> NativeBackend:
    return NativeBackend(
        registry.spec("t_cpu_native"), ordering, load_code(), threads=threads, splitting=splitting
    )


def check_op(
    op: Op,
    *operands: Operand,
    capacity: Mapping[str, int] | None = None,
    orderings: tuple[str, ...] = tuple(sorted(ORDERINGS)),
    thread_counts: tuple[tuple[int, TaskSplitting], ...] = WAYS,
    place: Place | None = None,
    **attrs: Any,
) -> None:
    side = os.environ.get(GUARD)
    place = place or (partial(copy_between_guards, side=side) if side else np.copy)
    for ordering in orderings:
        mine = tuple(o.copy() if isinstance(o, np.ndarray) else o for o in operands)
        absent = (None,) * (len(OPS[op].inputs) - len(mine))
        with np.errstate(all="ignore"):
            result = FUNCTIONS[op](arithmetic(ordering), *mine, *absent, **attrs)
        fresh = result if isinstance(result, tuple) else () if result is None else (result,)
        made = iter(fresh)
        argument = dict(zip((port.name for port in OPS[op].inputs), mine, strict=False))
        wanted = [
            (port.name, argument[port.inplace] if port.inplace else value)
            for port in OPS[op].outputs
            if port.inplace or (value := next(made, None)) is not None  # optional ones come last
        ]
        for threads, splitting in thread_counts:
            got = run_node(
                make_backend(ordering, threads, splitting),
                op,
                operands,
                fresh,
                capacity=capacity,
                place=place,
                **attrs,
            )
            for output, (name, want) in zip(got, wanted, strict=False):
                assert_same_bits(output, want, f"{op.name} {name} in {ordering}, {threads} threads, {splitting}")


def assert_same_bits(output: np.ndarray, want: np.ndarray, name: str) -> None:
    """Assert that the valid part has the expected bits (a NaN equals any NaN) and the rest is unchanged."""
    counted = tuple(slice(0, size) for size in want.shape)
    equal = has_same_bits(output[counted], want)
    if not equal.all():
        first = tuple(map(int, np.argwhere(~equal)[0]))
        raise AssertionError(
            f"{name}: {np.count_nonzero(~equal)} of {equal.size} differ, first at {first}: "
            f"got {output[counted][first]!r}, expected {want[first]!r}"
        )
    behind = np.ones(output.shape, bool)
    behind[counted] = False
    assert (output[behind].view(np.uint32) == 0xFFFFFFFF).all() or not behind.any(), (
        f"{name}: wrote past the counts"
    )
