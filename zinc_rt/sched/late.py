"""Rows whose token mask was late: their logits are kept on the device, and they are drawn by a later submission.

A late row is committed only once its token is drawn. Until then its request takes no part in steps.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.sched.plan import Drawn, LateRow, StepPlan
from zinc_rt.sched.request import State
from zinc_rt.sched.state import SchedulerState


def settle_masks(s: SchedulerState, plan: StepPlan) -> None:
    """Add the masks of the plan's rows to it, waiting briefly for masks that are being filled. Those of draft rows
    are there already."""
    if not s.masked:
        return
    rows = [
        (row, slot)
        for row, slot in enumerate(plan.row_slot[: plan.rows].tolist())
        if slot in s.masked and row not in plan.mask_of
    ]
    s.fills.settle(s.masked[slot] for _, slot in rows)
    for row, slot in rows:
        words = s.fills.words(s.masked[slot])
        if words is None:
            plan.late.append(row)
        else:
            plan.mask_of[row] = words


def split_late_rows(s: SchedulerState, plan: StepPlan, drawn: Drawn) -> tuple[StepPlan, Drawn, list[LateRow]]:
    """Return a plan that ran, and its tokens, without the late rows, and these rows. A row without finite logits
    is not included: it fails. The plan has one row of each slot.
    """
    late = plan.list_undrawn(drawn.nonfinite)
    draws = [piece for piece in plan.prompts if piece.draws]
    rows = []
    for row in late:
        request = s.slots.requests[int(plan.row_slot[row])]
        assert request is not None
        piece = draws[row - plan.decodes] if row >= plan.decodes else None
        if piece is None:
            s.slots.leave_out(request, True)
        rows.append(LateRow(request, int(plan.row_position[row]), piece))
        s.late[request] = rows[-1]
    s.counts.masks_late += len(rows)
    kept = np.setdiff1d(np.arange(plan.rows), late)
    return plan.take_rows(kept, s.slots), drawn.take(kept), rows


def find_ready_late_rows(s: SchedulerState) -> list[LateRow]:
    """Return the late rows whose clients are reading."""
    return [row for row in s.late.values() if not row.request.held]


def plan_late(s: SchedulerState) -> StepPlan | None:
    """Return a plan that computes no tokens and samples the late rows whose masks are ready, None if there are
    none. A request whose mask cannot be filled in time fails."""
    for request in list(s.late):
        if request.mask is not None and (reason := s.fills.failure(request.mask)):
            s.end(request, State.FAILED, reason)
    ready = [row for row in find_ready_late_rows(s) if s.fills.words(s.masked[row.request.slot]) is not None]
    if not ready:
        return None
    ready.sort(key=lambda row: (row.piece is not None, row.request.slot))
    plan = StepPlan(s.limits.slots, s.limits.slots, len(s.cache.groups))
    plan.clear(s.counts.steps + 1)
    for row in ready:
        request = row.request
        del s.late[request]
        s.drawn_late.append(request)
        if row.piece is None:
            s.slots.leave_out(request, request.left_out > 0)
        else:
            plan.prompts.append(row.piece)
    slots = np.array([row.request.slot for row in ready], np.int32)
    positions = np.array([row.position for row in ready], np.int32)
    plan.set_rows(plan.logit_row, slots, positions, sum(row.piece is None for row in ready), s.slots)
    plan.slot[: plan.decodes] = slots[: plan.decodes]
    settle_masks(s, plan)
    return plan
