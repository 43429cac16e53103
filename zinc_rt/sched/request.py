"""A request and the states it goes through."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from zinc_rt.ir.slot_record import column
from zinc_rt.sched.kv.capsule import Capsule
from zinc_rt.sched.kv.kv_cache import Holding
from zinc_rt.sched.kv.prefix import Namespace
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.token_mask import TokenMask

POSITION, GENERATED, LAST_TOKEN = column("position"), column("generated"), column("last_token")


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


@dataclass(slots=True, eq=False)
class Request:
    """One choice of a request: a sequence of its own. `row`: i32 [64], its slot record; the slot's own while it is
    bound, so that what it says is of now.

    `tokens`, i32: the prompt, and what was made until it last left a slot; a bound one's are in the slot's
    history. `digests`: of the pages that are known. `slot` is -1 and `holding` None where it has none.
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
    def made(self) -> int:
        return int(self.row[GENERATED])

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in place."""
        return int(self.row[POSITION])

    @property
    def length(self) -> int:
        """Tokens known: the prompt and what was made."""
        return self.prompt + int(self.row[GENERATED])

    @property
    def held(self) -> bool:
        return self.held_ns is not None

    @property
    def effective(self) -> Priority:
        """Its class, one up where it waited so long."""
        return Priority(self.priority - 1) if self.lifted and self.priority else self.priority

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], (
            f"request {self.number}: {self.state.value} does not become {state.value}"
        )
        self.state = state
