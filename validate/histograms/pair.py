"""Compare two sources of logits: the distribution of differences, and their effect on ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zinc_rt.validate.histograms import bins
from zinc_rt.validate.histograms.sources import LogitSource
from zinc_rt.validate.measure import compute_kl, compute_ulp_distance

TOP = 50  # tokens of a position whose ranks are followed


@dataclass(frozen=True, slots=True)
class ValueHistogram:
    """The distribution of the differences of two arrays of one shape, in the bins of bins.py."""

    differences: tuple[int, ...]
    ulps: tuple[int, ...]  # of finite pairs
    max_abs: float  # of finite pairs
    equal_bits: bool

    @property
    def total(self) -> int:
        return sum(self.differences)

    @property
    def zero(self) -> int:
        return self.differences[bins.ZERO]

    @property
    def nonfinite(self) -> int:
        return self.differences[bins.NONFINITE]

    def as_dict(self) -> dict[str, Any]:
        return {
            "differences": list(self.differences),
            "ulps": list(self.ulps),
            "max_abs": self.max_abs,
            "equal_bits": self.equal_bits,
        }


@dataclass(frozen=True, slots=True)
class LogitPair:
    """`got` compared with `want`, at the `positions` both have. `ranks` is how far each of the 50 most likely
    tokens of `want` has moved, in doubling bins; `kl` is KL(want || got) in nats, by position; `layers` is l_out
    by label. `same_bits`: the two must be equal.
    """

    got: str
    want: str
    same_bits: bool
    positions: tuple[int, ...] = ()
    logits: ValueHistogram | None = None  # None: no position is known to both
    ranks: tuple[int, ...] = ()
    top1: int = 0
    kl: tuple[float, ...] = ()
    layers: Mapping[str, ValueHistogram] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        """Return whether a pair that must be equal has a difference."""
        every = [*self.layers.values(), *([self.logits] if self.logits is not None else [])]
        return self.same_bits and not all(item.equal_bits for item in every)

    def as_dict(self) -> dict[str, Any]:
        return {
            "got": self.got,
            "want": self.want,
            "same_bits": self.same_bits,
            "positions": list(self.positions),
            "logits": self.logits.as_dict() if self.logits is not None else None,
            "ranks": list(self.ranks),
            "top1": self.top1,
            "kl": list(self.kl),
            "layers": {label: item.as_dict() for label, item in self.layers.items()},
        }


def compare_pair(got: LogitSource, want: LogitSource, *, same_bits: bool) -> LogitPair:
    """Compare two sources at the positions that both computed from the same tokens."""
    layers = {
        label: compute_value_histogram(*_select_common_rows(got.layers[label], want.layers[label]))
        for label in want.layers
        if label in got.layers
    }
    limit = want.prompt + _count_common_tokens(got.after, want.after)
    index = np.intersect1d(got.positions[got.positions < limit], want.positions[want.positions < limit])
    if not len(index) or got.logits.shape[-1] != want.logits.shape[-1]:
        return LogitPair(got.name, want.name, same_bits, layers=layers)
    a, b = (item.logits[np.searchsorted(item.positions, index)] for item in (got, want))
    return LogitPair(
        got.name,
        want.name,
        same_bits,
        positions=tuple(map(int, index)),
        logits=compute_value_histogram(a, b),
        ranks=count_rank_changes(a, b),
        top1=int(np.count_nonzero(a.argmax(axis=-1) == b.argmax(axis=-1))),
        kl=tuple(map(float, compute_kl(a, b))),
        layers=layers,
    )


def compute_value_histogram(got: np.ndarray, want: np.ndarray) -> ValueHistogram:
    """Return the histogram of two float32 arrays [T, ...] of one shape. Processed row by row, because a vocabulary
    is large.
    """
    differences, ulps = np.zeros(bins.SIGNED_BINS, np.int64), np.zeros(bins.DOUBLING_BINS, np.int64)
    largest = 0.0
    for a, b in zip(got, want, strict=True):
        finite = np.isfinite(a) & np.isfinite(b)
        with np.errstate(invalid="ignore"):
            apart = np.where(finite, a.astype(np.float64) - b, np.nan)
        differences += bins.count_differences(apart)
        ulps += bins.count_distances(
            compute_ulp_distance(np.ascontiguousarray(a), np.ascontiguousarray(b))[finite]
        )
        largest = max(largest, float(np.abs(apart[finite]).max(initial=0.0)))
    return ValueHistogram(
        tuple(differences.tolist()), tuple(ulps.tolist()), largest, got.tobytes() == want.tobytes()
    )


def count_rank_changes(got: np.ndarray, want: np.ndarray, top: int = TOP) -> tuple[int, ...]:
    """Return by how many ranks the `top` most likely tokens of each row of `want` [T, V] have moved in `got`, in
    bins that double in size. If logits are equal, the lower token comes first.
    """
    counts = np.zeros(bins.DOUBLING_BINS, np.int64)
    for a, b in zip(got, want, strict=True):
        likeliest = np.argsort(-b, kind="stable")[:top]
        ranks = np.empty(len(a), np.int64)
        ranks[np.argsort(-a, kind="stable")] = np.arange(len(a))
        counts += bins.count_distances(np.abs(ranks[likeliest] - np.arange(len(likeliest))))
    return tuple(counts.tolist())


def _count_common_tokens(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return the number of leading tokens that are equal."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _select_common_rows(
    got: tuple[np.ndarray, np.ndarray], want: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays' rows of the positions that both have."""
    index = np.intersect1d(got[0], want[0])
    a, b = (values[np.searchsorted(positions, index)] for positions, values in (got, want))
    return a.reshape(len(index), -1), b.reshape(len(index), -1)
