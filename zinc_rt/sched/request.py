"""A request and the states it goes through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from zinc_rt.sched.kv_cache import Holding
from zinc_rt.sched.prefix import Namespace
from zinc_rt.sched.tenant import Priority


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


RUNNING = frozenset({State.PREFILL, State.DECODE})
QUEUED = frozenset({State.WAITING, State.PARKED, State.EVICTED})
TERMINAL = frozenset({State.FINISHED, State.CANCELLED, State.EXPIRED, State.FAILED})
_STOPPED = frozenset({State.CANCELLED, State.EXPIRED, State.FAILED})
MOVES = {
    State.WAITING: frozenset({State.PREFILL}) | _STOPPED,
    State.PREFILL: frozenset({State.DECODE, State.PARKED, State.EVICTED, State.FINISHED}) | _STOPPED,
    State.DECODE: frozenset({State.PARKED, State.EVICTED, State.FINISHED}) | _STOPPED,
    State.PARKED: RUNNING | {State.EVICTED} | _STOPPED,
    State.EVICTED: frozenset({State.PREFILL}) | _STOPPED,
    **dict.fromkeys(TERMINAL, frozenset()),
}


@dataclass(slots=True, eq=False)
class Request:
    """`tokens`: the prompt, then what was made; `limit`: so many are made at most; `digests`: of the prompt's
    pages.

    `slot` is -1 and `holding` None where it has none.
    """

    number: int
    tenant: int
    priority: Priority
    tokens: list[int]
    prompt: int
    limit: int
    within: Namespace
    digests: bytes
    arrived_ns: int
    seed: int = 0
    deadline_ns: int | None = None
    end_tokens: frozenset[int] = frozenset()
    state: State = State.WAITING
    held: bool = False  # nobody reads what it makes: it keeps its slot and is left out
    slot: int = -1
    holding: Holding | None = None
    bound_made: int = 0  # what it had made when it was bound
    queued_ns: int = 0  # since when it waits
    lifted: bool = False  # up a class for having waited
    left_out: int = 0  # steps in a row without a page
    delivered: int = 0
    reason: str = ""  # why it ended

    @property
    def made(self) -> int:
        return len(self.tokens) - self.prompt

    @property
    def computed(self) -> int:
        return 0 if self.holding is None else self.holding.computed

    @property
    def effective(self) -> Priority:
        """Its class, one up where it waited so long."""
        return Priority(max(0, self.priority - self.lifted))

    def move(self, state: State) -> None:
        assert state in MOVES[self.state], (
            f"request {self.number}: {self.state.value} does not become {state.value}"
        )
        self.state = state
