"""The entry of the output ring: a sampled token on its way to the host, 16 bytes, little-endian, declared once."""

from __future__ import annotations

import numpy as np

BYTES = 16
COLUMNS = BYTES // 4  # dwords of an entry
SLOT_BITS = 10  # of `binding`; the epoch is above them
SLOT_MASK = (1 << SLOT_BITS) - 1

ENTRY = np.dtype(
    [
        ("binding", "<u4"),  # epoch of the slot's binding << 10 ORed with the slot
        ("position", "<i4"),  # absolute, of the token
        ("token", "<i4"),  # -1: no logit of the row was a candidate
        ("flags", "u1"),  # SlotFlag of the record by which the token was sampled
        ("logprobs", "u1"),  # log-probabilities of the row: 0 none, else the token's and this many less one
        ("row", "<u2"),  # of the step, and of its outputs with log-probabilities
    ]
)


def entries(ring: np.ndarray) -> np.ndarray:
    """Return i32 [capacity, 4], contiguous, as ENTRY [capacity]: a view of the same bytes."""
    return ring.view(ENTRY).reshape(-1)


def bindings(epochs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return the `binding` of slots with these epochs, u32."""
    return epochs.astype(np.uint32) << np.uint32(SLOT_BITS) | slots.astype(np.uint32)
