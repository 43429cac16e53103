"""The families of rows, and the entries that they give a kernel set."""

from __future__ import annotations

from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.rows import (
    attention,
    elementwise,
    embed,
    matmul_wmma,
    matvec,
    mla,
    moe,
    norm,
    recurrent,
    sampling,
    slots,
    ssm_scan,
)
from zinc_rt.kernels.rows.dequantise import accept_any_vectors
from zinc_rt.kernels.rows.operands import F32
from zinc_rt.kernels.rows.tuning import Tuning

# A family is a file with `rows(tuning)`; lowering tries them in this order.
_FAMILIES = (
    embed, matvec, matmul_wmma, norm, elementwise, attention, mla, moe, recurrent, sampling, slots, ssm_scan,
)  # fmt: skip


def list_entries(tuning: Tuning) -> tuple[Entry, ...]:
    """Return the entries of every family, in the order in which lowering tries them."""
    rows = (row for family in _FAMILIES for row in family.rows(tuning))
    return tuple(accept_any_vectors(tuning, row) if row.weight_dtypes == F32 else row for row in rows)
