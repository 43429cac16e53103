"""Limits of the difference between two runs, by their arithmetic: one table with a reason in each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from zinc_rt.validate.measure import Limit

BIT_EXACT = Limit(bits=True, why="one ordering on two tiers, or two ways through one: bit-exact")
# llama.cpp sums in another order: measured against it, float64 is within 5.4e-5 of its logits, and this leaves
# room for float32 on both sides. Gemma 4's residual stream is an order of magnitude larger.
GOLDEN = Limit(max_abs=3e-4, why="float32 in two summation orders")
GOLDEN_GEMMA4 = Limit(max_abs=1e-3, why="float32 in two summation orders, larger activations")
# Farther than this is never drift. The most that rounding alone was seen to do is 1.3e-3 (24 layers of Gemma 4).
DRIFT = Limit(rel_rms=5e-3, why="drift: each layer alone is within rounding, and so is their sum")
# Rounding grows along depth by what a model is: 24 layers made 3e-6 of a Llama, 1.3e-3 of a Gemma 4. So a model is
# held to its own growth: how far the oracle's two orderings part at the same place. The layers of 35 goldens
# are 0.3 to 1.4 times that far from llama.cpp.
DRIFT_GROWTH = 4.0
ORDERINGS = Limit(rel_rms=1e-3, why="two arithmetic orderings of the same weights")
# Activations quantised to 8 bits: rounding flips dominate, only the typical distance means anything.
QUANTISED = Limit(why="not a criterion: activations are re-quantised, one rounding flip moves a whole token")
QUANTISED_FACTOR, QUANTISED_OFFSET = 1.5, 0.1


def choose_golden_limit(architecture: str, ordering: str, recorded: str = "") -> Limit:
    """Return the limit against a golden. `recorded` is the ordering the golden was computed in, if this runtime
    created it.
    """
    if ordering == recorded == "float32-dequant":  # BLAS picks its summation order by machine and shape
        return ORDERINGS
    if recorded:
        return choose_tier_limit(ordering, recorded)
    if ordering == "canonical-1-q8":
        return QUANTISED
    return GOLDEN_GEMMA4 if architecture == "gemma4" else GOLDEN


@dataclass(frozen=True, slots=True)
class SoloLimit:
    """Limits of the error of one layer that is fed the reference's input. `healthy` are the maxima observed over
    35 goldens of llama.cpp in both orderings, and over 36 models of 24 layers between the two orderings.

    `spread`, `token`, `head` are RMS errors in `rounding_error(width)`: over all tokens, of the worst token, of
    the logits. A layer's error is relative to its contribution to the stream, the head's to the logits. `gain` is
    the part of the error that is proportional to the value itself: near zero for rounding, dominant for a wrong
    factor.
    """

    spread: float
    token: float
    head: float
    gain: float
    healthy: Mapping[str, float]
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": dict(self.healthy)}


ALONE = SoloLimit(
    spread=1.5,
    token=5.0,
    head=0.6,
    gain=2.5e-7,
    healthy={"spread": 0.7, "token": 2.4, "head": 0.25, "gain": 1.0e-7},
    why="float32 in two summation orders, a layer at a time",
)
SOFTCAP = replace(
    ALONE,
    head=3.0,
    healthy={**ALONE.healthy, "head": 1.5},
    why="tanh of the softcapped logits is some ten roundings off between two libraries",
)
DELTA = replace(
    ALONE,
    spread=2.5,
    token=10.0,
    healthy={**ALONE.healthy, "spread": 1.1, "token": 4.9, "gain": 1.2e-7},
    why="the normalised output of a state near zero: a few tokens lose digits",
)
MAMBA = replace(
    ALONE,
    spread=2.5,
    token=12.0,
    gain=1.5e-6,
    healthy={**ALONE.healthy, "spread": 0.93, "token": 5.4, "gain": 6.4e-7},
    why="exp(dt A) decays in every token: two exponentials differ by one factor all along",
)
ALONE_OF = {"gemma4": SOFTCAP, "qwen35": DELTA, "qwen35moe": DELTA, "qwen3next": DELTA, "mamba": MAMBA}


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """Limits of the error of one value inside a layer that is fed by the reference. `healthy` are the maxima
    observed over two tokens of 18 structures in F32 in both orderings. `spread` is the RMS of the error
    relative to the value's RMS. `factor` is the part of the error proportional to the value, if it is at least
    nine tenths of the error and the value has at least `fewest` elements. Unless fed, rounding grows: as often
    as there are layers up to it. `position`: added to `spread` for each position of the prompt up to the last
    compared, since llama.cpp makes an angle of rope of float32 products (ggml_rope_cache_init in ggml-
    cpu/ops.cpp), off by its size's rounding.
    """

    spread: float
    factor: float
    fewest: int
    position: float
    healthy: Mapping[str, float]
    why: str

    def as_dict(self) -> dict[str, Any]:
        names = ("spread", "factor", "position")
        return {**{name: getattr(self, name) for name in names}, "healthy": dict(self.healthy), "why": self.why}


NODE = NodeLimit(
    spread=4e-6,
    factor=2.5e-7,
    fewest=64,
    position=2.0**-23,
    healthy={"spread": 1.04e-6, "factor": 9.8e-8, "position": 5.7e-8},
    why="float32 in two summation orders, a layer at a time",
)
ALL_BUT = 0.9  # of a node's error, to be called a factor
# The stream itself is rounded when a layer adds to it: of a stream this many times what is added, as much again.
STREAM = 32.0


def rounding_error(width: int) -> float:
    """Return the rounding error of sums over `width` terms in two orders, which accumulates like a random walk."""
    return float(2.0**-23 * np.sqrt(width))


OF_PEAK = 2.0**-18


def scale_limit(limit: Limit, want: np.ndarray) -> Limit:
    """Return the limit for values inside the model. Logits are of order one, but these values have arbitrary
    magnitude; the limit is at least some dozen roundings of the largest reference value, because both sides sum in
    different orders.
    """
    floor = OF_PEAK * float(np.abs(want).max(initial=0.0))
    if limit.max_abs is None or not floor > limit.max_abs:
        return limit
    return replace(limit, max_abs=floor, why=f"{limit.why}: {OF_PEAK:.2g} of the largest value")


def choose_tier_limit(ordering: str, reference: str) -> Limit:
    if ordering == reference:
        return BIT_EXACT
    return QUANTISED if "canonical-1-q8" in (ordering, reference) else ORDERINGS
