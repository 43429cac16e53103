"""The shadow device: a right step passes, and each wrong one is named with what the kernel would have read."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zinc_rt.ir.slot_record import SlotFlag, free_records, seal_records
from zinc_rt.sched.checks.shadow import ShadowDevice, draw_token
from zinc_rt.sched.kv.kv_cache import PageCopy, PageGroup

PAGE, SLOTS, CTX = 4, 3, 32


def make_plan(*sequences: tuple[int, int, list[int], bool], **more: Any) -> Any:
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
    rest = {"table_changes": [{}, {}], "bound": [], "copies": [], "counts_of": {}, "decode_rows": 0, **more}
    rest.setdefault("decode_tokens", rest["decode_rows"])
    plan = SimpleNamespace(
        tokens=len(token_id), sequences=count, rows=len(logit_row), launches=[], **argument, **rest
    )
    plan.list_launches = lambda: [SimpleNamespace(plan=plan)]
    return plan


class ShadowLab:
    """A shadow device with a full group, a window of 6 and state rows; requests 1 and 2 are in slots 0 and 1."""

    def __init__(self) -> None:
        self.records = free_records(SLOTS)
        groups = (PageGroup("full", 12), PageGroup("window", 12, window=6))
        self.device = ShadowDevice(SLOTS, CTX, PAGE, groups, 8, self.records)
        self.bind_slot(0, 1, epoch=1)
        self.bind_slot(1, 2, epoch=1)
        for number in (1, 2):
            self.device.register_request(number, [number * 10 + index for index in range(6)], start=number)

    def bind_slot(self, slot: int, request: int, *, epoch: int, **fields: Any) -> None:
        row = self.records[slot]
        row["request"], row["epoch"], row["seed"], row["state"] = request, epoch, request, 2
        for name, value in fields.items():
            row[name] = value
        seal_records(self.records)

    def first_step(self, **more: Any) -> Any:
        """Run both prompts completely, on pages 0, 1 and 2, 3 of both groups."""
        pages = {0: 0, 1: 1, CTX // PAGE: 2, CTX // PAGE + 1: 3}
        argument = {
            "table_changes": [dict(pages), dict(pages)],
            "bound": [0, 1],
            "source": [0, 0],
            "target": [1, 2],
            **more,
        }
        return make_plan(
            (0, 0, [10, 11, 12, 13, 14, 15], True), (1, 0, [20, 21, 22, 23, 24, 25], True), **argument
        )

    def run(self, step: Any) -> list[str]:
        """Return the shadow device's errors for a step, and sample its tokens."""
        self.device.findings.clear()
        self.device.collect(self.device.submit(step))
        return [finding.partition(": ")[2] for finding in self.device.findings]

    def second_step(self, **more: Any) -> Any:
        argument = {"source": [1, 2], "target": [1, 2], **more}
        return make_plan((0, 6, [draw_token(1, 0, 6)], True), (1, 6, [draw_token(2, 0, 6)], True), **argument)


@pytest.fixture
def shadow_lab() -> Iterator[ShadowLab]:
    lab = ShadowLab()
    assert lab.run(lab.first_step()) == []
    yield lab


def test_correct_steps_pass(shadow_lab: ShadowLab) -> None:
    assert shadow_lab.run(shadow_lab.second_step()) == []
    assert shadow_lab.device.answer_request(1)[6:] == [draw_token(1, 0, 6), draw_token(1, 0, 7)]


def assert_only(violations: list[str], message: str) -> None:
    assert any(message in item for item in violations), violations


def test_stale_table_row_reading_foreign_page_is_reported(shadow_lab: ShadowLab) -> None:
    step = shadow_lab.second_step(table_changes=[{0: 2}, {}])
    assert_only(
        shadow_lab.run(step),
        "slot 0, request 1, group full: reads position 0 in page 2, which holds position 0 of request 2",
    )


def test_page_freed_too_early_is_reported(shadow_lab: ShadowLab) -> None:
    step = shadow_lab.second_step(table_changes=[{}, {0: -1}])
    assert_only(
        shadow_lab.run(step), "slot 0, request 1, group window: reads position 1, for which its table has no page"
    )


def test_page_outside_the_window_can_be_freed(shadow_lab: ShadowLab) -> None:
    device = shadow_lab.device
    assert shadow_lab.run(shadow_lab.second_step(table_changes=[{2: 4, 10: 5}, {2: 4, 10: 5}])) == []
    for position in (7, 8, 9):
        tokens = [device.answer_request(number)[position] for number in (1, 2)]
        changes = {0: -1} if position == 9 else {}
        step = make_plan(
            (0, position, tokens[:1], True),
            (1, position, tokens[1:], True),
            source=[1, 2],
            target=[1, 2],
            table_changes=[{}, changes],
        )
        assert shadow_lab.run(step) == []


def test_wrong_state_row_is_reported(shadow_lab: ShadowLab) -> None:
    assert_only(
        shadow_lab.run(shadow_lab.second_step(source=[2, 2])),
        "slot 0, request 1: starts at position 6 from state row 2",
    )
    assert_only(
        shadow_lab.run(shadow_lab.second_step(source=[0, 2])),
        "starts at position 6 from state row 0, which holds the zero state",
    )


def test_racing_rows_are_reported(shadow_lab: ShadowLab) -> None:
    assert_only(
        shadow_lab.run(shadow_lab.second_step(target=[1, 1])), "state row 1 is written by 2 sequences of the step"
    )
    assert_only(
        shadow_lab.run(shadow_lab.second_step(target=[2, 3])),
        "state row 2 is written while sequence 1 of the step reads it",
    )
    assert_only(
        shadow_lab.run(shadow_lab.second_step(target=[0, 2])),
        "state row 0, the zero state of fresh sequences, would be written",
    )


def test_reused_epoch_is_reported(shadow_lab: ShadowLab) -> None:
    shadow_lab.bind_slot(0, 3, epoch=1)
    shadow_lab.device.register_request(3, [1])
    result = shadow_lab.run(make_plan((0, 0, [1], True), bound=[0], source=[0], target=[1]))
    assert_only(result, "slot 0, request 3: bound with epoch 1, which request 1 had in this slot")


def test_unbound_slot_is_reported(shadow_lab: ShadowLab) -> None:
    shadow_lab.bind_slot(0, 3, epoch=2)
    shadow_lab.device.register_request(3, [1])
    assert_only(
        shadow_lab.run(make_plan((0, 0, [1], True), source=[0], target=[1])), "runs with the record of request 1"
    )


def test_sample_at_wrong_position_or_slot_is_reported(shadow_lab: ShadowLab) -> None:
    step = shadow_lab.second_step()
    step.row_position[0] += 1
    assert_only(shadow_lab.run(step), "slot 0: samples position 8 after position 6")
    step = shadow_lab.second_step()
    step.row_slot[0] = 1
    assert_only(shadow_lab.run(step), "logits of slot 0 are sampled by slot 1")


def test_lost_or_duplicated_token_is_reported(shadow_lab: ShadowLab) -> None:
    assert shadow_lab.run(shadow_lab.second_step(table_changes=[{}, {}])) == []
    second = shadow_lab.second_step()
    assert_only(shadow_lab.run(second), "samples token 7, expected 8")
    wrong = make_plan((0, 7, [999], True), source=[1], target=[1])
    assert_only(shadow_lab.run(wrong), "token 999 at position 7, expected")
    late = make_plan((0, 9, [1], True), source=[1], target=[1])
    assert_only(shadow_lab.run(late), "computes position 9, but has 9 tokens")


def test_out_of_order_sequences_are_reported(shadow_lab: ShadowLab) -> None:
    step = shadow_lab.second_step()
    step.sequence[:] = [1, 0]
    assert_only(shadow_lab.run(step), "the sequences of the step are not in order: [1, 0]")


def test_dropped_copy_is_reported(shadow_lab: ShadowLab) -> None:
    """Request 2 goes on in a page of its own behind a fork."""
    fork = {CTX // PAGE + 1: 5}
    copies = [PageCopy(group, 3, 5, 2) for group in (0, 1)]
    step = shadow_lab.second_step(table_changes=[dict(fork), dict(fork)])
    assert_only(
        shadow_lab.run(step), "slot 1, request 2, group full: reads position 4 in page 5, which holds nothing"
    )
    second = ShadowLab()
    assert second.run(second.first_step()) == []
    assert second.run(second.second_step(table_changes=[dict(fork), dict(fork)], copies=copies)) == []


def test_wrong_penalty_rows_are_reported() -> None:
    lab = ShadowLab()
    for slot, request in ((0, 1), (1, 2)):
        lab.bind_slot(slot, request, epoch=1, flags=SlotFlag.PENALTIES, penalty_row=slot)
    prompts = {slot: np.array([(slot + 1) * 10 + index for index in range(6)]) for slot in (0, 1)}
    assert lab.run(lab.first_step(counts_of=prompts)) == []
    lab.bind_slot(1, 2, epoch=1, penalty_row=0)
    assert_only(
        lab.run(lab.second_step(bound=[1], counts_of={1: prompts[1]})), "penalty row 0 counts other tokens"
    )
    lab = ShadowLab()
    lab.bind_slot(0, 1, epoch=1, flags=SlotFlag.PENALTIES, penalty_row=0)
    assert_only(lab.run(lab.first_step()), "slot 0, request 1: bound without counts for its penalty row 0")


def test_data_lost_with_the_device_is_not_read(shadow_lab: ShadowLab) -> None:
    shadow_lab.device.reopen()
    step = shadow_lab.second_step(bound=[0, 1])
    assert_only(shadow_lab.run(step), "reads position 0, for which its table has no page")
