"""The host side of the sample graph: sample tokens on the device from logits in device memory and slot
records.

Records of newly bound slots, biases and token counts are buffered on the host until a sampled step uploads
them; greedy steps never do.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from zinc_rt.engine.resident import Variant
from zinc_rt.engine.runner import Runner, StepBlock
from zinc_rt.ir.slot_record import RECORD, SlotFlag, dwords, seal
from zinc_rt.model.sample_graph import BIASES, COUNTS, LOGITS, RECORD_TABLE, SampleForm, sample_graph
from zinc_rt.sched.plan import NO_CANDIDATE, Drawn, RowLogprobs, StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.token_mask import TokenMask

NEEDS_SAMPLING = SlotFlag.PENALTIES | SlotFlag.BIAS | SlotFlag.MASK | SlotFlag.LOGPROBS
TOPS = (0, 5, 20)  # alternatives that a graph has; a request gets the first of them
IN_PROMPT = np.uint32(1 << 31)  # of a token's count


class RowSampler:
    """Samples the rows of a step. `records`: the scheduler's live records. `end_ids`: the model's end tokens."""

    def __init__(self, runner: Runner, records: np.ndarray, vocab: int, end_ids: Sequence[int]) -> None:
        self._runner = runner
        self._records = records
        self._vocab = vocab
        self._end_ids = np.array(end_ids or [-1], np.int32)
        self._variants: dict[tuple[int, SampleForm], tuple[Variant, StepBlock]] = {}  # by the variant in front
        self._to_store: set[int] = set(range(len(records)))  # slots whose record is not on the device
        self._to_count: dict[int, np.ndarray] = {}  # slot -> counts that are not on the device
        self._bias_id = np.zeros((len(records), BIASES), np.int32)
        self._bias_value = np.zeros((len(records), BIASES), np.float32)
        self._mask = np.zeros((len(records), -(-vocab // 32)), np.int32)
        self._masking: Future[None] | None = None  # fills it, while the model's graph runs
        self._helper = ThreadPoolExecutor(1, "masks")

    def learn(self, plan: StepPlan) -> None:
        """Record the sampling state of a step's newly bound slots."""
        if not plan.bound:
            return
        self._to_store.update(plan.bound)
        for slot, tokens in plan.counts_of.items():
            self._to_count[slot] = self._counted(tokens, int(self._records["prompt_len"][slot]))
        for slot, bias in plan.bias_of.items():
            ids = sorted(bias)
            self._bias_id[slot, : len(ids)] = ids
            self._bias_value[slot, : len(ids)] = [bias[id] for id in ids]

    def begin(self, plan: StepPlan) -> None:
        """Compute the token masks of a step while it runs."""
        masks = [plan.mask_of[slot] for slot in self._masked(plan)]
        self._masking = self._helper.submit(_fill_masks, masks, self._mask) if masks else None

    def _masked(self, plan: StepPlan) -> list[int]:
        """The slots whose rows have a mask, in the rows' order."""
        if not plan.mask_of:
            return []
        rows = plan.row_slot[: plan.rows]
        slots: list[int] = rows[self._records["flags"][rows] & SlotFlag.MASK != 0].tolist()
        return slots

    def needed(self, plan: StepPlan) -> bool:
        """Return whether a row needs more than its most likely token."""
        rows = plan.row_slot[: plan.rows]
        flags = self._records["flags"][rows]
        if ((flags & NEEDS_SAMPLING != 0) | (flags & SlotFlag.GREEDY == 0)).any():
            return True
        least = self._records["min_tokens"][rows]
        if not least.any():
            return False
        made = plan.row_position[: plan.rows] - self._records["prompt_len"][rows]
        return bool((made < least).any())

    def draw(self, plan: StepPlan, forward: Variant, nonfinite: np.ndarray) -> Drawn:
        """Return the tokens of a step after `forward` ran. `nonfinite`: its non-finite logits flags, used
        only if nothing can be sampled."""
        rows = plan.row_slot[: plan.rows]
        biased = bool((self._records["flags"][rows] & SlotFlag.BIAS != 0).any())
        masked = self._masked(plan)
        form = self._form(int(self._records["logprobs"][rows].max()), biased=biased, masked=len(masked))
        variant, block = self._variant(forward, form)
        stored = sorted(self._to_store)
        self._fill(block, plan, rows, stored)
        if self._masking is not None:
            self._masking.result()
        self._fill_masked(block, rows, masked)
        for slot, counts in self._to_count.items():
            variant.write(COUNTS, counts, offset_bytes=4 * self._vocab * slot)
        handle = self._runner.submit(block)
        self._to_store.clear()
        self._to_count.clear()
        self._runner.collect(handle)
        tokens = variant.read("sample.token", handle.counts).copy()
        why = np.where(nonfinite < 0, NO_CANDIDATE, nonfinite)
        wrong = np.where(tokens < 0, why, -1).astype(np.int32)
        return Drawn(tokens, wrong, self._logprobs(variant, handle.counts))

    def stored(self) -> tuple[np.ndarray, list[int]] | None:
        """Return, for an audit, the device's records, RECORD [slots], and which slots are current. None
        before the first sampled step."""
        variant, _ = next(iter(self._variants.values()), (None, None))
        if variant is None:
            return None
        records = np.ascontiguousarray(variant.read_back(RECORD_TABLE)).view(RECORD)[:, 0]
        return records, [slot for slot in range(len(records)) if slot not in self._to_store]

    def build(self, forward: Variant, sampling: Sampling) -> None:
        """Build the sample graph for a variant if the request needs more than the most likely token."""
        asked = -1 if sampling.logprobs is None else sampling.logprobs
        plain = sampling.greedy and not (sampling.penalised or sampling.logit_bias or sampling.min_tokens)
        if not plain or asked >= 0:
            self._variant(forward, self._form(asked, biased=bool(sampling.logit_bias)))

    def _form(self, asked: int, *, biased: bool, masked: int = 0) -> SampleForm:
        """`asked`: the most alternatives to a token, -1 for no log-probabilities. `masked`: rows with a mask."""
        top = None if asked < 0 else min(self._vocab, next(top for top in TOPS if top >= asked))
        slots = len(self._records)
        masks = min(slots, 1 << (masked - 1).bit_length()) if masked else 0  # a few sizes, not one for each count
        ends = len(self._end_ids)
        return SampleForm(
            self._vocab, slots, penalty_rows=slots, bias_rows=slots * biased, mask_rows=masks, top=top, ends=ends
        )

    def _fill(self, block: StepBlock, plan: StepPlan, rows: np.ndarray, stored: list[int]) -> None:
        count, views = plan.rows, block.views
        block.counts[:] = 0
        block.counts[1:3] = len(stored), count
        records = self._records[stored]
        seal(records)
        views["sample.bound_record"][: len(stored)] = dwords(records)
        views["sample.bound_slot"][: len(stored)] = stored
        views["sample.row_slot"][:count] = rows
        views["sample.position"][:count] = plan.row_position[:count]
        views["sample.entry"][:count] = (self._records["epoch"][rows] << 10 | rows.astype(np.uint32)).view(
            np.int32
        )
        views["sample.end_id"][:] = self._end_ids
        if "sample.bias_id" in views:
            views["sample.bias_id"][:], views["sample.bias_value"][:] = self._bias_id, self._bias_value

    def _fill_masked(self, block: StepBlock, rows: np.ndarray, masked: list[int]) -> None:
        if not masked:
            return
        views, place = block.views, {slot: at for at, slot in enumerate(masked)}
        views["sample.mask"][: len(masked)] = self._mask[: len(masked)]
        views["sample.mask_row"][: len(rows)] = [place.get(slot, -1) for slot in rows.tolist()]

    def _counted(self, tokens: np.ndarray, prompt: int) -> np.ndarray:
        counts = np.bincount(tokens[prompt:], minlength=self._vocab).astype(np.uint32)
        counts[tokens[:prompt]] |= IN_PROMPT
        return counts.view(np.int32)

    def _logprobs(self, variant: Variant, counts: tuple[int, ...]) -> RowLogprobs | None:
        if "sample.logprob" not in variant.graph.buffers:
            return None
        chosen = variant.read("sample.logprob", counts).copy()
        if "sample.top_id" not in variant.graph.buffers:
            none = np.empty((len(chosen), 0))
            return RowLogprobs(chosen, none.astype(np.int32), none.astype(np.float32))
        ids, values = (variant.read(f"sample.top_{what}", counts).copy() for what in ("id", "logprob"))
        return RowLogprobs(chosen, ids, values)

    def _variant(self, forward: Variant, form: SampleForm) -> tuple[Variant, StepBlock]:
        """The sample graph over the logits of a variant, with room for as many rows."""
        known = self._variants.get((id(forward), form))
        if known is None:
            resident, graph = self._runner.variants.resident, sample_graph(form)
            key = (1, max(2, form.slots), forward.key[2])  # tokens, slots bound since the last time, rows
            replays = resident.graph(form.name, graph)
            variant = resident.build(graph, key, replays, given={LOGITS: forward.buffer(LOGITS)})
            known = self._variants[id(forward), form] = (variant, StepBlock(variant))
        return known


def _fill_masks(masks: Sequence[TokenMask], words: np.ndarray) -> None:
    for mask, row in zip(masks, words, strict=False):
        mask.fill(row)
