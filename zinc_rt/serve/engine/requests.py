"""The messages between request handlers and the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.token_mask import TokenMask


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request for a model, with the prompt as token ids.

    `tenant` and `session` are names, "" for the first tenant and for no session. `priority` None: the
    tenant's default. `deadline_seconds`: from now. `cache_salt`: share cached prefixes only with requests
    that have the same salt. `fail_fast`: refuse at once if the expected wait exceeds the deadline. `grammar`:
    constrains each choice. `drafts`: the most draft tokens in a step, None for the model's. `decoded_from`: see
    NewRequest.
    """

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
    drafts: int | None = None
    decoded_from: int | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The output of one or more steps for choice `index`: its new tokens and, if requested, their logprobs.
    `finish_reason` is set once, in the last. `embedding`: of an embedding model, f32 [D], in the last."""

    index: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: str | None = None
    embedding: np.ndarray | None = None
