"""Sampled tokens, derived without this runtime's sampler: llama.cpp filters the candidates, the Philox
code here selects one.

llama.cpp's own last step uses another random generator, so only the filtered candidates and their
probabilities are taken from it. `python3 ci/run.py golden import` records the draws, `zinc-rt validate`
repeats them from its own logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np

from zinc_rt.host.errors import CheckFailed, InputError
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.sample import sample
from zinc_rt.sched.sampling import Sampling

CLEAR = 2e-3  # of the whole: a draw nearer than this to the next token would hang on rounding
TRIES = 16  # seeds, for each way to sample


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampling task: the logits of position `row` of the prompt, and the sampling parameters."""

    row: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    choice: int
    position: int
    token: int = -1  # the answer

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


WAYS = (  # temperature, top_k, top_p, min_p
    (1.0, 0, 1.0, 0.0),
    (0.7, 5, 1.0, 0.0),
    (1.3, 0, 0.8, 0.0),
    (1.0, 0, 1.0, 0.05),
    (0.9, 40, 0.9, 0.02),
    (2.5, 3, 0.5, 0.5),
)


def read_draws(meta: Mapping[str, Any], where: str) -> list[Draw]:
    """Return the draws recorded in a golden. Raises InputError for entries that this version cannot parse."""
    try:
        return [Draw(**item) for item in meta.get("draws", ())]
    except TypeError as error:
        raise InputError(f"{where}: cannot parse the draws in meta: {error}") from error


def record_draws(llama: ModuleType, logits: np.ndarray, positions: list[int]) -> Iterator[Draw]:
    """Return draws to record. logits f32 [R, V] of these positions of the prompt. A few draws with each
    kind of parameters; draws too close to the next token are omitted."""
    for index, (row, position) in enumerate(zip(logits, positions, strict=True)):
        for way, (temperature, top_k, top_p, min_p) in enumerate(WAYS):
            ids, likely = _filter_tokens(llama, row, temperature, top_k, top_p, min_p)
            for turn in range(TRIES):
                seed = (0x9E3779B97F4A7C15 * (1 + turn + TRIES * (way + len(WAYS) * index))) % (1 << 64)
                draw = Draw(position, temperature, top_k, top_p, min_p, seed, turn, position + 1)
                token = _draw_token(ids, likely, draw)
                if token is not None:
                    yield Draw(**{**draw.as_dict(), "token": token})
                    break


def _filter_tokens(
    llama: ModuleType, logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids that pass llama.cpp's filters, likeliest first, and their probabilities as f64."""
    data = (llama.llama_token_data * len(logits))()
    for token, logit in enumerate(logits):
        data[token].id, data[token].logit = token, float(logit)
    candidates = llama.llama_token_data_array(data, len(logits), -1, False)
    chain = [llama.llama_sampler_init_temp(temperature), llama.llama_sampler_init_top_k(top_k or len(logits))]
    chain += [llama.llama_sampler_init_min_p(min_p, 1)] if min_p else []
    chain += [llama.llama_sampler_init_top_p(top_p, 1)] if top_p < 1 else []
    for sampler in chain:
        llama.llama_sampler_apply(sampler, candidates)
        llama.llama_sampler_free(sampler)
    left = [candidates.data[i] for i in range(candidates.size)]
    ids, kept = np.array([item.id for item in left]), np.array([item.logit for item in left], np.float64)
    order = np.lexsort((ids, -kept))
    weight = np.exp(kept[order] - kept.max())
    return ids[order], weight / weight.sum()


def _draw_token(ids: np.ndarray, likely: np.ndarray, draw: Draw) -> int | None:
    """Return the sampled token, or None if the draw is within CLEAR of a boundary between two tokens."""
    key = (draw.seed & 0xFFFFFFFF, draw.seed >> 32)
    location = (compute_philox((draw.choice, draw.position, 0, 0), key)[0] >> 8) / 2**24
    borders = np.cumsum(likely)[:-1]
    if len(borders) and np.abs(borders - location).min() < CLEAR:
        return None
    return int(ids[int((borders <= location).sum())])


def compute_philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Compute Philox4x32-10 with integers, from section 3.3 of Salmon, Moraes, Dror and Shaw, "Parallel
    random numbers: as easy as 1, 2, 3" (SC 2011). Tests compare it with the known answers of the
    authors' Random123."""
    left, right = (counter[0], counter[2]), (counter[1], counter[3])
    for turn in range(10):
        round_key = [
            (word + turn * weyl) % 2**32 for word, weyl in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)
        ]
        products = (left[0] * 0xD2511F53, left[1] * 0xCD9E8D57)
        high, low = [p // 2**32 for p in products], [p % 2**32 for p in products]
        left = (high[1] ^ right[0] ^ round_key[0], high[0] ^ right[1] ^ round_key[1])
        right = (low[1], low[0])
    return left[0], right[0], left[1], right[1]


def draw_reference_token(sampling: Sampling, logits: np.ndarray, *, choice: int = 0, position: int) -> int:
    """Sample a token from logits f32 [V] with the reference SAMPLE kernel, determined by seed (none: 0),
    choice and position."""
    if np.isnan(logits).any():
        raise CheckFailed(
            f"position {position}: logit {int(np.isnan(logits).argmax())} is not a number",
            next="zinc-rt validate locates the layer in which it starts",
        )
    seed = sampling.seed or 0
    halves = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)
    return int(
        sample(
            arithmetic("canonical-1"),
            logits[None],
            halves[None],
            np.array([[sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p]], np.float32),
            np.array([choice], np.int32),
            np.array([position], np.int32),
        )[0]
    )
