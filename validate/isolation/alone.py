"""The solo run of a request: the rows of logits and the tokens that every mix must reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.ir.slot_record import SlotFlag, free_records, view_dwords
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.logits_adjust import logits_adjust
from zinc_rt.kernels.reference.sample import sample
from zinc_rt.sched.mixes.mix import MixedRequest
from zinc_rt.sched.sampling import Sampling

IN_PROMPT = -(1 << 31)  # bit 31 of a token's count


@dataclass(slots=True)
class SoloAnswer:
    """One choice of a request. `rows[i]` are the logits that `tokens[i]` was sampled from, f32 [V]."""

    first: int  # position of the first token drawn
    tokens: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)


def answer_solo(engine: Engine, request: MixedRequest, choice: int) -> SoloAnswer:
    """Compute the request without any other: its prompt in one pass, then token by token."""
    answer = SoloAnswer(len(request.prompt))
    sequence = engine.open()
    try:
        logits = engine.extend(sequence, request.prompt, rows="last")[-1]
        while True:
            answer.rows.append(logits)
            answer.tokens.append(_draw_token(request, choice, logits, answer.tokens))
            if len(answer.tokens) >= request.sampling.max_tokens:
                return answer
            logits = engine.extend(sequence, answer.tokens[-1:])[-1]
    finally:
        engine.release(sequence)


def _draw_token(request: MixedRequest, choice: int, logits: np.ndarray, generated: Sequence[int]) -> int:
    """Sample the token with the oracle's kernels, from operands that are computed without a scheduler."""
    math, sampling = arithmetic("canonical-1"), request.sampling
    position = np.array([len(request.prompt) + len(generated)], np.int32)
    slot = np.zeros(1, np.int32)
    if sampling.penalised:
        counts = np.bincount(generated, minlength=logits.size).astype(np.int32)
        counts[list(set(request.prompt))] |= np.int32(IN_PROMPT)
        logits = logits_adjust(
            math, logits[None], slot, position, view_dwords(_record(sampling, len(request.prompt))), counts[None],
            np.array([-1], np.int32), None, None, None, None,
        )[0]  # fmt: skip
    seed = sampling.seed or 0
    halves = np.array([[seed & 0xFFFFFFFF, seed >> 32]], np.uint32).view(np.int32)
    filters = np.array([[sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p]], np.float32)
    return int(sample(math, logits[None], halves, filters, np.array([choice], np.int32), position)[0])


def _record(sampling: Sampling, prompt: int) -> np.ndarray:
    record = free_records(1)
    record["repetition"], record["presence"] = sampling.repetition_penalty, sampling.presence_penalty
    record["frequency"], record["flags"] = sampling.frequency_penalty, SlotFlag.PENALTIES
    record["penalty_row"], record["prompt_len"] = 0, prompt
    return record
