"""The output ring's reader: what STREAM_OUT wrote is taken once, in order, by the rows that it belongs to."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from zinc_rt.engine.output_ring import OutputRing, RingError
from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import SlotFlag, free_records, view_dwords
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS

SLOTS = 16


class RingDevice:
    """A ring of `capacity` entries, and records of 16 slots."""

    def __init__(self, capacity: int = 64, cursor: int = 0) -> None:
        self.ring = np.full((capacity, 4), -1, np.int32)
        self.cursor = np.array([cursor], np.uint32).view(np.int32)
        self.records = free_records(SLOTS)
        self.records["epoch"] = np.arange(SLOTS) + 100
        self.records["logprobs"] = np.arange(SLOTS) - 1
        self.reader = OutputRing(SLOTS, vocab=1000)
        self.reader.start(int(self.cursor[0]))

    def write(self, rows: list[tuple[int, int, int]]) -> None:
        """STREAM_OUT of (slot, position, token)."""
        slot, position, token = (np.array([row[i] for row in rows], np.int32) for i in range(3))
        arguments = (token, slot, position, view_dwords(self.records), self.ring, self.cursor)
        FUNCTIONS[Op.STREAM_OUT](arithmetic("canonical-1"), *arguments)

    def take(self, rows: list[tuple[int, int, int]]) -> list[int]:
        slot, position = (np.array([row[i] for row in rows], np.int32) for i in range(2))
        self.reader.bind(np.arange(SLOTS), self.records)
        expected = self.reader.expected(slot, position, self.records["flags"][slot] & SlotFlag.BACKPRESSURE != 0)
        return self.reader.take(self.ring, int(self.cursor[0]), expected).tolist()

    def step(self, rows: list[tuple[int, int, int]]) -> list[int]:
        self.write(rows)
        return self.take(rows)


@pytest.mark.parametrize("start", [0, 60, 2**31 - 5, 2**32 - 7])
def test_tokens_of_many_steps_are_read_by_row(start: int) -> None:
    device, random = RingDevice(cursor=start), Random(start)
    for step in range(50):
        slow = set(random.sample(range(SLOTS), random.randrange(4)))
        device.records["flags"] = [64 * (slot in slow) | slot % 8 for slot in range(SLOTS)]
        rows = [(slot, step * 7 + slot, random.randrange(1000)) for slot in random.sample(range(SLOTS), 11)]
        assert device.step(rows) == [-1 if slot in slow else token for slot, _, token in rows]


def test_step_without_rows_to_deliver_takes_nothing() -> None:
    device = RingDevice()
    assert device.step([]) == []
    device.records["flags"] = SlotFlag.BACKPRESSURE
    assert device.step([(3, 4, 5)]) == [-1] and device.cursor[0] == 0


def test_ring_may_be_filled_by_one_step_but_not_overrun() -> None:
    rows = [(slot, slot, slot) for slot in range(SLOTS)]
    device = RingDevice(capacity=16)
    assert device.step(rows) == list(range(SLOTS))
    device.write([(0, 1, 2)])
    with pytest.raises(RingError, match="overrun: it received 17 entries since the last step, but holds 16"):
        device.step(rows)


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ((5, 70, 9), r"row 0 of slot 5 \(epoch 105\), position 70, .*expected row 0 of slot 4 \(epoch 104\)"),
        ((4, 71, 9), "position 71, .* position 70"),
    ],
)
def test_entry_of_another_row_is_an_error(written: tuple[int, int, int], error: str) -> None:
    device = RingDevice()
    device.write([written])
    with pytest.raises(RingError, match=error):
        device.take([(4, 70, 9)])


@pytest.mark.parametrize(("field", "value"), [("epoch", 103), ("flags", SlotFlag.BIAS), ("logprobs", 9)])
def test_entry_by_a_stale_record_is_an_error(field: str, value: int) -> None:
    device = RingDevice()
    device.write([(4, 70, 9)])
    device.records[field][4] = value
    with pytest.raises(RingError, match="the output ring contains row 0 of slot 4"):
        device.take([(4, 70, 9)])


@pytest.mark.parametrize("token", [-2, 1000, 2**31 - 1, -(2**31)])
def test_token_outside_the_vocabulary_is_an_error(token: int) -> None:
    device = RingDevice()
    assert device.step([(4, 70, 999), (5, 1, -1)]) == [999, -1]
    device.write([(4, 71, 9), (5, 2, token)])
    with pytest.raises(RingError, match=f"token {token} in row 1, which is not in the vocabulary of 1000"):
        device.take([(4, 71, 9), (5, 2, token)])


def test_missing_or_additional_entry_is_an_error() -> None:
    device = RingDevice()
    device.write([(4, 70, 9)])
    with pytest.raises(RingError, match="1 entries, but the step delivers 2 rows"):
        device.take([(4, 70, 9), (5, 1, 1)])
    device.records["flags"][5] = SlotFlag.BACKPRESSURE
    device.write([(4, 70, 9), (6, 1, 1)])
    with pytest.raises(RingError, match="2 entries, but the step delivers 1 rows"):
        device.take([(4, 70, 9), (5, 1, 1)])


def test_entries_of_an_abandoned_step_are_skipped() -> None:
    device = RingDevice()
    device.write([(4, 70, 9)])
    device.reader.stop()
    with pytest.raises(RingError, match="before it is started"):
        device.take([(4, 70, 9)])
    device.reader.start(int(device.cursor[0]))
    assert device.step([(4, 70, 8)]) == [8]
