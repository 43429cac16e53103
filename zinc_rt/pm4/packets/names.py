"""What values of fields are called that several packets share. Source: PAL's MEC packet headers."""

from __future__ import annotations

CACHE_POLICY = {0: "lru", 1: "stream", 2: "noa", 3: "bypass"}  # gfx11
TEMPORAL = {0: "rt", 1: "nt", 2: "ht", 3: "lu"}  # gfx12
CACHE = (CACHE_POLICY, TEMPORAL)
CACHE_LABELS = ("cache_policy", "temporal")

FUNCTIONS = {0: "always", 1: "<", 2: "<=", 3: "==", 4: "!=", 5: ">=", 6: ">"}  # unsigned
