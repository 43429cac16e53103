"""Gates, percentiles and perplexity on samples with known results, for zinc-rt selftest."""

from __future__ import annotations

import math
from dataclasses import astuple

from zinc_rt.perf.gate.figures import compute_percentile
from zinc_rt.perf.gate.milestones import parse_bound
from zinc_rt.perf.perplexity.scoring import TokenScores, compare_with_base, compute_perplexity, count_scored_tokens
from zinc_rt.validate.selftest.checks import Number


def _comparison() -> list[float]:
    scores = TokenScores(
        nll=[1.0, 2.0, 3.0], base_nll=[1.0, 1.0, 1.0], kl=[0.0, 0.5, 1.0], p_diff=[0.0, 0.1, -0.1],
        same_top=[True, False, True], same_bits=[True, True, False],
    )  # fmt: skip
    compared = compare_with_base(scores)
    return [compared.log_ratio.value, compared.kl.value, compared.p_diff_rms.value]


NUMBERS: dict[str, Number] = {
    "perplexity": (
        lambda: list(astuple(compute_perplexity([1.0, 3.0]))), [math.e**2] * 2, 1e-9,
    ),
    "perplexity against a base": (_comparison, [1.0, 0.5, math.sqrt(0.02 / 3)], 1e-9),
    "scored tokens of a chunk": (lambda: [count_scored_tokens(8), count_scored_tokens(9)], [3, 4], 0),
    "percentiles": (
        lambda: [compute_percentile([4, 1, 3, 2], share) for share in (0.0, 0.5, 0.75, 1.0)], [1, 2, 3, 4], 0,
    ),
    "gates at their limit": (
        lambda: [parse_bound(text).is_satisfied(2.0) for text in (">= 2", "<= 2", "> 2", "< 2", "== 2")],
        [True, True, False, False, True], 0,
    ),
    "gates without a number": (
        lambda: [parse_bound(text).is_satisfied(math.nan) for text in (">= 2", "<= 2", "< 2")], [False] * 3, 0,
    ),
}  # fmt: skip
