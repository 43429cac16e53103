"""The reader of the output ring: after the one wait of a step it takes the step's tokens from host-mapped memory.

ring = OutputRing()
ring.start(cursor)      # before the first step
taken = ring.take(entries, cursor, slots, positions, records)   # after each
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import ZincError
from zinc_rt.ir.ring_entry import ENTRY, SLOT_BITS, SLOT_MASK, bindings, entries
from zinc_rt.ir.slot_record import SlotFlag

_COUNT = 1 << 32  # the cursor counts modulo this


class RingError(ZincError):
    """The output ring does not contain the entries of the step."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Taken:
    """A step's tokens, by row. `tokens` i32 [rows]: -1 if no logit was a candidate, or if the row was skipped.
    `logprobs` u8 [rows]: log-probabilities in this row of the step's outputs, 0 none, n + 1 the token's and n
    alternatives. `skipped` bool [rows]: the slot has backpressure, and the token was not delivered."""

    tokens: np.ndarray
    logprobs: np.ndarray
    skipped: np.ndarray


class OutputRing:
    """Takes entries in the order in which they were written. Not thread-safe: one reader."""

    def __init__(self) -> None:
        self._taken: int | None = None  # the cursor up to which entries were taken

    @property
    def started(self) -> bool:
        return self._taken is not None

    def start(self, cursor: int) -> None:
        """Skip all entries before `cursor`, the device's count of entries: also those of an abandoned step."""
        self._taken = cursor % _COUNT

    def stop(self) -> None:
        """Forget the cursor. The next `start` skips what has been written until then."""
        self._taken = None

    def take(
        self, ring: np.ndarray, cursor: int, slots: np.ndarray, positions: np.ndarray, records: np.ndarray
    ) -> Taken:
        """Take a step's entries from `ring`, i32 [capacity, 4], whose capacity is a power of two.

        `cursor`: the device's count after the step. `slots` and `positions`, i32 [rows]: the step's rows.
        `records`: RECORD [slots] of the step. Raises RingError if entries were overwritten before they were
        taken, if their number is not that of the rows without backpressure, or if one has another slot, epoch,
        position or flags.
        """
        if self._taken is None:
            raise RingError("entries were taken from an output ring before it was started")
        first, self._taken = self._taken, cursor % _COUNT
        new = (self._taken - first) % _COUNT
        if new > len(ring):
            raise RingError(
                f"the output ring was overrun: {new} entries since the last step, and it holds {len(ring)}",
                next="take the entries after every step",
            )
        flags = records["flags"][slots]
        skipped = flags & SlotFlag.BACKPRESSURE != 0
        rows = np.flatnonzero(~skipped)
        if new != len(rows):
            raise RingError(f"the output ring has {new} entries of a step with {len(rows)} rows to deliver")
        got = entries(ring)[(first + np.arange(new)) % len(ring)]
        wanted = np.empty(new, ENTRY)
        wanted["binding"] = bindings(records["epoch"][slots], slots)[rows]
        wanted["position"], wanted["row"] = positions[rows], rows
        wanted["flags"] = (flags & 0xFF)[rows]
        for name in ("binding", "position", "flags", "row"):
            wrong = np.flatnonzero(got[name] != wanted[name])
            if len(wrong):
                at = int(wrong[0])
                raise RingError(f"the output ring has {_words(got[at])}, expected {_words(wanted[at])}")
        tokens, logprobs = np.full(len(slots), -1, np.int32), np.zeros(len(slots), np.uint8)
        tokens[rows], logprobs[rows] = got["token"], got["logprobs"]
        return Taken(tokens, logprobs, skipped)


def _words(entry: np.void) -> str:
    slot, epoch = int(entry["binding"]) & SLOT_MASK, int(entry["binding"]) >> SLOT_BITS
    flags = SlotFlag(int(entry["flags"]))
    return (
        f"row {entry['row']} of slot {slot} (epoch {epoch}), position {entry['position']}, "
        f"flags {flags.name or 'none'}"
    )
