"""Timelines: values in memory, what may never be there, and waits that end."""

from __future__ import annotations

import ctypes

import pytest

from zinc_rt.backends.amd.fence import POISON, SLOT_BYTES, FenceCorrupt, Timeline, TimelineFence, wait_until
from zinc_rt.exec import DeadlineMissed
from zinc_rt.host.errors import ZincError


class Slot:
    def __init__(self) -> None:
        self.words = (ctypes.c_uint64 * (SLOT_BYTES // 8))(*[7] * (SLOT_BYTES // 8))
        self.timeline = Timeline("line", ctypes.addressof(self.words), 0x7000, wait=self.wait)

    def wait(self, fence: TimelineFence, timeout_seconds: float) -> None:
        raise DeadlineMissed(f"fence {fence.value}")

    def submit(self) -> TimelineFence:
        self.timeline.submitted += 1
        return TimelineFence(self.timeline, self.timeline.submitted)


def test_slot_starts_at_zero_between_poison_values() -> None:
    slot = Slot()
    assert list(slot.words) == [0, *[POISON] * (SLOT_BYTES // 8 - 1)]
    assert slot.timeline.read_guard() is None
    assert slot.timeline.memory() == 0


def test_fence_completes_at_its_value_or_a_later_one() -> None:
    slot = Slot()
    first, second, third = (slot.submit() for _ in range(3))
    assert not first.done()
    slot.words[0] = 2
    assert first.done() and second.done() and not third.done()
    first.wait(0.0)
    with pytest.raises(DeadlineMissed):
        third.wait(0.0)


def test_values_need_all_64_bits() -> None:
    slot = Slot()
    slot.timeline.submitted = (1 << 40) - 1
    fence = slot.submit()
    slot.words[0] = 1 << 39
    assert not fence.done()
    slot.words[0] = 1 << 40
    assert fence.done()


@pytest.mark.parametrize(
    ("value", "reason"),
    [(3, "2 is the last value submitted"), (POISON, "the poison"), ((1 << 64) - 1, "last value submitted")],
)
def test_unsubmitted_value_fails_every_fence(value: int, reason: str) -> None:
    slot = Slot()
    fences = [slot.submit(), slot.submit()]
    slot.words[0] = value
    for fence in fences:
        assert fence.done() and not fence.reached()
        with pytest.raises(FenceCorrupt, match=reason):
            fence.wait(1.0)


def test_timeline_never_goes_backwards() -> None:
    slot = Slot()
    fences = [slot.submit() for _ in range(3)]
    slot.words[0] = 2
    assert fences[1].done()
    slot.words[0] = 1
    assert fences[2].done()
    with pytest.raises(FenceCorrupt, match="1, after 2: it went backwards"):
        fences[2].wait(1.0)
    fences[1].wait(0.0)  # reached before, and stays so


@pytest.mark.parametrize("index", [1, 7])
def test_overwritten_poison_next_to_the_fence_is_reported(index: int) -> None:
    slot = Slot()
    slot.words[index] = 1
    assert slot.timeline.read_guard() == (
        f"line: poison beside the fence was overwritten: {0x7000 + 8 * index:#x} holds 0x1"
    )


def test_lost_timeline_fails_only_unreached_fences() -> None:
    slot = Slot()
    before, after = slot.submit(), slot.submit()
    slot.words[0] = 1
    assert before.done()
    slot.timeline.lose(ZincError("gone"))
    assert before.reached() and after.done() and not after.reached()
    before.wait(0.0)
    with pytest.raises(ZincError, match="gone"):
        after.wait(0.0)


def test_forgotten_timeline_does_not_access_its_memory() -> None:
    slot = Slot()
    reached, cut_off = slot.submit(), slot.submit()
    slot.words[0] = 1
    slot.timeline.forget()
    ctypes.memset(slot.words, 0xFF, SLOT_BYTES)
    reached.wait(0.0)
    assert cut_off.done()
    with pytest.raises(ZincError, match="closed before fence 2"):
        cut_off.wait(0.0)


def test_wait_polls_once_more_after_the_deadline() -> None:
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), lambda seconds: None, 0.0)


def test_pauses_grow_to_their_limit_and_never_exceed_the_deadline() -> None:
    import time

    pauses: list[float] = []

    def record_pause(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    start = time.monotonic()
    assert not wait_until(lambda: False, record_pause, 0.02)
    assert time.monotonic() - start >= 0.02
    assert pauses[0] == pytest.approx(20e-6) and max(pauses) <= 1e-3
