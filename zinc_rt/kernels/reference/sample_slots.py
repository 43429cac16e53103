"""SAMPLE_SLOTS: SAMPLE with its operands taken from the slots' records."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag, find_column, view_records
from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.sample import sample

SEED, CHOICE, SAMPLING = find_column("seed"), find_column("choice"), find_column("temperature")


def sample_slots(
    math: Arithmetic,
    logits: np.ndarray,
    row_slot: np.ndarray,
    sample_position: np.ndarray,
    record: np.ndarray,
    token_counts: np.ndarray,
) -> np.ndarray:
    """Sample token i32 [L] from logits [L, V], each row by its slot's record, and count it in place in
    token_counts [P, V] if the record has PENALTIES and no BACKPRESSURE.

    A row whose largest logit is NaN or infinite has no candidate: its token is -1 and is not counted.
    """
    of = record[row_slot]
    sampling = np.ascontiguousarray(of[:, SAMPLING : SAMPLING + 4]).view(np.float32)
    token = sample(math, logits, of[:, SEED : SEED + 2], sampling, of[:, CHOICE], sample_position)
    token[~np.isfinite(logits.max(axis=1))] = -1
    counting = view_records(of)["flags"] & (SlotFlag.PENALTIES | SlotFlag.BACKPRESSURE)
    counted = (counting == SlotFlag.PENALTIES) & (token >= 0)
    np.add.at(token_counts, (of[counted, find_column("penalty_row")], token[counted]), 1)
    return token
