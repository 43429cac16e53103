"""A kernel against a reference: sizes, unaligned pointers, special values, poisoned padding, the order of
workgroups and of lanes, a second chip. The first failing case is reduced to the smallest size that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from zinc_rt.host.errors import CheckFailed, UsageError, ZincError
from zinc_rt.launching.expect import compare
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.located import format_finding
from zinc_rt.launching.values import is_float, make_random

PADDING_BYTES = 256  # before and after an array in the case "poisoned padding"
POISON = 0xFF  # NaN, or -1
_ALIGNED = 16  # what compilers assume of pointers
_SMALL = 64  # sizes up to this are all tried when a case is reduced


class ComparedGpu(Protocol):
    """The GPU that a comparison launches on, as the fixture `gpu` of the pytest plugin."""

    chip: str
    reverse: bool
    reverse_lanes: bool

    def retarget(self) -> None:
        """Apply `chip`, `reverse` and `reverse_lanes` to the next launches."""

    def take_findings(self) -> Sequence[FindingGroup]:
        """Return the current findings and clear them."""


@dataclass(frozen=True, slots=True)
class AgainstCase:
    """One comparison."""

    size: int
    chip: str
    unaligned: bool = False  # arrays begin one element after a multiple of 16 bytes
    special: bool = False  # some inputs are NaN, infinite, denormal or -0
    padded: bool = False  # arrays lie between bytes 0xff of the same allocation
    reverse: bool = False  # the last workgroups first
    reverse_lanes: bool = False  # the highest lane of each memory instruction first

    def __str__(self) -> str:
        names = {
            "unaligned pointers": self.unaligned,
            "NaN, infinities and denormals": self.special,
            "poisoned padding": self.padded,
            "last workgroups first": self.reverse,
            "highest lanes first": self.reverse_lanes,
        }
        return ", ".join([f"size {self.size} on {self.chip}", *[name for name, on in names.items() if on]])


@dataclass(frozen=True, slots=True)
class ComparedKernel:
    """A reference with the types of its inputs and the limits: an element may differ by `ulps`, or by
    atol + rtol * |expected|."""

    reference: Callable[..., Any]
    inputs: Sequence[Any] | Callable[[np.random.Generator, int], Sequence[np.ndarray]]
    ulps: int
    rtol: float
    atol: float

    def arrays(self, size: int, seed: int) -> list[np.ndarray]:
        """Return the inputs of this size."""
        if callable(self.inputs):
            return [np.ascontiguousarray(item) for item in self.inputs(np.random.default_rng(seed + size), size)]
        return [make_random((size,), np.dtype(item), seed + index) for index, item in enumerate(self.inputs)]

    def expected(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            result = self.reference(*arrays)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        return [np.ascontiguousarray(part) for part in parts]

    def describe_difference(self, name: str, output: np.ndarray, expected: np.ndarray) -> str:
        """Return how an output differs from the expected one, or ""."""
        if is_float(expected.dtype) and (self.rtol or self.atol):
            wide, exact = output.astype(np.float64), expected.astype(np.float64)
            with np.errstate(all="ignore"):
                near = np.abs(wide - exact) <= self.atol + self.rtol * np.abs(exact)
            bad = ~(near | (wide == exact) | (np.isnan(wide) & np.isnan(exact)))
            if not bad.any():
                return ""
            index = tuple(int(axis) for axis in np.argwhere(bad)[0])
            shown = f"{name}{list(index)} is {output[index]}, expected {expected[index]}"
            return f"{int(bad.sum())} of {bad.size} elements differ; {shown}"
        [result] = compare({name: output}, {name: expected}, self.ulps)
        if not result.mismatches:
            return ""
        shown = f"{name}{list(result.first or ())} is {result.got}, expected {result.wanted}"
        return f"{result.mismatches} of {result.count} elements differ; {shown}"


class ReferenceComparison:
    """Runs the cases of one kernel. `run(output, ..., input, ...)` launches it on NumPy arrays."""

    def __init__(self, gpu: ComparedGpu, compared: ComparedKernel, run: Callable[..., None], seed: int) -> None:
        self._gpu, self._compared, self._run, self._seed = gpu, compared, run, seed

    def check(self, sizes: Sequence[int], chips: Sequence[str]) -> None:
        """Run all cases. Raise CheckFailed with the smallest failing case that was tried."""
        if not sizes:
            raise UsageError("against: no sizes")
        for case in make_cases(sizes, chips):
            failure = self._run_case(case)
            if failure:
                small, reason = self._reduce_case(case, failure)
                reduced = f" (reduced from size {case.size})" if small.size < case.size else ""
                raise CheckFailed(f"{small}{reduced}: {reason}")

    def _reduce_case(self, case: AgainstCase, failure: str) -> tuple[AgainstCase, str]:
        """Return the smallest size that fails, and why. Run first without variations, then with those of the
        case.
        """
        plain = AgainstCase(case.size, case.chip)
        candidates = sorted({*range(1, _SMALL + 1), *(case.size >> shift for shift in range(1, 32))} - {0})
        for base in dict.fromkeys((plain, case)):
            for size in candidates:
                if size < case.size:
                    smaller = replace(base, size=size)
                    reason = self._run_case(smaller)
                    if reason:
                        return smaller, reason
        return case, failure

    def _run_case(self, case: AgainstCase) -> str:
        """Run one case. Return why it failed, or ""."""
        inputs = self._compared.arrays(case.size, self._seed)
        if case.special:
            inputs = [with_special_values(item, self._seed) for item in inputs]
        expected = self._compared.expected(inputs)
        memory = [place_array(item, case) for item in (*map(_make_unwritten, expected), *inputs)]
        arrays = [item.array for item in memory]
        count = len(expected)
        before = self._gpu.chip, self._gpu.reverse, self._gpu.reverse_lanes
        self._gpu.chip, self._gpu.reverse, self._gpu.reverse_lanes = case.chip, case.reverse, case.reverse_lanes
        try:
            self._gpu.retarget()
            self._run(*arrays)
        except ZincError as error:
            lines = self._format_findings()
            return lines or str(error)
        finally:
            self._gpu.chip, self._gpu.reverse, self._gpu.reverse_lanes = before
        lines = self._format_findings()
        if lines:
            return lines
        for index, (array, exact) in enumerate(zip(arrays[:count], expected, strict=True)):
            name = "out" if count == 1 else f"output {index}"
            difference = self._compared.describe_difference(name, array, exact)
            if difference:
                return difference
        for index, item in enumerate(memory):
            if (item.read_padding() != POISON).any():
                position = "an output" if index < count else f"input {index - count}"
                return f"the kernel stored outside of {position}, in the padding of its allocation"
        return ""

    def _format_findings(self) -> str:
        lines = [line for finding in self._gpu.take_findings() for line in format_finding(finding, 32)]
        return "\n".join(["", *lines]) if lines else ""


def make_cases(sizes: Sequence[int], chips: Sequence[str]) -> list[AgainstCase]:
    """Return the cases: each size, the variations at the largest and the smallest, and the other chips at the
    largest."""
    first, *others = chips
    plain = [AgainstCase(size, first) for size in dict.fromkeys(sizes)]
    varied = []
    for size in dict.fromkeys((max(sizes), min(sizes))):
        base = AgainstCase(size, first)
        varied += [replace(base, unaligned=True), replace(base, special=True)]
        varied += [replace(base, padded=True), replace(base, reverse=True), replace(base, reverse_lanes=True)]
    return [*plain, *varied, *[AgainstCase(max(sizes), chip) for chip in others]]


def with_special_values(array: np.ndarray, seed: int) -> np.ndarray:
    """Return a copy in which some floats are NaN, infinite, denormal, -0, or the largest."""
    if not is_float(array.dtype):
        return array
    values = array.copy()
    flat = values.reshape(-1)
    tiny = np.float64(2) ** (-140 if array.dtype.itemsize == 4 else -24 if array.dtype.itemsize == 2 else -1060)
    special = np.array([np.nan, np.inf, -np.inf, tiny, -tiny, -0.0]).astype(array.dtype)
    places = np.random.default_rng(seed).permutation(flat.size)[: len(special)]
    flat[places] = special[: len(places)]
    return values


def _make_unwritten(expected: np.ndarray) -> np.ndarray:
    raw = np.full(max(expected.nbytes, 1), POISON, np.uint8)[: expected.nbytes]
    return raw.view(expected.dtype).reshape(expected.shape)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedArray:
    """An array in an allocation. `whole`: the allocation's bytes, in which the array begins at `start`."""

    array: np.ndarray
    whole: np.ndarray
    start: int

    def read_padding(self) -> np.ndarray:
        """Return the bytes of the allocation around the array."""
        return np.concatenate((self.whole[: self.start], self.whole[self.start + self.array.nbytes :]))


def place_array(array: np.ndarray, case: AgainstCase) -> PaddedArray:
    """Return a copy of an array at the position that the case requires."""
    if not (case.unaligned or case.padded):  # an allocation of its own: accesses outside of it are findings
        copy = array.copy()
        return PaddedArray(copy, np.zeros(0, np.uint8), 0)
    lead = array.dtype.itemsize if case.unaligned else 0
    pad = PADDING_BYTES if case.padded else 0
    full = np.full(array.nbytes + lead + 2 * pad + _ALIGNED, POISON, np.uint8)
    start = -full.__array_interface__["data"][0] % _ALIGNED + pad + lead
    view = full[start : start + array.nbytes]
    view[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return PaddedArray(view.view(array.dtype).reshape(array.shape), full, start)
