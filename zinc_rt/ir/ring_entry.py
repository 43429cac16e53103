"""The entry of the output ring: a token on its way to the host, 16 bytes, little-endian, declared once."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.slot_record import SlotFlag

BYTES = 16
COLUMNS = BYTES // 4  # dwords of an entry
UNDELIVERED = np.uint32(SlotFlag.BACKPRESSURE)  # a flag that no entry has
SLOT_BITS = 10  # of `binding`; the epoch is above them
SLOT_MASK = (1 << SLOT_BITS) - 1
POSITION, TOKEN, FORM = 1, 2, 3  # dwords of an entry; FORM has flags, logprobs and row

ENTRY = np.dtype(
    [
        ("binding", "<u4"),  # epoch of the slot's binding << 10 ORed with the slot
        ("position", "<i4"),  # absolute, of the token
        ("token", "<i4"),  # -1: no logit of the row was a candidate
        ("flags", "u1"),  # SlotFlag of the record by which the token was delivered
        ("logprobs", "u1"),  # log-probabilities of the row: 0 none, else the token's and this many less one
        ("row", "<u2"),  # of the step, and of its outputs with log-probabilities
    ]
)


def view_entries(ring: np.ndarray) -> np.ndarray:
    """Return i32 [capacity, 4], contiguous, as ENTRY [capacity]: a view of the same bytes."""
    return ring.view(ENTRY).reshape(-1)


def read_last_entries(ring: np.ndarray, cursor: int, count: int) -> np.ndarray:
    """Return the last `count` entries of a ring, i32 [count, 4], valid until the next step. `cursor`: the number
    of entries ever written, modulo 2^32. The ring's capacity is a power of two."""
    end = cursor % len(ring)
    if count <= end:
        return ring[end - count : end]
    return ring.take(np.arange(end - count, end), axis=0, mode="wrap")


def make_bound_entries(slots: np.ndarray, records: np.ndarray) -> np.ndarray:
    """Return entries of slots with these records, RECORD [n], as i32 [n, 4]: position, token and row are 0."""
    result = np.zeros((len(slots), COLUMNS), np.int32)
    entry = view_entries(result)
    entry["binding"] = records["epoch"] << np.uint32(SLOT_BITS) | slots.astype(np.uint32)
    entry["flags"], entry["logprobs"] = records["flags"] & ~UNDELIVERED, records["logprobs"] + 1
    return result
