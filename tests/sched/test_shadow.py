"""The shadow device: a right step passes, and each wrong one is named with what the kernel would have read."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zinc_rt.ir.slot_record import SlotFlag, free_records, seal
from zinc_rt.sched.checks.shadow import ShadowDevice, drawn_token
from zinc_rt.sched.kv.kv_cache import PageCopy, PageGroup

PAGE, SLOTS, CTX = 4, 3, 32


def plan(*sequences: tuple[int, int, list[int], bool], **more: Any) -> Any:
    """For each sequence: slot, first position, tokens, and whether a token is sampled after them."""
    token_id, position, slot, sequence, logit_row = [], [], [], [], []
    for ordinal, (index, first, tokens, draws) in enumerate(sequences):
        token_id += tokens
        position += range(first, first + len(tokens))
        slot += [index] * len(tokens)
        sequence += [ordinal] * len(tokens)
        if draws:
            logit_row.append(len(token_id) - 1)
    count = len(sequences)
    arrays = {
        "token_id": token_id, "position": position, "slot": slot, "sequence": sequence, "logit_row": logit_row,
        "row_slot": [slot[row] for row in logit_row], "row_position": [position[row] + 1 for row in logit_row],
        "state_source": more.pop("source", [-1] * count), "state_target": more.pop("target", [-1] * count),
    }  # fmt: skip
    argument = {name: np.array(values, np.int32) for name, values in arrays.items()}
    rest = {"table_changes": [{}, {}], "bound": [], "copies": [], "counts_of": {}, **more}
    return SimpleNamespace(tokens=len(token_id), sequences=count, rows=len(logit_row), **argument, **rest)


class Lab:
    """A shadow device with a full group, a window of 6 and state rows; requests 1 and 2 are in slots 0 and 1."""

    def __init__(self) -> None:
        self.records = free_records(SLOTS)
        groups = (PageGroup("full", 12), PageGroup("window", 12, window=6))
        self.device = ShadowDevice(SLOTS, CTX, PAGE, groups, 8, self.records)
        self.bind(0, 1, epoch=1)
        self.bind(1, 2, epoch=1)
        for number in (1, 2):
            self.device.arrive(number, [number * 10 + index for index in range(6)], start=number)

    def bind(self, slot: int, request: int, *, epoch: int, **fields: Any) -> None:
        row = self.records[slot]
        row["request"], row["epoch"], row["seed"], row["state"] = request, epoch, request, 2
        for name, value in fields.items():
            row[name] = value
        seal(self.records)

    def first(self, **more: Any) -> Any:
        """Run both prompts completely, on pages 0, 1 and 2, 3 of both groups."""
        pages = {0: 0, 1: 1, CTX // PAGE: 2, CTX // PAGE + 1: 3}
        argument = {
            "table_changes": [dict(pages), dict(pages)],
            "bound": [0, 1],
            "source": [0, 0],
            "target": [1, 2],
            **more,
        }
        return plan((0, 0, [10, 11, 12, 13, 14, 15], True), (1, 0, [20, 21, 22, 23, 24, 25], True), **argument)

    def run(self, step: Any) -> list[str]:
        """Return the shadow device's errors for a step, and sample its tokens."""
        self.device.findings.clear()
        self.device.collect(self.device.submit(step))
        return [finding.partition(": ")[2] for finding in self.device.findings]

    def second(self, **more: Any) -> Any:
        argument = {"source": [1, 2], "target": [1, 2], **more}
        return plan((0, 6, [drawn_token(1, 0, 6)], True), (1, 6, [drawn_token(2, 0, 6)], True), **argument)


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    assert lab.run(lab.first()) == []
    yield lab


def test_correct_steps_pass(lab: Lab) -> None:
    assert lab.run(lab.second()) == []
    assert lab.device.answer(1)[6:] == [drawn_token(1, 0, 6), drawn_token(1, 0, 7)]


def only(found: list[str], says: str) -> None:
    assert any(says in item for item in found), found


def test_stale_table_row_reading_foreign_page_is_reported(lab: Lab) -> None:
    step = lab.second(table_changes=[{0: 2}, {}])
    only(
        lab.run(step),
        "slot 0, request 1, group full: reads position 0 in page 2, which holds position 0 of request 2",
    )


def test_page_freed_too_early_is_reported(lab: Lab) -> None:
    step = lab.second(table_changes=[{}, {0: -1}])
    only(lab.run(step), "slot 0, request 1, group window: reads position 1, for which its table has no page")


def test_page_outside_the_window_can_be_freed(lab: Lab) -> None:
    device = lab.device
    assert lab.run(lab.second(table_changes=[{2: 4, 10: 5}, {2: 4, 10: 5}])) == []
    for position in (7, 8, 9):
        tokens = [device.answer(number)[position] for number in (1, 2)]
        changes = {0: -1} if position == 9 else {}
        step = plan(
            (0, position, tokens[:1], True),
            (1, position, tokens[1:], True),
            source=[1, 2],
            target=[1, 2],
            table_changes=[{}, changes],
        )
        assert lab.run(step) == []


def test_wrong_state_row_is_reported(lab: Lab) -> None:
    only(lab.run(lab.second(source=[2, 2])), "slot 0, request 1: starts at position 6 from state row 2")
    only(lab.run(lab.second(source=[0, 2])), "starts at position 6 from state row 0, which holds the zero state")


def test_racing_rows_are_reported(lab: Lab) -> None:
    only(lab.run(lab.second(target=[1, 1])), "state row 1 is written by 2 sequences of the step")
    only(lab.run(lab.second(target=[2, 3])), "state row 2 is written while sequence 1 of the step reads it")
    only(lab.run(lab.second(target=[0, 2])), "state row 0, the zero state of fresh sequences, would be written")


def test_reused_epoch_is_reported(lab: Lab) -> None:
    lab.bind(0, 3, epoch=1)
    lab.device.arrive(3, [1])
    result = lab.run(plan((0, 0, [1], True), bound=[0], source=[0], target=[1]))
    only(result, "slot 0, request 3: bound with epoch 1, which request 1 had in this slot")


def test_unbound_slot_is_reported(lab: Lab) -> None:
    lab.bind(0, 3, epoch=2)
    lab.device.arrive(3, [1])
    only(lab.run(plan((0, 0, [1], True), source=[0], target=[1])), "runs with the record of request 1")


def test_sample_at_wrong_position_or_slot_is_reported(lab: Lab) -> None:
    step = lab.second()
    step.row_position[0] += 1
    only(lab.run(step), "slot 0: samples position 8 after position 6")
    step = lab.second()
    step.row_slot[0] = 1
    only(lab.run(step), "logits of slot 0 are sampled by slot 1")


def test_lost_or_duplicated_token_is_reported(lab: Lab) -> None:
    assert lab.run(lab.second(table_changes=[{}, {}])) == []
    second = lab.second()
    only(lab.run(second), "samples token 7, expected 8")
    wrong = plan((0, 7, [999], True), source=[1], target=[1])
    only(lab.run(wrong), "token 999 at position 7, expected")
    late = plan((0, 9, [1], True), source=[1], target=[1])
    only(lab.run(late), "computes position 9, but has 9 tokens")


def test_out_of_order_sequences_are_reported(lab: Lab) -> None:
    step = lab.second()
    step.sequence[:] = [1, 0]
    only(lab.run(step), "the sequences of the step are not in order: [1, 0]")


def test_dropped_copy_is_reported(lab: Lab) -> None:
    """Request 2 goes on in a page of its own behind a fork."""
    fork = {CTX // PAGE + 1: 5}
    copies = [PageCopy(group, 3, 5, 2) for group in (0, 1)]
    step = lab.second(table_changes=[dict(fork), dict(fork)])
    only(lab.run(step), "slot 1, request 2, group full: reads position 4 in page 5, which holds nothing")
    second = Lab()
    assert second.run(second.first()) == []
    assert second.run(second.second(table_changes=[dict(fork), dict(fork)], copies=copies)) == []


def test_wrong_penalty_rows_are_reported() -> None:
    lab = Lab()
    for slot, request in ((0, 1), (1, 2)):
        lab.bind(slot, request, epoch=1, flags=SlotFlag.PENALTIES, penalty_row=slot)
    prompts = {slot: np.array([(slot + 1) * 10 + index for index in range(6)]) for slot in (0, 1)}
    assert lab.run(lab.first(counts_of=prompts)) == []
    lab.bind(1, 2, epoch=1, penalty_row=0)
    only(lab.run(lab.second(bound=[1], counts_of={1: prompts[1]})), "penalty row 0 counts other tokens")
    lab = Lab()
    lab.bind(0, 1, epoch=1, flags=SlotFlag.PENALTIES, penalty_row=0)
    only(lab.run(lab.first()), "slot 0, request 1: bound without counts for its penalty row 0")


def test_data_lost_with_the_device_is_not_read(lab: Lab) -> None:
    lab.device.reopen()
    step = lab.second(bound=[0, 1])
    only(lab.run(step), "reads position 0, for which its table has no page")
