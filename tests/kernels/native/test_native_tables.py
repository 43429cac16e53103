"""Tables of rows and of pages, the result ring, drafts on t_cpu_native: the oracle's results, ids checked."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op, make_backend
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import random_floats
from kernels.slot_cases import make_records

from zinc_rt.backends.cpu.one_node import run_node
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.host.errors import InputError
from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import SlotFlag

ONE = ("canonical-1",)


@pytest.mark.parametrize("shape", [(1,), (37,), (2, 3, 5)])
def test_table_rows_are_loaded_and_stored(shape: tuple[int, ...]) -> None:
    table = edge_values(1, 4, *shape)
    check_op(Op.LOAD_REQUEST_STATE, table, int32_indices(3, 0, 3), capacity={"sequences": 5}, orderings=ONE)
    check_op(
        Op.STORE_REQUEST_STATE,
        edge_values(2, 2, *shape),
        int32_indices(3, 1),
        table,
        capacity={"sequences": 5},
        orderings=ONE,
    )


@pytest.mark.parametrize("slot", [-1, 4])
def test_rows_outside_a_table_are_rejected(slot: int) -> None:
    table, value = random_floats(1, 4, 5), random_floats(2, 2, 5)
    assert_rejected("a slot is outside", Op.LOAD_REQUEST_STATE, table, int32_indices(1, slot), outputs=(value,))
    assert_rejected("a slot is outside", Op.STORE_REQUEST_STATE, value, int32_indices(1, slot), table)


def test_page_table_entries_are_stored() -> None:
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    check_op(
        Op.TABLE_STORE,
        int32_indices(11, 0, 5),
        int32_indices(-1, 7, 99),
        table,
        capacity={"entries": 6},
        orderings=ONE,
    )


@pytest.mark.parametrize("entries", [(3, -1), (3, 12), (5, 5), (1, 2, 3, 1)])
def test_bad_entry_leaves_the_page_table_unchanged(entries: tuple[int, ...]) -> None:
    table = np.arange(12, dtype=np.int32).reshape(3, 4)
    placed: list[np.ndarray] = []

    def place_copy(array: np.ndarray) -> np.ndarray:
        placed.append(array.copy())
        return placed[-1]

    with pytest.raises(InputError, match="an entry is outside its table, or named twice"):
        run_node(
            make_backend("canonical-1", 2, TaskSplitting()),
            Op.TABLE_STORE,
            (int32_indices(*entries), int32_indices(*range(100, 100 + len(entries))), table),
            (),
            place=place_copy,
        )
    assert (placed[2] == table).all()


RECORDS = make_records({"epoch": 9}, {"epoch": 8, "flags": SlotFlag.BACKPRESSURE}, {"epoch": 7, "logprobs": 3})


@pytest.mark.parametrize("cursor", [0, 3, 2**31 - 1, -2])
def test_ring_wraps_around(cursor: int) -> None:
    rows = (int32_indices(5, 6, 7, 8), int32_indices(2, 1, 0, 2), int32_indices(11, 12, 13, 14), RECORDS)
    ring = np.zeros((4, 4), np.int32)
    check_op(Op.STREAM_OUT, *rows, ring, int32_indices(cursor), capacity={"rows": 6}, orderings=ONE)


def test_ring_entry_of_an_unknown_slot_is_rejected() -> None:
    rows = (int32_indices(5), int32_indices(3), int32_indices(11), RECORDS)
    assert_rejected("a slot", Op.STREAM_OUT, *rows, np.zeros((3, 4), np.int32), int32_indices(0), outputs=())


def test_draft_verification_matches() -> None:
    random = np.random.default_rng(1)
    for drafted in (1, 3, 8):
        draft = random.integers(0, 3, (40, drafted)).astype(np.int32)
        target = random.integers(0, 3, (40, drafted + 1)).astype(np.int32)
        target[::3, :-1] = draft[::3]
        check_op(Op.VERIFY_K, draft, target, capacity={"sequences": 50}, orderings=ONE)
