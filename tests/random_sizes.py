"""Sizes of tiny models at random: what tests of one size fix, at many."""

from __future__ import annotations

import random

from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES


def random_sizes(architecture: str, seed: int) -> dict[str, int]:
    rng = random.Random(f"{architecture} {seed}")
    row = ARCHITECTURES[architecture]
    heads = rng.choice([1, 2, 3, 4, 6, 8])
    head_dim = rng.choice([8, 16, 24, 32, 40])
    return {
        "seed": seed,
        "hidden": heads * head_dim if row.fixed_head_dim else rng.choice([32, 64, 96, 128, 256]),
        "heads": heads,
        "kv_heads": rng.choice([count for count in range(1, heads + 1) if heads % count == 0]),
        "head_dim": head_dim,
        "vocab": rng.choice([400, 512, 1000]),
        "layers": max(row.fewest_layers, rng.choice([1, 2, 3, 5, 7])),
        "ffn": rng.choice([32, 64, 160, 256]),
        "experts": rng.choice([2, 4, 8, 16]),
        "experts_used": rng.choice([1, 2]),
    }
