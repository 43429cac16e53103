"""Compare two kernel sets by the simulated device's counters: what each executes for the same case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from zinc_rt.backends.base import Backend
from zinc_rt.engine.devices import open_backend
from zinc_rt.host.errors import UsageError
from zinc_rt.host.terminal import Column, Table, number_column
from zinc_rt.kernels.cases import Case
from zinc_rt.lower.dispatch_plan import GRIDS_KERNEL
from zinc_rt.validate.kernel_test.bench import CaseBench
from zinc_rt.validate.kernel_test.select import count_elements, matches_globs, plan_cases
from zinc_rt.validate.kernel_test.side import Side
from zinc_rt.validate.kernel_test.speed import count_touched_bytes

TIERS = "t1,t1:radv"  # without --tier
MOST_ELEMENTS = 1 << 18  # of all operands: small edges of tiles say little, and the device is simulated
FIGURES = ("dispatches", "waves", "instructions", "bytes")


@dataclass(frozen=True, slots=True)
class CaseCounts:
    """What a set executed for a case, from sim.shader.run.profile.KernelCounters: dispatches, waves, instructions
    of waves, and bytes that full waves load and store, except in LDS. `problem`: why the results are wrong, else
    empty."""

    kernels: tuple[str, ...]
    dispatches: int
    waves: int
    instructions: int
    bytes: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CountedCase:
    """A case on two sets. `operand_bytes`: every operand and output counted once."""

    case: Case
    operand_bytes: int
    counts: tuple[CaseCounts, CaseCounts]

    def ratio(self, figure: str) -> float:
        """Return a figure of the second set divided by that of the first one; 0 if the first has none."""
        first, second = (getattr(count, figure) for count in self.counts)
        return second / first if first else 0.0

    def as_dict(self, names: Sequence[str]) -> dict[str, Any]:
        return {
            "case": self.case.text(),
            "operand_bytes": self.operand_bytes,
            **{name: asdict(count) for name, count in zip(names, self.counts, strict=True)},
            "ratios": {figure: self.ratio(figure) for figure in FIGURES},
        }


def check_two_sets(sides: Sequence[Side]) -> None:
    """Raise UsageError unless these are two kernel sets on the simulated device, in one ordering."""
    if len(sides) != 2 or len({side.kernels for side in sides}) != 2:
        raise UsageError(
            f"--mode counters compares two kernel sets, not {', '.join(side.name for side in sides)}",
            next=f"--tier {TIERS}",
        )
    if not all(side.simulated for side in sides):
        raise UsageError("--mode counters reads a simulated device's counters", next="add --device sim")


def select_common_cases(cases: Iterable[Case], sides: Sequence[Side], globs: Sequence[str] = ()) -> list[Case]:
    """Return a case for each kernel of the first set that matches `globs`, by opcode: of those that both sets
    support and that dispatch the fewest kernels, the largest one of at most MOST_ELEMENTS."""
    every = [case for case in cases if case.values in ("plain", "mixed")]
    first, second = (plan_cases(every, side.set(), side.ordering) for side in sides)
    common = [mine for mine, other in zip(first, second, strict=True) if mine.kernels and other.kernels]
    chosen: dict[str, Case] = {}
    for kernel in dict.fromkeys(name for plan in common for name in plan.kernels if matches_globs(name, globs)):
        plans = [plan for plan in common if kernel in plan.kernels]
        fewest = min(len(plan.kernels) for plan in plans)
        alone = sorted(
            (plan.case for plan in plans if len(plan.kernels) == fewest),
            key=lambda case: (count_elements(case), case.text()),
        )
        case = next((case for case in reversed(alone) if count_elements(case) <= MOST_ELEMENTS), alone[0])
        chosen[case.text()] = case
    return sorted(chosen.values(), key=lambda case: (case.op.value, case.text()))


def compare_sets(sides: Sequence[Side], cases: Sequence[Case]) -> Iterator[CountedCase]:
    """Run each case on both sets and yield its counts. The results are compared with the oracle as well."""
    with (
        CaseBench(lambda: _open_counting(sides[0])) as first,
        CaseBench(lambda: _open_counting(sides[1])) as second,
    ):
        for case in cases:
            counts = _count_case(first, case), _count_case(second, case)
            yield CountedCase(case, count_touched_bytes(case), counts)


def _open_counting(side: Side) -> Backend:
    choice = side.choice()
    return open_backend(replace(choice, options={**choice.options, "profile": True}), side.ordering)


def _count_case(bench: CaseBench, case: Case) -> CaseCounts:
    before = _read_counters(bench.backend)
    outcome = bench.run(case)
    after = _read_counters(bench.backend)
    kernels = tuple(name for name in outcome.kernels if name != GRIDS_KERNEL)  # which runs once a step
    changes = {
        figure: sum(
            row[figure] - before.get(name, {}).get(figure, 0)
            for name, row in after.items()
            if GRIDS_KERNEL not in name  # a kernel's name on the device ends with an offset
        )
        for figure in FIGURES
    }
    return CaseCounts(kernels, **changes, problem=outcome.said if outcome.failed else "")


def _read_counters(backend: Backend) -> dict[str, dict[str, Any]]:
    instrument: Any = backend.instrument
    return {row["name"]: row for row in instrument.counters()}


# --- text ----------------------------------------------------------------------------------------------------


def format_comparisons(compared: Sequence[CountedCase], names: Sequence[str]) -> Table:
    """Return a row for each case: the figures of both sets, and the ratio of instructions and bytes."""
    columns: list[str | Column] = ["opcode", "kernels", number_column("operands B")]
    for figure in ("waves", "instructions", "bytes"):
        columns += [number_column(f"{figure}, {names[0]}"), number_column(names[1])]
        if figure != "waves":
            columns.append(number_column("ratio"))
    rows = []
    for item in compared:
        first, second = item.counts
        row = [item.case.name, ", ".join(first.kernels), f"{item.operand_bytes:,}"]
        for figure in ("waves", "instructions", "bytes"):
            row += [f"{getattr(first, figure):,}", f"{getattr(second, figure):,}"]
            if figure != "waves":
                row.append(f"{item.ratio(figure):.2f}")
        rows.append(row)
    return Table(columns, rows)


def format_counted(compared: Sequence[CountedCase], names: Sequence[str]) -> str:
    """Return the last line: geometric means of the ratios, or the cases with wrong results."""
    wrong = [item for item in compared if any(count.problem for count in item.counts)]
    if wrong:
        return (
            f"FAIL      {len(wrong)} of {len(compared)} cases have wrong results, the first {wrong[0].case.text()}"
        )
    means = ", ".join(
        f"{figure} {_mean_ratio([item.ratio(figure) for item in compared]):.2f}"
        for figure in ("instructions", "bytes")
    )
    opcodes = len({item.case.op for item in compared})
    return (
        f"COUNTED   {len(compared)} cases of {opcodes} opcodes on a SIMULATED device: counts, not a speed; "
        f"{names[1]} for 1 of {names[0]} (geometric means): {means}"
    )


def _mean_ratio(ratios: Sequence[float]) -> float:
    positive = [math.log(ratio) for ratio in ratios if ratio > 0]
    return math.exp(sum(positive) / len(positive)) if positive else 0.0
