"""The page table's entries that change in a step."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import ORDERINGS, run_op

from zinc_rt.ir.op import Op


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("entries", [[], [11], [0, 5, 11, 4]], ids=len)
def test_only_the_named_entries_change(ordering: str, entries: list[int]) -> None:
    table = np.arange(100, 112, dtype=np.int32).reshape(3, 4)
    want = [100 + index for index in range(12)]
    for number, entry in enumerate(entries):
        want[entry] = 7 * number
    values = np.arange(len(entries), dtype=np.int32) * 7
    assert run_op(Op.TABLE_STORE, ordering, np.array(entries, np.int32), values, table) is None
    assert table.reshape(-1).tolist() == want


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([0, 12], "entry 12 is outside a table of 12"),
        ([-1], "entry -1 is outside a table of 12"),
        ([3, 4, 3], "stored twice"),
    ],
)
def test_out_of_range_or_duplicate_entries_are_rejected(entries: list[int], message: str) -> None:
    table = np.zeros((3, 4), np.int32)
    with pytest.raises((IndexError, ValueError), match=message):
        run_op(Op.TABLE_STORE, ORDERINGS[0], np.array(entries, np.int32), np.ones(len(entries), np.int32), table)
    assert not table.any()
