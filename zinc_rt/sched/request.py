"""A request and its states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from zinc_rt.ir.slot_record import STOP_IDS, SlotFlag, find_column, free_records, view_dwords
from zinc_rt.sched.kv.capsule import Capsule
from zinc_rt.sched.kv.kv_cache import Holding
from zinc_rt.sched.kv.prefix import Namespace
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.token_mask import TokenMask

POSITION, GENERATED, LAST_TOKEN = find_column("position"), find_column("generated"), find_column("last_token")
FLAGS = find_column("flags")


class State(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    PARKED = "parked"  # lost its slot, keeps its pages and its state
    EVICTED = "evicted"  # lost its pages too: computed again from its tokens
    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"

    __hash__ = object.__hash__  # Enum's own is Python, and a request's moves are looked up in each step


RUNNING = frozenset({State.PREFILL, State.DECODE})
QUEUED = frozenset({State.WAITING, State.PARKED, State.EVICTED})
TERMINAL = frozenset({State.FINISHED, State.CANCELLED, State.EXPIRED, State.FAILED})
_STOPPED = frozenset({State.CANCELLED, State.EXPIRED, State.FAILED})
MOVES = {
    State.WAITING: frozenset({State.PREFILL, State.PARKED}) | _STOPPED,  # parked: a choice that was forked
    State.PREFILL: frozenset({State.DECODE, State.PARKED, State.EVICTED, State.FINISHED}) | _STOPPED,
    State.DECODE: frozenset({State.PARKED, State.EVICTED, State.FINISHED}) | _STOPPED,
    State.PARKED: RUNNING | {State.EVICTED} | _STOPPED,
    State.EVICTED: frozenset({State.PREFILL}) | _STOPPED,
    **dict.fromkeys(TERMINAL, frozenset()),
}


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A new request with `sampling.n` choices.

    `digests`: of its prompt's pages, computed by the submitter; `end_tokens`: the model's own. The last
    `generated` of `tokens` were generated earlier, as its `choice`, by the request from which `capsule` was
    created. `session`: a number, 0 for none. `mask`: constrains its answers, with its state after `generated`
    tokens; each choice gets a fork. `drafts`: the most draft tokens in a step, None for the scheduler's limit.
    `decoded_from`: the position of the first token in the ordering of decodes, None for the end of the prompt;
    later for an answer whose tokens are given, which are those of a prompt.
    """

    number: int
    tenant: int
    tokens: Sequence[int] | np.ndarray
    within: Namespace
    sampling: Sampling = field(default_factory=Sampling)
    priority: Priority | None = None  # lower than its tenant's
    deadline_ns: int | None = None
    end_tokens: frozenset[int] = frozenset()
    digests: bytes | None = None
    session: int = 0
    capsule: Capsule | None = None
    generated: int = 0
    choice: int = 0  # of the first
    mask: TokenMask | None = None
    drafts: int | None = None
    decoded_from: int | None = None


@dataclass(slots=True, eq=False)
class Request:
    """A choice of a request, which is a separate sequence. `row`: i32 [64], its slot record, which is the
    slot's live record while it is bound.

    `tokens`, i32: the prompt and the tokens generated before it last left a slot; those of a bound request
    are in the slot's history. `digests`: of the known pages. `slot` is -1 and `holding` None if it has none.
    """

    number: int
    tenant: int
    priority: Priority
    tokens: np.ndarray
    prompt: int
    sampling: Sampling
    within: Namespace
    digests: bytes
    row: np.ndarray
    arrived_ns: int
    choice: int = 0
    session: int = 0
    deadline_ns: int | None = None
    end_tokens: frozenset[int] = frozenset()  # each ends its answer
    capsule: Capsule | None = None  # what it goes on from
    mask: TokenMask | None = None  # what may be drawn; it has seen all tokens that were made
    state: State = State.WAITING
    drawn_ns: int = 0  # when its last token was drawn, before it last left a slot; 0: none was
    held_ns: int | None = None  # since when nobody reads what it makes: it is left out
    slot: int = -1
    holding: Holding | None = None
    bound_made: int = 0  # what it had made when it was bound
    queued_ns: int = 0  # since when it waits
    ran_ns: int = 0  # when its prompt last went on
    ticket: int = -1  # of its place in a queue
    lifted: bool = False  # up a class for having waited
    left_out: int = 0  # steps in a row without a page
    reached: int = 0  # tokens that were ever computed for it
    cached: int = 0  # tokens of its prompt that the prefix cache had, when it was first bound
    delivered: int = 0  # made when it last left a slot
    failures: int = 0  # steps that failed while it was in them
    siblings: list[Request] = field(default_factory=list)  # choices that begin when its prompt is computed
    reason: str = ""  # why it ended
    drafts: int | None = None  # the most draft tokens in a step, None: the scheduler's limit
    # position of the first token in the ordering of decodes; None: prompts and decodes have one ordering
    decoded_from: int | None = None
    most_placed: int = field(
        init=False
    )  # tokens that are ever computed for it: the last is drawn, and not computed

    def __post_init__(self) -> None:
        self.most_placed = self.prompt + self.sampling.max_tokens - 1

    @property
    def limit(self) -> int:
        return self.sampling.max_tokens

    @property
    def seed(self) -> int:
        assert self.sampling.seed is not None
        return self.sampling.seed

    @property
    def generated(self) -> int:
        return int(self.row[GENERATED])

    @property
    def computed(self) -> int:
        """Return the number of tokens with computed keys and values."""
        return int(self.row[POSITION])

    @property
    def length(self) -> int:
        """Return the number of known tokens: prompt and generated."""
        return self.prompt + int(self.row[GENERATED])

    @property
    def held(self) -> bool:
        return self.held_ns is not None

    @property
    def effective(self) -> Priority:
        """Return its class, promoted by one after a long wait."""
        return Priority(self.priority - 1) if self.lifted and self.priority else self.priority

    def set_backpressure(self, on: bool) -> None:
        """Set in its record whether the device skips its rows."""
        if on:
            self.row[FLAGS] |= SlotFlag.BACKPRESSURE
        else:
            self.row[FLAGS] &= ~SlotFlag.BACKPRESSURE

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], (
            f"request {self.number}: {self.state.value} does not become {state.value}"
        )
        self.state = state


MOST = 1 << 20  # ids beyond any vocabulary


def list_end_tokens(sampling: Sampling, of_model: frozenset[int]) -> frozenset[int]:
    """Return the tokens that end an answer with this sampling."""
    own = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else of_model)
    return frozenset(token for token in own if 0 <= token < MOST)


class EndTokens:
    """A count of the bound requests by end token id. Few tokens are end tokens, so only their rows are
    checked."""

    def __init__(self) -> None:
        self._users = np.zeros(1, np.int32)  # the last is of every larger id: nobody's

    def add(self, request: Request) -> None:
        """Count the end tokens of a newly bound request."""
        own = request.end_tokens
        if own and max(own) + 2 > len(self._users):
            self._users = np.concatenate([self._users, np.zeros(max(own) + 2 - len(self._users), np.int32)])
        for token in own:
            self._users[token] += 1

    def remove(self, request: Request) -> None:
        for token in request.end_tokens:
            self._users[token] -= 1

    def rows(self, tokens: np.ndarray) -> list[int]:
        """Return the rows whose token is an end token of any bound request."""
        hits: list[int] = self._users.take(tokens, mode="clip").nonzero()[0].tolist()
        return hits

    def is_end(self, request: Request, token: int) -> bool:
        """Return whether the token ends the request's answer at its current length."""
        return token in request.end_tokens and request.generated >= request.sampling.min_tokens


def make_record(new: NewRequest, sampling: Sampling, priority: Priority, choice: int) -> np.ndarray:
    """Return the request's slot record, i32 [64], without the fields that the slot determines."""
    records = free_records(1)
    record = records[0]
    record["tenant"], record["request"] = new.tenant, new.number
    record["session"] = new.session & 0xFFFF_FFFF  # for who reads a record; pins go by the whole number
    record["priority"] = priority
    record["prompt_len"], record["limit"] = len(new.tokens) - new.generated, sampling.max_tokens
    record["generated"], record["min_tokens"] = new.generated, sampling.min_tokens
    record["temperature"], record["top_k"] = sampling.temperature, sampling.top_k
    record["top_p"], record["min_p"] = sampling.top_p, sampling.min_p
    record["seed"], record["choice"] = sampling.seed, choice
    record["repetition"], record["presence"] = sampling.repetition_penalty, sampling.presence_penalty
    record["frequency"] = sampling.frequency_penalty
    record["bias_count"] = len(sampling.logit_bias)
    record["logprobs"] = -1 if sampling.logprobs is None else sampling.logprobs
    stops = sorted({*sampling.stop_token_ids, *(() if sampling.ignore_eos else new.end_tokens)})[:STOP_IDS]
    record["stop_count"] = len(stops)
    record["stop_ids"][: len(stops)] = stops
    flags = SlotFlag(0)
    for flag, wanted in (
        (SlotFlag.GREEDY, sampling.greedy),
        (SlotFlag.PENALTIES, sampling.penalised),
        (SlotFlag.BIAS, bool(sampling.logit_bias)),
        (SlotFlag.MASK, new.mask is not None),
        (SlotFlag.LOGPROBS, sampling.logprobs is not None),
        (SlotFlag.IGNORE_END, sampling.ignore_eos),
    ):
        flags |= flag if wanted else 0
    record["flags"] = flags
    words: np.ndarray = view_dwords(records)[0]
    return words
