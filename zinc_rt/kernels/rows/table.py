"""Every row that a kernel set can have, in the order lowering tries them."""

from __future__ import annotations

from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.rows import attention, elementwise, embed, matvec, moe, norm, recurrent, sampling
from zinc_rt.kernels.rows.tuning import Tuning

# A family is one file with `rows(tuning)`. Adding one: its import above, its name here.
FAMILIES = (embed, matvec, norm, elementwise, attention, moe, recurrent, sampling)


def rows_of(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(row for family in FAMILIES for row in family.rows(tuning))
