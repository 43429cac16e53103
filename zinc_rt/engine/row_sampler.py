"""The host side of sampling: fill the part of a step block that the sampling nodes read, and take the tokens that
they deliver by the output ring.

A step is one submission: its graph is the model's with the nodes of model/sample_graph.py, in a form for what its
rows need. Only a row whose token mask was late is drawn by a submission of its own, from the logits that the step
kept on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.engine.output_ring import ExpectedEntries, OutputRing
from zinc_rt.engine.resident import Variant
from zinc_rt.engine.runner import Runner, StepBlock, StepOutput, take_block
from zinc_rt.ir.slot_record import SlotFlag, seal_records, view_dwords, view_records
from zinc_rt.model.sample_graph import (
    BIASES,
    COUNTS,
    CURSOR,
    DRAWN,
    RECORD_TABLE,
    RING,
    SampleForm,
    build_late_draw_graph,
)
from zinc_rt.sched.plan import NO_CANDIDATE, Drawn, RowLogprobs, StepPlan
from zinc_rt.sched.sampling import Sampling

NEEDS_SAMPLING = SlotFlag.PENALTIES | SlotFlag.BIAS | SlotFlag.MASK | SlotFlag.LOGPROBS
BACKPRESSURE = int(SlotFlag.BACKPRESSURE)
TOPS = (0, 5, 20)  # alternatives that a graph has; a request gets the first of them
MASKS = 8  # rows with masks that a graph has: 1, or a power of this
IN_PROMPT = np.uint32(1 << 31)  # of a token's count


class RowSampler:
    """Samples the rows of a step. `records`: the scheduler's live records. `end_ids`: the model's end tokens."""

    def __init__(self, runner: Runner, records: np.ndarray, vocab: int, end_ids: Sequence[int]) -> None:
        self._runner = runner
        self._records = records
        self._vocab = vocab
        self._end_ids = np.array(end_ids or [-1], np.int32)
        self._stored: set[int] = set()  # slots whose present record a step has stored on the device
        self._to_count: dict[int, np.ndarray] = {}  # slot -> counts that are not on the device
        self._ring = OutputRing(len(records), vocab)
        self._greedy = SampleForm(vocab, len(records), greedy=True)
        self._most_rows = runner.variants.limits.rows or len(records)
        self._sampling: set[int] = set()  # bound slots whose rows need, or needed, more than the most likely token
        self._bind(np.flatnonzero(records["state"]))
        self._bias_id = np.zeros((len(records), BIASES), np.int32)
        self._bias_value = np.zeros((len(records), BIASES), np.float32)

    def bind_slots(self, plan: StepPlan) -> None:
        """Record the sampling state of a step's newly bound slots."""
        if not plan.bound:
            return
        self._stored.difference_update(plan.bound)
        self._bind(np.array(plan.bound))
        for slot, tokens in plan.counts_of.items():
            self._to_count[slot] = self._count_tokens(tokens, int(self._records["prompt_len"][slot]))
        for slot, bias in plan.bias_of.items():
            ids = sorted(bias)
            self._bias_id[slot, : len(ids)] = ids
            self._bias_value[slot, : len(ids)] = [bias[id] for id in ids]

    def choose_form(self, plan: StepPlan) -> SampleForm:
        """Return the form in which a step samples: greedy if no row needs more than its most likely token."""
        if not self._sampling:
            return self._greedy
        rows = plan.row_slot[: plan.rows]
        flags = self._records["flags"][rows]
        if not _needs_sampling(flags).any():
            min_token = self._records["min_tokens"][rows]
            if not min_token.any():
                return self._greedy
            result = plan.row_position[: plan.rows] - self._records["prompt_len"][rows]
            if not (result < min_token).any():
                return self._greedy
        biased, masked = bool((flags & SlotFlag.BIAS).any()), int(np.count_nonzero(flags & SlotFlag.MASK))
        return self._make_form(int(self._records["logprobs"][rows].max()), biased=biased, masked=masked)

    def fill(self, block: StepBlock, plan: StepPlan) -> None:
        """Fill the sampling part of a step block, and upload token counts of newly bound slots. A late row is
        given a mask that permits no token: it samples -1, which is not counted.
        """
        views, count = block.views, plan.rows
        rows = plan.row_slot[:count]
        self._fill_records(views, plan)
        views["sample.row_slot"][:count] = rows
        views["sample.position"][:count] = plan.row_position[:count]
        if "sample.kept_row" in views:
            views["sample.kept_row"][:count] = self._list_kept_rows(rows)
        if "sample.end_id" in views:
            views["sample.end_id"][:] = self._end_ids
        if "sample.bias_id" in views:
            views["sample.bias_id"][:], views["sample.bias_value"][:] = self._bias_id, self._bias_value
        if "sample.mask" in views:
            self._fill_masks(views, rows, plan)
        if self._to_count and COUNTS in block.variant.graph.buffers:
            for slot, counts in self._to_count.items():
                block.variant.write(COUNTS, counts, offset_bytes=4 * self._vocab * slot)
                self._runner.host_writes += 1
            self._to_count.clear()
        if not self._ring.started:
            self._ring.start(int(block.variant.read(CURSOR, ())[0]))

    def late(self, plan: StepPlan) -> StepBlock:
        """Return a filled block for the graph that samples a plan's rows from the logits stored by earlier
        steps.
        """
        form = self.choose_form(plan)
        key = (1, 1, _round_up_count(plan.rows, len(self._records)))
        block = take_block(
            self._runner.variants.copy_variant("late", key, lambda: build_late_draw_graph(form), form=form)
        )
        block.counts[:] = 0
        block.counts[2] = plan.rows
        self.fill(block, plan)
        return block

    def expected(self, plan: StepPlan) -> ExpectedEntries:
        """Return the entries that a step or a late draw will write to the output ring."""
        slots = plan.row_slot[: plan.rows]
        skipped = self._records["flags"][slots] & BACKPRESSURE != 0
        return self._ring.expected(slots, plan.row_position[: plan.rows], skipped)

    def read_tokens(self, output: StepOutput, plan: StepPlan, expected: ExpectedEntries) -> Drawn:
        """Return the tokens of a step or a late draw, taken from the output ring."""
        variant, counts, skipped = output.handle.variant, output.handle.counts, expected.skipped
        tokens = self._ring.take(variant.read(RING, ()), int(variant.read(CURSOR, ())[0]), expected)
        nonfinite = output.nonfinite
        if DRAWN not in variant.graph.buffers:
            for row in (nonfinite >= 0).nonzero()[0]:  # the largest counts, as in SAMPLE_SLOTS
                if skipped[row] or np.isfinite(output.logits()[row, tokens[row]]):
                    nonfinite[row] = -1
            return Drawn(tokens, nonfinite, None, skipped if expected.skips else None)
        if not len(nonfinite):  # of a late draw
            nonfinite = np.full(plan.rows, -1, np.int32)
        reason = np.where(nonfinite < 0, NO_CANDIDATE, nonfinite)
        wrong = np.where((tokens < 0) & ~skipped, reason, -1).astype(np.int32)
        return Drawn(tokens, wrong, _read_logprobs(variant, counts), skipped)

    def abandon(self) -> None:
        """Skip the output of a step that is not collected."""
        self._ring.stop()

    def read_stored(self) -> tuple[np.ndarray, list[int]] | None:
        """Return, for an audit, the device's records, RECORD [slots], and which slots are current. None
        before the first step."""
        ran = (item for item in self._runner.variants.ran() if RECORD_TABLE in item.graph.buffers)
        variant = next(ran, None)
        if variant is None:
            return None
        return view_records(variant.read_back(RECORD_TABLE)), sorted(self._stored)

    def choose_sampling_form(self, sampling: Sampling) -> SampleForm:
        """Return the form of steps whose requests all have this sampling and no mask; see `form`."""
        logprobs = -1 if sampling.logprobs is None else sampling.logprobs
        plain = sampling.greedy and not (sampling.penalised or sampling.logit_bias or sampling.min_tokens)
        if plain and logprobs < 0:
            return self._greedy
        return self._make_form(logprobs, biased=bool(sampling.logit_bias), masked=0)

    def _make_form(self, asked: int, *, biased: bool, masked: int) -> SampleForm:
        """`asked`: the most alternatives to a token, -1 for no log-probabilities. `masked`: rows with a mask.
        Steps that need several of these share one form that covers all, because each form is a graph."""
        slots = len(self._records)
        if (asked >= 0) + biased + (masked > 0) > 1:
            asked, biased, masked = (TOPS[-1] if asked >= 0 else -1), True, self._most_rows
        top = None if asked < 0 else min(self._vocab, next(top for top in TOPS if top >= asked))
        masks = _round_up_count(masked, self._most_rows) if masked else 0
        ends, drafts = len(self._end_ids), max(0, self._most_rows - slots) if masks else 0
        return SampleForm(
            self._vocab, slots, penalty_rows=slots, bias_rows=slots * biased, mask_rows=masks, top=top, ends=ends,
            draft_rows=drafts,
        )  # fmt: skip

    def _bind(self, slots: np.ndarray) -> None:
        """Read the records of newly bound slots: their entries in the ring, and which of them need more than the
        most likely token.
        """
        self._ring.bind(slots, self._records)
        sampling = _needs_sampling(self._records["flags"][slots]) | (self._records["min_tokens"][slots] > 0)
        self._sampling.difference_update(slots[~sampling].tolist())
        self._sampling.update(slots[sampling].tolist())

    def _fill_records(self, views: dict[str, np.ndarray], plan: StepPlan) -> None:
        """Return the records of all sequences of the step, sampled or not, and of all rows of a late draw."""
        slots = views["sample.record_slot"][: plan.sequences if plan.tokens else plan.rows]
        if plan.tokens == plan.sequences > 0:
            slots[:] = plan.slot[: plan.tokens]
        elif plan.tokens:
            slots[plan.sequence[: plan.tokens]] = plan.slot[: plan.tokens]
        else:
            slots[:] = plan.row_slot[: plan.rows]
        words = views["sample.record"][: len(slots)]
        view_dwords(self._records).take(
            slots, axis=0, out=words, mode="clip"
        )  # all are in range; "raise" needs a copy
        seal_records(view_records(words))
        self._stored.update(slots.tolist())

    def _fill_masks(self, views: dict[str, np.ndarray], rows: np.ndarray, plan: StepPlan) -> None:
        mask, row = views["sample.mask"], views["sample.mask_row"]
        row[: len(rows)] = -1
        late = set(plan.late)
        masked = np.flatnonzero(self._records["flags"][rows] & SlotFlag.MASK)
        for at, index in enumerate(masked.tolist()):
            row[index] = at
            mask[at] = 0 if index in late else plan.mask_of[index]

    def _list_kept_rows(self, slots: np.ndarray) -> np.ndarray:
        """Return where the logits of each row are kept: the first row of a slot in its own place, i32 [rows]."""
        rows, drafts = slots.copy(), np.diff(slots, prepend=-1) == 0
        rows[drafts] = len(self._records) + np.arange(np.count_nonzero(drafts))
        return rows

    def _count_tokens(self, tokens: np.ndarray, prompt: int) -> np.ndarray:
        counts = np.bincount(tokens[prompt:], minlength=self._vocab).astype(np.uint32)
        counts[tokens[:prompt]] |= IN_PROMPT
        return counts.view(np.int32)


def _needs_sampling(flags: np.ndarray) -> np.ndarray:
    """Return which records need more than the most likely token, whatever the position, bool."""
    needs: np.ndarray = flags & (NEEDS_SAMPLING | SlotFlag.GREEDY) != SlotFlag.GREEDY
    return needs


def _round_up_count(count: int, maximum: int) -> int:
    """Return the smallest size of at least `count`, of a few sizes up to `maximum`."""
    size = 1
    while size < count:
        size *= MASKS
    return min(size, maximum)


def _read_logprobs(variant: Variant, counts: tuple[int, ...]) -> RowLogprobs | None:
    if "sample.logprob" not in variant.graph.buffers:
        return None
    chosen = variant.read("sample.logprob", counts).copy()
    if "sample.top_id" not in variant.graph.buffers:
        none = np.empty((len(chosen), 0))
        return RowLogprobs(chosen, none.astype(np.int32), none.astype(np.float32))
    ids, values = (variant.read(f"sample.top_{what}", counts).copy() for what in ("id", "logprob"))
    return RowLogprobs(chosen, ids, values)
