"""The opcodes that a kernel set supports for each type of weights, and the reasons for missing support, from its
tables without running anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zinc_rt.host.terminal import Column, Page, Table
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.validate.cases.sweep import TYPES
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test.select import plan_case

TYPES_WIDEST = 60
LEFT_OUT = (Op.BARRIER,)  # no set has a kernel for it: lowering itself keeps it


@dataclass(frozen=True, slots=True)
class Support:
    """Support of an opcode with a type on a set. `kernels` are the dispatched kernels; `refused` is the reason if
    it is not supported. `taken` is the number of `cases` in validate/cases that run.
    """

    op: Op
    dtype: str
    kernels: tuple[str, ...]
    refused: str = ""
    taken: int = 0
    cases: int = 0


def list_support(kernels: KernelSet, ordering: str) -> list[Support]:
    """Return every opcode; those that read weight matrices with every type, the others once, as f32."""
    examples: dict[tuple[Op, str], list[Case]] = {}
    for family in FAMILIES:
        for case in family_cases(family):
            setdefault = examples.setdefault((case.op, case.dtype), [])
            if not setdefault or case.values == setdefault[0].values:
                setdefault.append(case)
    supported = []
    for op in Op:
        if op in LEFT_OUT:
            continue
        for dtype in TYPES if has_weight_matrices(op) else ("f32",):
            setdefault = examples.get((op, dtype)) or [
                replace(case, dtype=dtype) for case in examples.get((op, "f32")) or _select_cases(examples, op)
            ]
            supported.append(
                _test_support(op, dtype, [case for case in setdefault if not case.check_node()], kernels, ordering)
            )
    return supported


def _select_cases(examples: Mapping[tuple[Op, str], list[Case]], op: Op) -> list[Case]:
    """Return the examples of the first type that has any for the opcode."""
    return next((cases for (other, _), cases in examples.items() if other is op), [])


def is_weight_matrix(port: Port) -> bool:
    """Return whether an operand is a matrix of weights, of any type; tables of cosines and sines are not."""
    return port.kind == "weight" and len(port.shape) > 1 and port.name not in ("cos", "sin")


def has_weight_matrices(op: Op) -> bool:
    return any(map(is_weight_matrix, OPS[op].inputs)) and op not in (
        Op.SSM_CONV1D,
        Op.SSM_CONV1D_UPDATE,
        Op.SSM_CONV1D_UPDATE_IDS,
        Op.SSM_SCAN,
    )


def _test_support(op: Op, dtype: str, cases: Sequence[Case], kernels: KernelSet, ordering: str) -> Support:
    if not any(entry.op is op for entry in kernels.entries):
        return Support(op, dtype, (), "no kernel for this opcode")
    if not cases:
        return Support(op, dtype, (), "no case in validate/cases")
    plans = [plan_case(case, kernels, ordering) for case in cases]
    taken = [plan for plan in plans if plan.kernels]
    if not taken:
        return Support(op, dtype, (), plans[0].refused, 0, len(plans))
    names = tuple(dict.fromkeys(name for item in taken for name in item.kernels))
    return Support(op, dtype, names, "", len(taken), len(plans))


def format_matrix(by_side: Mapping[str, Sequence[Support]]) -> Page:
    """Return a table per kernel set: each opcode with its supported and unsupported types, then each reason
    once.
    """
    parts = [part for name, rows in by_side.items() for part in ("", *_format_support(name, rows))]
    return Page(parts[1:])


def _format_support(name: str, rows: Sequence[Support]) -> list[str | Table]:
    reasons: dict[str, int] = {}
    lines = []
    for op in dict.fromkeys(row.op for row in rows):
        by_answer: dict[str, list[str]] = {}
        for item in (row for row in rows if row.op is op):
            by_answer.setdefault(_format_cell(item, reasons), []).append(item.dtype)
        for answer, types in by_answer.items():
            summary = _format_types(types, whole=len(by_answer) == 1)
            lines.append([op.name, answer, summary])
    reason_lines = [f"  {number}  {reason}" for reason, number in reasons.items()]
    return [Table([name, "runs", Column("types of weights", widest=TYPES_WIDEST)], lines), *reason_lines]


def _format_types(types: Sequence[str], *, whole: bool) -> str:
    if whole:
        return f"all {len(types)}" if len(types) > 1 else ""
    return " ".join(types)


def _format_cell(support: Support, reasons: dict[str, int]) -> str:
    if support.refused:
        return str(reasons.setdefault(_strip_type(support), len(reasons) + 1))
    return "yes" if support.taken == support.cases else "part"


def _strip_type(support: Support) -> str:
    """Return the reason without the name of the type, so that cells can share a reason."""
    return support.refused.replace(f" {support.dtype}", " of this type")
