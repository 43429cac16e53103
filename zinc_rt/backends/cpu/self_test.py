"""Run every kernel of a native library once and compare it with the oracle: `python -m
zinc_rt.backends.cpu.self_test LIBRARY`.

It runs in a separate process, because a library may contain instructions that this CPU does not support. The
last line on stdout names the running kernel, so that the parent process can locate a crash. Exit status 3:
wrong bits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.cpu import library
from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.backends.cpu.one_node import run_node
from zinc_rt.backends.cpu.self_test_cases import make_cases
from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.native.table import ORDERINGS
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.lower.one_node import Place


def describe_difference(backend: NativeBackend, case: Case, place: Place = np.copy) -> str:
    """Describe the difference of a case's outputs from the expected ones; empty if there is none. NaN equals NaN.
    `place` places the operands in memory."""
    operands = case.operands()
    mine = [operand.copy() if isinstance(operand, np.ndarray) else operand for operand in operands]
    with np.errstate(all="ignore"):
        result = FUNCTIONS[case.op](arithmetic(backend.ordering), *mine, **case.attrs)
    fresh = result if isinstance(result, tuple) else () if result is None else (result,)
    got = run_node(backend, case.op, operands, fresh, place=place, **case.attrs)
    for output, (name, want) in zip(got, case.outputs(mine, fresh), strict=True):
        wrong = ~has_same_bits(output[tuple(slice(0, size) for size in want.shape)], want)
        if wrong.any():
            return f"{np.count_nonzero(wrong)} of {wrong.size} of {name} differ from the oracle"
    return ""


def has_same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return whether two arrays have the same bits, or NaN in the same places."""
    bits = f"u{a.itemsize}"
    equal = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return equal | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else equal


def find_problems(handle: ctypes.CDLL, place: Place = np.copy) -> Iterator[str]:
    """Return a line for each kernel with wrong bits."""
    spec = registry.spec("t_cpu_native")
    code = library.Library(handle, "self-test", "")
    for ordering in sorted(ORDERINGS):
        backend = NativeBackend(spec, ordering, code, threads=2)
        try:
            for case in make_cases():
                print(f"running {case.name} in {ordering}", flush=True)
                if wrong := describe_difference(backend, case, place):
                    yield f"{case.name} in {ordering}: {wrong}"
        finally:
            backend.close()


def main(path: Path) -> int:
    for problem in find_problems(library.load(path.read_bytes())):
        print(problem, flush=True)
        return library.WRONG_BITS
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
