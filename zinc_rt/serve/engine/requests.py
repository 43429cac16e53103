"""What a handler asks of the engine, and what comes back while it is made."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.token_mask import TokenMask


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt for a model, as token ids. `tenant` and `session` by name, "" for the first and for none;
    `priority` None: the tenant's own. `deadline_seconds` from now. `cache_salt` narrows the prefix cache to those
    who name the same. `fail_fast`: refuse at once where the wait is longer than the deadline. `grammar`: what each
    choice has to follow."""

    model: str
    tokens: tuple[int, ...]
    sampling: Sampling
    tenant: str = ""
    session: str = ""
    priority: Priority | None = None
    deadline_seconds: float | None = None
    cache_salt: str = ""
    fail_fast: bool = False
    request_id: str = ""
    grammar: TokenMask | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a step, or several, made of one answer: of choice `index`, its new tokens and, where they were wanted,
    their logprobs. `finish_reason` comes once, with the last."""

    index: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: str | None = None
