"""SAMPLE: sample a token, reproducibly from (seed, choice, position)."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int], rounds: int = 10) -> tuple[int, ...]:
    """Compute Philox4x32-10: four 32-bit words from a 128-bit counter and a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        low, high = PHILOX_MULTIPLIERS[0] * c0, PHILOX_MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & MASK, (low >> 32) ^ c3 ^ k1, low & MASK
        k0, k1 = (k0 + PHILOX_WEYL[0]) & MASK, (k1 + PHILOX_WEYL[1]) & MASK
    return c0, c1, c2, c3


def sample(
    math: Arithmetic,
    logits: np.ndarray,
    seed: np.ndarray,
    sampling: np.ndarray,
    sample_choice: np.ndarray,
    sample_position: np.ndarray,
) -> np.ndarray:
    """Sample i32 [L] from logits [L, V], seed i32 [L, 2], sampling [L, 4] as (temperature, top_k, top_p, min_p).

    temperature 0 is argmax; top_k 0, top_p 1 and min_p 0 disable their filter, and no filter removes the best
    candidate. Candidates are stably sorted by falling logit, cut by top_k, min_p, top_p in that order, and the
    first whose running sum exceeds u times the total is drawn, u in [0, 1) being 24 bits of Philox (seed; choice,
    position). choice: the index of the answer to a prompt.
    """
    out = np.empty(len(logits), np.int32)
    for i, row in enumerate(logits):
        temperature, top_k, top_p, min_p = sampling[i]
        if temperature <= 0:
            out[i] = row.argmax()
            continue
        order = np.argsort(-row, kind="stable")
        if top_k > 0:
            order = order[: max(1, int(min(top_k, row.size)))]
        # Subtract first: logits divided by a tiny temperature overflow, and infinity minus infinity is NaN.
        weight = math.exp((row[order] - row[order[0]]) / temperature)
        if min_p > 0:
            kept = weight >= min_p * weight[0]
            kept[0] = True
            weight = weight[kept]
        running = np.add.accumulate(weight)  # in order, by definition
        if top_p < 1:
            enough = int(np.searchsorted(running, top_p * running[-1], side="left")) + 1
            running = running[:enough]
        words = [int(word) & MASK for word in (*seed[i], sample_choice[i], sample_position[i])]
        bits = philox4x32((words[2], words[3], 0, 0), (words[0], words[1]))[0]
        u = np.float32((bits >> 8) * 2.0**-24)
        drawn = int(np.searchsorted(running, u * running[-1], side="right"))
        out[i] = order[min(drawn, len(running) - 1)]
    return out
