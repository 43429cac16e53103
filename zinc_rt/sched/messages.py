"""What crosses between threads: requests as they arrive, and what a step made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.ir.slot_record import STOP_IDS, SlotFlag, dwords, free_records
from zinc_rt.sched.kv.capsule import Capsule
from zinc_rt.sched.kv.prefix import Namespace
from zinc_rt.sched.plan import RowLogprobs
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.sched.token_mask import TokenMask

_NO_NUMBERS = np.empty(0, np.int64)
_NO_CHOICES = np.empty(0, np.int8)
_NO_TOKENS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request as it arrives; `sampling.n` choices of it are made. `digests`: of its prompt's pages, computed by
    whoever submits it; `end_tokens`: the model's own. The last `made` of `tokens` were made before, by the request
    that `capsule` was taken of, as its `choice`. `session`: a number, 0 for none. `mask`: of its answers, as
    far as `made` goes; each choice gets a fork."""

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
    made: int = 0
    choice: int = 0  # of the first
    mask: TokenMask | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What a step made: of each row the request's number, its choice and the token, and (number, choice, reason)
    of what ended."""

    step: int
    requests: np.ndarray = field(default_factory=lambda: _NO_NUMBERS)  # i64
    choice: np.ndarray = field(default_factory=lambda: _NO_CHOICES)  # i8
    tokens: np.ndarray = field(default_factory=lambda: _NO_TOKENS)  # i32
    logprobs: RowLogprobs | None = None
    ended: tuple[tuple[int, int, str], ...] = ()


def record_of(new: NewRequest, sampling: Sampling, priority: Priority, choice: int) -> np.ndarray:
    """The request's slot record, i32 [64], but for what its slot decides."""
    records = free_records(1)
    record = records[0]
    record["tenant"], record["request"] = new.tenant, new.number
    record["session"] = new.session & 0xFFFF_FFFF  # for who reads a record; pins go by the whole number
    record["priority"] = priority
    record["prompt_len"], record["limit"] = len(new.tokens) - new.made, sampling.max_tokens
    record["generated"], record["min_tokens"] = new.made, sampling.min_tokens
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
    words: np.ndarray = dwords(records)[0]
    return words
