"""Reduce a failing case: remove operands, use plain values, halve sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.op import OPS
from zinc_rt.kernels.cases import Case
from zinc_rt.validate.kernel_test.pool import CaseRun

MOST_TRIED = 400
MOST_SECONDS = 300.0


def shrink_case(failed: CaseRun, run_failing: Callable[[Case], CaseRun | None]) -> tuple[CaseRun, int]:
    """Reduce a failing case by greedy steps. Return the smallest failing case and the number of attempts.
    `run_failing` runs a case and returns None if it passes.
    """
    tried = 0
    seen = {failed.case.text()}
    ends = time.monotonic() + MOST_SECONDS
    going = True
    while going:
        going = False
        for case in shrink_once(failed.case):
            line = case.text()
            if line in seen or case.check_node():
                continue
            if tried >= MOST_TRIED or time.monotonic() > ends:
                return failed, tried
            seen.add(line)
            tried += 1
            if (ran := run_failing(case)) is not None:
                failed, going = ran, True
                break
    return failed, tried


def shrink_once(case: Case) -> Iterator[Case]:
    """Yield cases that are one step smaller, the largest steps first. Some are not valid nodes."""
    yield from _shrink_sizes(case, coarse=True)
    yield from _remove_features(case)
    yield from _shrink_sizes(case, coarse=False)


def _remove_features(case: Case) -> Iterator[Case]:
    spec = OPS[case.op]
    if case.room:
        yield replace(case, room={})
    left = [port.name for port in spec.inputs if port.optional and port.name not in case.without]
    if len(left) > 1:
        yield replace(case, without=(*case.without, *left))
    for name in left:
        yield replace(case, without=(*case.without, name))
    if case.values != "plain":
        yield replace(case, values="plain")
    for symbol in case.room if len(case.room) > 1 else ():
        yield replace(case, room={name: count for name, count in case.room.items() if name != symbol})
    for attr in spec.attrs:
        if attr.default is not None and attr.name in case.attrs and case.attrs[attr.name] != attr.default:
            yield replace(case, attrs={name: value for name, value in case.attrs.items() if name != attr.name})
    if case.vector != "f32":
        yield replace(case, vector="f32")
    if case.seed:
        yield replace(case, seed=0)


def _shrink_sizes(case: Case, *, coarse: bool) -> Iterator[Case]:
    """Yield cases with a smaller size or integer attribute, alone and together with its multiples."""
    named = {**case.dims, **{name: value for name, value in case.attrs.items() if type(value) is int}}
    block = find_block(case.dtype)[0]
    for name, value in sorted(named.items(), key=lambda item: -item[1]):
        for less in _smaller_sizes(value, block, coarse):
            yield _with_sizes(case, {name: less})
            scaled = {
                other: v * less // value for other, v in named.items() if v % value == 0 and v * less >= value
            }
            if len(scaled) > 1:
                yield _with_sizes(case, scaled)


def _smaller_sizes(value: int, block: int, coarse: bool) -> list[int]:
    """Return smaller values to try, the smallest first, including multiples of the block."""
    if coarse:
        candidates = [1, value // 4, value // 2]
    else:
        candidates = [value * (part - 1) // part for part in (4, 8, 16, 32, 64)] + [value - 1]
    if block > 1:
        candidates += [candidate // block * block for candidate in (*candidates, block, value - 1)]
    return sorted({candidate for candidate in candidates if 0 < candidate < value})


def _with_sizes(case: Case, sizes: dict[str, int]) -> Case:
    dims = {name: sizes.get(name, value) for name, value in case.dims.items()}
    attrs = {
        name: sizes.get(name, value) if name not in case.dims else value for name, value in case.attrs.items()
    }
    return replace(case, dims=dims, attrs=attrs)
