"""How close two runs must be, by what made each: one table, each row with its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zinc_rt.validate.measure import Limit

SAME = Limit(bits=True, why="one ordering on two tiers, or two ways through one: the same bits")
# llama.cpp sums in another order: measured against it, float64 is within 5.4e-5 of its logits, and this leaves
# room for float32 on both sides. Gemma 4's residual stream is an order of magnitude larger.
GOLDEN = Limit(max_abs=3e-4, why="float32 in two summation orders")
GOLDEN_GEMMA4 = Limit(max_abs=1e-3, why="float32 in two summation orders, larger activations")
# Beyond the plain limit and yet no fault, where every layer alone keeps it (validate/drift.py). The most seen
# against llama.cpp at real depth (30 layers of Gemma 4 MoE, 24 of Mamba, 330 tokens of DeltaNet) is about 5e-4.
DRIFT = Limit(rel_rms=3e-3, why="drift: each layer on its own is within the limit")
ORDERINGS = Limit(rel_rms=1e-3, why="two arithmetic orderings of the same weights")
# Activations quantised to 8 bits: rounding flips dominate, only the typical distance means anything.
QUANTISED = Limit(why="shown, no gate: activations are re-quantised, one rounding flip moves a whole token")
QUANTISED_FACTOR, QUANTISED_OFFSET = 1.5, 0.1


def against_golden(architecture: str, ordering: str, recorded: str = "") -> Limit:
    """`recorded`: the ordering the golden was computed in, where this runtime made it."""
    if ordering == recorded == "float32-dequant":  # BLAS picks its summation order by machine and shape
        return ORDERINGS
    if recorded:
        return between(ordering, recorded)
    if ordering == "canonical-1-q8":
        return QUANTISED
    return GOLDEN_GEMMA4 if architecture == "gemma4" else GOLDEN


OF_PEAK = 2.0**-18


def at_scale(limit: Limit, want: np.ndarray) -> Limit:
    """For values inside the model, where logits are of order one and these of any size: no tighter than some dozen
    roundings of the largest reference value, whose sums both sides made in their own order."""
    floor = OF_PEAK * float(np.abs(want).max(initial=0.0))
    if limit.max_abs is None or not floor > limit.max_abs:
        return limit
    return replace(limit, max_abs=floor, why=f"{limit.why}: {OF_PEAK:.2g} of the largest value")


def between(ordering: str, reference: str) -> Limit:
    if ordering == reference:
        return SAME
    return QUANTISED if "canonical-1-q8" in (ordering, reference) else ORDERINGS
