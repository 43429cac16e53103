"""The data of a step: its plan, its sampled tokens, and the batch of tokens for its requests."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.ir.graph import TokenRole
from zinc_rt.sched.kv.kv_cache import PageCopy
from zinc_rt.sched.request import Request
from zinc_rt.sched.slots import DecodeSet, Slots

ORDINALS = np.arange(1 << 16, dtype=np.int32)
_NO_NUMBERS = np.empty(0, np.int64)
_NO_CHOICES = np.empty(0, np.int8)
_NO_TOKENS = np.empty(0, np.int32)
NO_CANDIDATE = 0x7FFFFFFF  # in `Drawn.nonfinite`: all logits are numbers, and the request allows none of them


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log probabilities of each row before any adjustment: `logprob` f32 [rows] of the sampled token;
    `top_ids` i32 and `top_logprobs` f32 [rows, n] of the n most likely, in descending order."""

    logprob: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray

    def take(self, rows: np.ndarray) -> RowLogprobs:
        return RowLogprobs(self.logprob[rows], self.top_ids[rows], self.top_logprobs[rows])

    @staticmethod
    def join(parts: Sequence[RowLogprobs]) -> RowLogprobs:
        """Return the rows of all parts in order."""
        names = ("logprob", "top_ids", "top_logprobs")
        return RowLogprobs(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class Drawn:
    """The sampled tokens of a step, i32 [rows] each; `nonfinite`: the index of the first non-finite logit, or
    NO_CANDIDATE; -1 if a token was sampled, or not delivered. `skipped` bool [rows]: the slot has backpressure,
    and its token was not delivered; None: all were."""

    tokens: np.ndarray
    nonfinite: np.ndarray
    logprobs: RowLogprobs | None = None
    skipped: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Drawn:
        """Return these rows only."""
        logprobs = None if self.logprobs is None else self.logprobs.take(rows)
        skipped = None if self.skipped is None else self.skipped[rows]
        return Drawn(self.tokens[rows], self.nonfinite[rows], logprobs, skipped)

    @staticmethod
    def join(parts: Sequence[tuple[np.ndarray, Drawn]]) -> Drawn:
        """Return the rows of several submissions: the indices of each one's rows among all, and its tokens."""
        if len(parts) == 1:
            return parts[0][1]
        rows = np.concatenate([rows for rows, _ in parts])
        order = np.argsort(rows)
        tokens, nonfinite = (
            np.concatenate([getattr(drawn, name) for _, drawn in parts])[order] for name in ("tokens", "nonfinite")
        )
        skipped = None
        if any(drawn.skipped is not None for _, drawn in parts):
            skipped = np.concatenate(
                [np.zeros(len(at), bool) if drawn.skipped is None else drawn.skipped for at, drawn in parts]
            )[order]
        known = [(at, drawn.logprobs) for at, drawn in parts if drawn.logprobs is not None]
        logprobs = None
        if known:
            most = max(part.top_ids.shape[1] for _, part in known)
            logprobs = RowLogprobs(
                np.zeros(len(rows), np.float32), np.zeros((len(rows), most), np.int32),
                np.zeros((len(rows), most), np.float32),
            )  # fmt: skip
            for at, part in known:
                logprobs.logprob[at] = part.logprob
                logprobs.top_ids[at, : part.top_ids.shape[1]] = part.top_ids
                logprobs.top_logprobs[at, : part.top_ids.shape[1]] = part.top_logprobs
        return Drawn(tokens, nonfinite, logprobs, skipped)


@dataclass(frozen=True, slots=True)
class Batch:
    """The output of a step: for each token the request's number, its choice and the token, and (number, choice,
    reason) of finished choices. A choice has several tokens, in order, if drafts were accepted."""

    step: int
    requests: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)  # i64
    choice: np.ndarray = field(default_factory=lambda: _NO_CHOICES)  # i8
    tokens: np.ndarray = field(default_factory=lambda: _NO_TOKENS)  # i32
    logprobs: RowLogprobs | None = None
    ended: tuple[tuple[int, int, str], ...] = ()


@dataclass(slots=True)
class StepPiece:
    """Tokens [first, last) of a request's prompt; `draws`: a token is sampled after the last."""

    request: Request
    first: int
    last: int
    draws: bool


@dataclass(frozen=True, slots=True)
class LateRow:
    """A row with a late token mask: `position` of the token to sample, and the piece of a prompt before it."""

    request: Request
    position: int
    piece: StepPiece | None


@dataclass(frozen=True, slots=True)
class StepLaunch:
    """A submission of a step: the tokens of one role. `plan`: a step of these tokens only; `tokens` and `rows`:
    their indices in the whole step, ascending."""

    role: TokenRole
    plan: StepPlan
    tokens: np.ndarray
    rows: np.ndarray


@dataclass(slots=True)
class StepPlan:
    """A step as arrays, which all steps reuse: the contents are valid until the next step is planned.

    Decodes come first, then `prompts`; a sequence's tokens are adjacent and ascending. A decode has its last token
    and its drafts, with a row of logits for each; a prompt has a row for its last token at most. `drafts`: all
    draft tokens of the decodes. `recomputed`: tokens before the last tokens of decodes, without rows, that their
    recurrent states do not include yet. The runner fills the device's step block from the plan, whether the
    scheduler or an Engine's caller planned the step.

    i32 [step_tokens], the first `tokens` valid: token_id, position, slot, sequence. i32 [slots], the first
    `sequences`: state_source and state_target, the rows of recurrent state, -1 without. i32 [most_rows],
    [slots] by default, the first `rows`: logit_row (a token's index), row_slot (its slot), row_position (of
    the sampled token).
    """

    step_tokens: int
    slots: int
    groups: int
    most_rows: int = 0
    number: int = 0  # of the step
    tokens: int = 0
    sequences: int = 0
    rows: int = 0
    decodes: int = 0
    drafts: int = 0
    recomputed: int = 0
    token_id: np.ndarray = field(init=False)
    position: np.ndarray = field(init=False)
    slot: np.ndarray = field(init=False)
    sequence: np.ndarray = field(init=False)
    state_source: np.ndarray = field(init=False)
    state_target: np.ndarray = field(init=False)
    logit_row: np.ndarray = field(init=False)
    row_slot: np.ndarray = field(init=False)
    row_position: np.ndarray = field(init=False)
    table_changes: list[dict[int, int]] = field(init=False)  # by page group: slot * pages_per_slot + place -> page
    bound: list[int] = field(default_factory=list)  # slots bound since the step before: their records are new
    copies: list[PageCopy] = field(default_factory=list)  # to be done before the step
    counts_of: dict[int, np.ndarray] = field(default_factory=dict)  # penalised slot just bound: its tokens so far
    bias_of: dict[int, dict[int, float]] = field(default_factory=dict)  # biased slot just bound: what to add
    mask_of: dict[int, np.ndarray] = field(default_factory=dict)  # row of a masked slot: TokenMask.fill's words
    late: list[int] = field(default_factory=list)  # rows that draw nothing: their masks are not filled yet
    prompts: list[StepPiece] = field(default_factory=list)
    decode_set: DecodeSet | None = None
    laid_out: DecodeSet | None = None  # whose slots are in the arrays, one token each
    launches: list[StepLaunch] = field(default_factory=list)  # by role, if prompts have an ordering of their own

    def __post_init__(self) -> None:
        for name in ("token_id", "position", "slot", "sequence"):
            setattr(self, name, np.zeros(self.step_tokens, np.int32))
        for name in ("state_source", "state_target"):
            setattr(self, name, np.full(self.slots, -1, np.int32))
        for name in ("logit_row", "row_slot", "row_position"):
            setattr(self, name, np.full(self.most_rows or self.slots, -1, np.int32))
        self.table_changes = [{} for _ in range(self.groups)]

    @property
    def decode_rows(self) -> int:
        """Return the number of rows of decodes, which are first in the step."""
        return self.decodes + self.drafts

    @property
    def decode_tokens(self) -> int:
        """Return the number of tokens of decodes, which are first in the step."""
        return self.decode_rows + self.recomputed

    @property
    def batched_tokens(self) -> int:
        """Return the number of tokens in addition to one for each decode: those of prompts and drafts, and
        recomputed ones."""
        return self.tokens - self.decodes

    @property
    def prompt_tokens(self) -> int:
        """Return the number of tokens in pieces of prompts."""
        return self.tokens - self.decode_tokens

    @property
    def further_decode_tokens(self) -> int:
        """Return the number of tokens of decodes in addition to one for each: drafts and recomputed ones."""
        return self.drafts + self.recomputed

    @property
    def context(self) -> int:
        """Return the tokens that the step's sequences read, each sequence up to its last token in the step."""
        decodes = 0 if self.decode_set is None else self.decode_set.context
        return decodes + self.drafts + sum(piece.last for piece in self.prompts)

    def clear(self, number: int) -> None:
        """Start a new step."""
        self.number = number
        self.tokens = self.sequences = self.rows = self.decodes = self.drafts = self.recomputed = 0
        self.prompts.clear()
        self.mask_of.clear()
        self.late.clear()
        self.launches.clear()

    def list_launches(self) -> list[StepLaunch]:
        """Return the submissions of the step, in order."""
        return self.launches or [self.make_launch("decode")]

    def make_launch(self, role: TokenRole) -> StepLaunch:
        """Return one submission of all tokens."""
        return StepLaunch(role, self, make_ordinals(0, self.tokens), make_ordinals(0, self.rows))

    def take_sequences(self, taken: np.ndarray, role: TokenRole, slots: Slots) -> StepLaunch:
        """Return a submission of these sequences, bool [sequences], with the changes of their pages. Changes for
        slots that are not in the step are in the submission that has its first sequence."""
        of_token = taken[self.sequence[: self.tokens]]
        tokens = np.flatnonzero(of_token)
        rows = np.flatnonzero(of_token[self.logit_row[: self.rows]])
        row_of = {row: index for index, row in enumerate(rows.tolist())}
        part = copy(self)
        part.launches, part.laid_out = [], None
        for name in ("token_id", "position", "slot"):
            setattr(part, name, getattr(self, name)[tokens])
        for name in ("row_slot", "row_position"):
            setattr(part, name, getattr(self, name)[rows])
        part.sequence = (np.cumsum(taken, dtype=np.int32) - 1)[self.sequence[tokens]]
        part.logit_row = (np.cumsum(of_token, dtype=np.int32) - 1)[self.logit_row[rows]]
        for name in ("state_source", "state_target"):
            setattr(part, name, getattr(self, name)[: self.sequences][taken])
        part.mask_of = {row_of[row]: words for row, words in self.mask_of.items() if row in row_of}
        part.late = [row_of[row] for row in self.late if row in row_of]
        decodes = np.flatnonzero(taken[: self.decodes])
        assert self.decode_set is not None
        part.decode_set = slots.make_set(self.decode_set.slots[decodes])
        part.prompts = [piece for piece, kept in zip(self.prompts, taken[self.decodes :], strict=False) if kept]
        part.tokens, part.sequences, part.rows, part.decodes = (
            len(tokens),
            int(taken.sum()),
            len(rows),
            len(decodes),
        )
        decode_rows = int(np.count_nonzero(rows < self.decode_rows))
        part.drafts = decode_rows - part.decodes
        part.recomputed = int(np.count_nonzero(tokens < self.decode_tokens)) - decode_rows
        others = set(self.slot[: self.tokens].tolist()) - set(part.slot.tolist())
        leads = bool(taken[0])
        present = set(part.slot.tolist())
        part.table_changes = [
            {
                entry: page
                for entry, page in changes.items()
                if (slot := entry // slots.pages_per_slot) in present or (leads and slot not in others)
            }
            for changes in self.table_changes
        ]
        if not leads:
            part.copies = []
        return StepLaunch(role, part, tokens, rows)

    def list_undrawn(self, nonfinite: np.ndarray) -> list[int]:
        """Return the late rows that are still to be sampled, without those that have non-finite logits, which
        fail. `nonfinite`: see Drawn.
        """
        return [row for row in self.late if not 0 <= nonfinite[row] < NO_CANDIDATE]

    def take_rows(self, rows: np.ndarray, slots: Slots) -> StepPlan:
        """Return a plan with these rows only, at most one of each slot, and all prompts whose rows are among
        them or that have none."""
        taken, decodes = copy(self), rows[rows < self.decode_rows]
        drawing = [piece for piece in self.prompts if piece.draws]
        gone = set(range(len(drawing))) - set((rows[len(decodes) :] - self.decode_rows).tolist())
        omitted = {id(drawing[index]) for index in gone}
        taken.prompts = [piece for piece in self.prompts if id(piece) not in omitted]
        taken.late = np.flatnonzero(np.isin(rows, self.late)).tolist()
        taken.set_rows(self.logit_row[rows], self.row_slot[rows], self.row_position[rows], len(decodes), slots)
        return taken

    def set_rows(
        self, logit_row: np.ndarray, slot: np.ndarray, position: np.ndarray, decodes: int, slots: Slots
    ) -> None:
        """Replace the rows; the first `decodes` are of decoding requests, one of each."""
        self.rows, self.decodes, self.drafts, self.recomputed = len(slot), decodes, 0, 0
        self.logit_row, self.row_slot, self.row_position = logit_row, slot, position
        self.decode_set = slots.make_set(slot[:decodes])

    def add_sequence(
        self, slot: int, tokens: Sequence[int] | np.ndarray, first: int, rows: tuple[int, int]
    ) -> int:
        """Append a sequence's next tokens from position `first`. `rows`: the recurrent-state rows that it
        reads and writes. Return the index of its first token in the step."""
        index, count = self.tokens, len(tokens)
        self.token_id[index : index + count] = tokens
        self.position[index : index + count] = make_ordinals(first, first + count)
        self.slot[index : index + count] = slot
        self.sequence[index : index + count] = self.sequences
        self.state_source[self.sequences], self.state_target[self.sequences] = rows
        self.tokens += count
        self.sequences += 1
        return index

    def add_row(self, token: int, slot: int, position: int) -> None:
        """Request the logits of a token of the step, by its index; `position`: of the token sampled from
        them."""
        row = self.rows
        self.logit_row[row], self.row_slot[row], self.row_position[row] = token, slot, position
        self.rows += 1


def make_ordinals(first: int, last: int) -> np.ndarray:
    """Return the integers [first, last) as i32."""
    return ORDINALS[first:last] if last <= len(ORDINALS) else np.arange(first, last, dtype=np.int32)
