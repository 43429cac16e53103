"""The reader of the output ring: after the one wait of a step it takes the step's tokens from host-mapped memory.

ring = OutputRing(len(records), vocab)
ring.start(cursor)                                      # before the first step
ring.bind(slots, records)                               # whenever slots get other requests
expected = ring.expected(slots, positions, skipped)     # before a step
tokens = ring.take(entries, cursor, expected)           # after it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import ZincError
from zinc_rt.ir.ring_entry import (
    COLUMNS,
    FORM,
    POSITION,
    SLOT_BITS,
    SLOT_MASK,
    TOKEN,
    make_bound_entries,
    read_last_entries,
    view_entries,
)
from zinc_rt.ir.slot_record import SlotFlag

_COUNT = 1 << 32  # the cursor counts modulo this
_ROWS = np.arange(1 << 16, dtype=np.uint32).view(np.int32) << 16  # of an entry, in its last dword
_ADVICE = "record the run with zinc-rt trace, and find the node with zinc-rt replay --bisect"


class RingError(ZincError):
    """The output ring does not contain the entries of the step."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class ExpectedEntries:
    """The entries that a step writes to the ring. `skipped` bool [rows]: the slot has backpressure, so its token
    is not delivered. `entries` i32 [n, 4]: entries of the other rows, in order; the tokens are unknown.
    """

    entries: np.ndarray
    skipped: np.ndarray

    @property
    def skips(self) -> bool:
        """Return whether a row is skipped."""
        return len(self.entries) < len(self.skipped)


class OutputRing:
    """Takes entries in the order in which they were written. Not thread-safe: one reader."""

    def __init__(self, slots: int, vocab: int) -> None:
        self._vocab = vocab
        self._taken: int | None = None  # the cursor up to which entries were taken
        self._bound = np.zeros((slots, COLUMNS), np.int32)  # what is the same in all entries of a slot's binding

    def bind(self, slots: np.ndarray, records: np.ndarray) -> None:
        """Read the current records of slots. `slots`: indices of `records`, RECORD [slots]."""
        self._bound[slots] = make_bound_entries(slots, records[slots])

    def expected(self, slots: np.ndarray, positions: np.ndarray, skipped: np.ndarray) -> ExpectedEntries:
        """Return the entries of a step's rows: `slots` and `positions`, i32 [rows]; `skipped` bool [rows]."""
        rows = _ROWS[: len(slots)]
        if skipped.any():
            kept = ~skipped
            slots, positions, rows = slots[kept], positions[kept], rows[kept]
        expected = self._bound.take(slots, axis=0)
        expected[:, POSITION] = positions
        expected[:, FORM] |= rows
        return ExpectedEntries(expected, skipped)

    @property
    def started(self) -> bool:
        return self._taken is not None

    def start(self, cursor: int) -> None:
        """Skip all entries before `cursor`, the device's count of entries, including those of an abandoned
        step.
        """
        self._taken = cursor % _COUNT

    def stop(self) -> None:
        """Forget the cursor. The next `start` skips all entries written until then."""
        self._taken = None

    def take(self, ring: np.ndarray, cursor: int, expected: ExpectedEntries) -> np.ndarray:
        """Take a step's entries from `ring`, i32 [capacity, 4], whose capacity is a power of two. Return the token
        of each row, i32 [rows]: -1 if no logit was a candidate, or if the row was skipped.

        `cursor`: the device's count after the step. Raises RingError if entries were overwritten before they were
        taken, if they differ from the expected ones except in their tokens, or if a token is not in the
        vocabulary.
        """
        if self._taken is None:
            raise RingError("cannot take entries from an output ring before it is started")
        first, self._taken = self._taken, cursor % _COUNT
        new, wanted = (self._taken - first) % _COUNT, expected.entries
        if new > len(ring):
            raise RingError(
                f"the output ring was overrun: it received {new} entries since the last step, but holds "
                f"{len(ring)}",
                next="take the entries after every step",
            )
        if new != len(wanted):
            raise RingError(
                f"the output ring has {new} entries, but the step delivers {len(wanted)} rows", next=_ADVICE
            )
        got = read_last_entries(ring, self._taken, new)
        tokens = wanted[:, TOKEN]
        tokens[:] = got[:, TOKEN]
        if got.tobytes() != wanted.tobytes():
            index = int((got != wanted).any(axis=1).argmax())
            raise RingError(
                f"the output ring contains {_describe_entry(got, index)}, expected "
                f"{_describe_entry(wanted, index)}",
                next=_ADVICE,
            )
        if new and (tokens + 1).view(np.uint32).max() > self._vocab:
            index = int((tokens + 1).view(np.uint32).argmax())
            where = f"token {tokens[index]} in row {index}, which is not in the vocabulary of {self._vocab}"
            raise RingError(f"the output ring contains {where}", next=_ADVICE)
        if not expected.skips:
            return tokens
        of_rows = np.full(len(expected.skipped), -1, np.int32)
        of_rows[~expected.skipped] = tokens
        return of_rows


def _describe_entry(ring: np.ndarray, index: int) -> str:
    entry = view_entries(ring)[index]
    slot, epoch = int(entry["binding"]) & SLOT_MASK, int(entry["binding"]) >> SLOT_BITS
    flags = SlotFlag(int(entry["flags"]))
    return (
        f"row {entry['row']} of slot {slot} (epoch {epoch}), position {entry['position']}, "
        f"flags {flags.name or 'none'}, {entry['logprobs']} log-probabilities"
    )
