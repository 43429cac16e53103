"""The matrix of all pairs of a model's sources of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from zinc_rt.validate.histograms import bins
from zinc_rt.validate.histograms.pair import TOP, LogitPair, compare_pair
from zinc_rt.validate.histograms.sources import LogitSource


@dataclass(frozen=True, slots=True)
class LogitMatrix:
    """The pairs of one model, each source with every later one in `names`."""

    model: str
    names: tuple[str, ...]
    pairs: tuple[LogitPair, ...]

    def find_pair(self, got: str, want: str) -> LogitPair | None:
        """Return the pair of two names in either order; None for a name with itself."""
        return next((pair for pair in self.pairs if {pair.got, pair.want} == {got, want}), None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "sources": list(self.names),
            "pairs": [pair.as_dict() for pair in self.pairs],
            "bins": {
                "differences": [bins.name_signed_bin(index) for index in range(bins.SIGNED_BINS)],
                "ulps": [bins.name_distance_bin(index) for index in range(bins.DOUBLING_BINS)],
                "ranks": f"as ulps, of the {TOP} likeliest tokens",
            },
        }


def compare_sources(model: str, sources: Sequence[LogitSource]) -> LogitMatrix:
    """Compare all pairs; the later source of a pair is the reference."""
    pairs = (
        compare_pair(got, want, same_bits=_requires_same_bits(got, want)) for got, want in combinations(sources, 2)
    )
    return LogitMatrix(model, tuple(source.name for source in sources), tuple(pairs))


def _requires_same_bits(a: LogitSource, b: LogitSource) -> bool:
    """Return whether the two must be bit-identical. A canonical ordering fixes every rounding; BLAS selects its
    summation order by machine and shape.
    """
    return a.ordering == b.ordering and a.ordering.startswith("canonical")
