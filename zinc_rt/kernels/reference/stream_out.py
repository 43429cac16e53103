"""STREAM_OUT: append sampled tokens to the output ring."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.ring_entry import SLOT_BITS, view_entries
from zinc_rt.ir.slot_record import SlotFlag, view_records
from zinc_rt.kernels.reference.arithmetic import Arithmetic


def stream_out(
    math: Arithmetic,
    token: np.ndarray,
    row_slot: np.ndarray,
    sample_position: np.ndarray,
    record: np.ndarray,
    ring: np.ndarray,
    cursor: np.ndarray,
) -> None:
    """Append an entry for each row to ring i32 [capacity, 4], in place, except for rows whose slot has
    BACKPRESSURE. cursor i32 [1] counts all entries ever appended, modulo 2^32; beyond 2^32, entries are in
    order only in a ring whose capacity is a power of two.
    """
    slots, placed, count = view_records(record), view_entries(ring), cursor.view(np.uint32)
    for row, slot in enumerate(row_slot.tolist()):
        of = slots[slot]
        if of["flags"] & SlotFlag.BACKPRESSURE:
            continue
        binding = int(of["epoch"]) << SLOT_BITS & 0xFFFFFFFF | slot
        flags, logprobs = int(of["flags"]) & 0xFF, int(of["logprobs"]) + 1 & 0xFF
        placed[int(count[0]) % len(ring)] = (
            binding, sample_position[row], token[row], flags, logprobs, row & 0xFFFF,
        )  # fmt: skip
        count[0] = (int(count[0]) + 1) & 0xFFFFFFFF
