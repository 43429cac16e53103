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
from zinc_rt.model.pooling import Pooler
from zinc_rt.sched.mixes.mix import MixedRequest, SeededMask
from zinc_rt.sched.sampling import Sampling

IN_PROMPT = -(1 << 31)  # bit 31 of a token's count


@dataclass(slots=True)
class SoloAnswer:
    """One choice of a request. `rows[i]` are the logits that `tokens[i]` was sampled from, f32 [V]."""

    first: int  # position of the first token drawn
    tokens: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    embedding: np.ndarray | None = None  # of an embedding model, whose row is the last token's hidden state


def embed_solo(engine: Engine, request: MixedRequest) -> SoloAnswer:
    """Compute the embedding of the request's prompt without any other request."""
    sequence = engine.open()
    try:
        hidden = engine.extend(sequence, request.prompt)
    finally:
        engine.release(sequence)
    embedding = Pooler(engine.model.pooling, engine.model.rank_head).pool(hidden)
    return SoloAnswer(len(request.prompt), [int(hidden[-1].argmax())], [hidden[-1]], embedding)


def answer_solo(engine: Engine, request: MixedRequest, choice: int) -> SoloAnswer:
    """Compute the request without any other: its prompt in one pass, then token by token."""
    answer, sampling = SoloAnswer(len(request.prompt)), request.sampling
    mask = request.make_mask(engine.model.vocab)
    sequence = engine.open()
    try:
        logits = engine.extend(sequence, request.prompt, rows="last", role="prompt")[-1]
        while True:
            answer.rows.append(logits)
            token = _draw_token(request, choice, logits, answer.tokens, mask)
            answer.tokens.append(token)
            if len(answer.tokens) >= sampling.max_tokens or token in sampling.stop_token_ids:
                return answer
            if mask is not None:
                mask.accept(token)
            logits = engine.extend(sequence, answer.tokens[-1:])[-1]
    finally:
        engine.release(sequence)


def _draw_token(
    request: MixedRequest, choice: int, logits: np.ndarray, generated: Sequence[int], mask: SeededMask | None
) -> int:
    """Sample the token with the oracle's kernels, from operands that are computed without a scheduler."""
    math, sampling = arithmetic("canonical-1"), request.sampling
    position = np.array([len(request.prompt) + len(generated)], np.int32)
    first = np.zeros(1, np.int32)
    counts = np.bincount(generated, minlength=logits.size).astype(np.int32)
    counts[list(set(request.prompt))] |= np.int32(IN_PROMPT)
    biases = sorted(sampling.logit_bias.items())
    words = np.zeros((1, -(-logits.size // 32)), np.int32)
    if mask is not None:
        mask.fill(words[0])
    logits = logits_adjust(
        math,
        logits[None],
        first,
        position,
        view_dwords(_record(sampling, len(request.prompt))),
        counts[None],
        np.array([-1], np.int32),
        np.array([[token for token, _ in biases]], np.int32),
        np.array([[bias for _, bias in biases]], np.float32),
        words if mask is not None else None,
        first,
    )[0]
    seed = sampling.seed or 0
    halves = np.array([[seed & 0xFFFFFFFF, seed >> 32]], np.uint32).view(np.int32)
    filters = np.array([[sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p]], np.float32)
    return int(sample(math, logits[None], halves, filters, np.array([choice], np.int32), position)[0])


def _record(sampling: Sampling, prompt: int) -> np.ndarray:
    record = free_records(1)
    record["repetition"], record["presence"] = sampling.repetition_penalty, sampling.presence_penalty
    record["frequency"], record["penalty_row"] = sampling.frequency_penalty, 0
    record["bias_row"], record["bias_count"] = 0, len(sampling.logit_bias)
    record["prompt_len"], record["min_tokens"] = prompt, sampling.min_tokens
    stops = sorted(sampling.stop_token_ids)
    record["stop_count"], record["stop_ids"][0, : len(stops)] = len(stops), stops
    record["flags"] = (SlotFlag.PENALTIES if sampling.penalised else 0) | (
        SlotFlag.BIAS if sampling.logit_bias else 0
    )
    return record
