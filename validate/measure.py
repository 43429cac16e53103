"""Measure the distance of two arrays, and find where they first diverge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ORDER = np.uint32(0x80000000)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits of a difference; None sets no bound. `bits`: every bit must be equal, including NaN. `median_max_abs`
    applies to logits with quantised activations; `findings` to the simulated device.
    """

    max_abs: float | None = None
    rel_rms: float | None = None
    bits: bool = False
    why: str = ""
    median_max_abs: float | None = None
    findings: int | None = None

    def as_dict(self) -> dict[str, Any]:
        named = {
            "max_abs": self.max_abs,
            "rel_rms": self.rel_rms,
            "bits": self.bits or None,
            "why": self.why or None,
            "median_max_abs": self.median_max_abs,
            "findings": self.findings,
        }
        return {name: value for name, value in named.items() if value is not None}

    @property
    def gates(self) -> bool:
        """Return whether any limit is set."""
        return self.bits or self.max_abs is not None or self.rel_rms is not None


@dataclass(frozen=True, slots=True)
class Measure:
    """The distance of two arrays. `rel_rms` is the RMS of the difference over the RMS of the reference, `max_ulp`
    is in units in the last place.
    """

    max_abs: float
    rel_rms: float
    max_ulp: int
    equal_bits: bool
    nonfinite: int  # values of `got` that are NaN or infinite
    within: bool
    first_bad: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "max_abs": self.max_abs,
            "rel_rms": self.rel_rms,
            "max_ulp": self.max_ulp,
            "equal_bits": self.equal_bits,
            "nonfinite": self.nonfinite,
        }


def compare_arrays(got: np.ndarray, want: np.ndarray, limit: Limit, *, head_dim: int = 0) -> Measure:
    """Compare arrays [T, ...] of one shape. `first_bad` gives the token and dim (and head, if head_dim is given)
    of the first divergence, both values and the difference. NaN or infinity on either side exceeds every limit
    except bits.
    """
    got, want = np.ascontiguousarray(got, np.float32), np.ascontiguousarray(want, np.float32)
    if got.shape != want.shape:
        return Measure(
            np.inf, np.inf, 2**32, False, 0, False, {"shape": list(got.shape), "wanted_shape": list(want.shape)}
        )
    with np.errstate(all="ignore"):
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    same = got.view(np.uint32) == want.view(np.uint32)
    difference[same] = 0.0
    difference[np.isnan(difference)] = np.inf
    finite = np.isfinite(got)
    nonfinite = int(got.size - np.count_nonzero(finite))
    max_abs = float(difference.max(initial=0.0))
    scale = float(np.sqrt(np.mean(np.square(want, dtype=np.float64)))) if want.size else 0.0
    rms = float(np.sqrt(np.mean(np.square(difference)))) if want.size else 0.0
    rel_rms = 0.0 if rms == 0 else rms / scale if 0 < scale < np.inf else np.inf
    if limit.bits:
        bad = ~same
        within = not bad.any()
    else:
        bound = np.inf if limit.max_abs is None else limit.max_abs
        bad = ~(difference <= bound) | ~finite | ~np.isfinite(want)
        within = not bad.any() and (limit.rel_rms is None or rel_rms <= limit.rel_rms)
        if not within and not bad.any():  # over by RMS only: point at the first token that is
            bad = _find_worst_token(difference, want, limit.rel_rms or 0.0)
    return Measure(
        max_abs=max_abs,
        rel_rms=float(rel_rms),
        max_ulp=int(compute_ulp_distance(got, want).max(initial=0)),
        equal_bits=bool(same.all()),
        nonfinite=nonfinite,
        within=bool(within),
        first_bad={} if within else _describe_first(bad, got, want, head_dim),
    )


def compute_ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the distance of contiguous float32 arrays on the number line of all float32 values, int64; +0 and -0
    are equal.
    """

    def to_number_line(x: np.ndarray) -> np.ndarray:
        bits = x.view(np.uint32).astype(np.int64)
        return np.where(bits & int(ORDER), int(ORDER) - bits, bits)

    return np.abs(to_number_line(a) - to_number_line(b))


def _find_worst_token(difference: np.ndarray, want: np.ndarray, limit: float) -> np.ndarray:
    rows = difference.reshape(len(difference), -1)
    scale = np.sqrt(np.mean(np.square(want.reshape(len(want), -1), dtype=np.float64), axis=1))
    over = np.sqrt(np.mean(np.square(rows), axis=1)) > limit * scale
    token = int(np.argmax(over)) if over.any() else int(np.argmax(rows.max(axis=1)))
    bad = np.zeros(rows.shape, bool)
    bad[token, int(np.argmax(rows[token]))] = True
    return bad.reshape(difference.shape)


def _describe_first(bad: np.ndarray, got: np.ndarray, want: np.ndarray, head_dim: int) -> dict[str, Any]:
    index = np.unravel_index(int(np.argmax(bad.reshape(-1))), bad.shape)
    token, dim = int(index[0]), int(np.ravel_multi_index(index[1:], bad.shape[1:])) if bad.ndim > 1 else 0
    where: dict[str, Any] = {"token": token}
    if head_dim:
        where["head"], dim = divmod(dim, head_dim)
    where["dim"] = dim
    return {**where, "got": float(got[index]), "want": float(want[index]), "count": int(np.count_nonzero(bad))}


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of two sets of logits: KL(want || got) in nats, mean and maximum over positions, and
    argmax.
    """

    kl_mean: float
    kl_max: float
    top1: int
    positions: int

    def as_dict(self) -> dict[str, Any]:
        return {"kl_mean": self.kl_mean, "kl_max": self.kl_max, "top1": self.top1, "positions": self.positions}


def compute_agreement(got: np.ndarray, want: np.ndarray) -> Agreement:
    """Compute the agreement of two sets of logits, [T, V] each."""
    kl = compute_kl(got, want)
    top1 = int(np.count_nonzero(got.argmax(axis=-1) == want.argmax(axis=-1)))
    return Agreement(float(kl.mean()), float(kl.max()), top1, len(got))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of logits [..., V], f64, in nats."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def compute_kl(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Compute KL(want || got) in nats of two sets of logits [T, V], float64 [T]; NaN for non-finite logits."""

    with np.errstate(invalid="ignore"):
        p, q = log_softmax(want), log_softmax(got)
        return np.asarray(np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0))


BINS = np.concatenate([[0.0], 2.0 ** np.arange(-8, 7)])  # of |value|; the last bin is open
BARS = " ▁▂▃▄▅▆▇█"


def count_by_powers(values: np.ndarray) -> list[int]:
    """Count |value| by powers of two: below 2^-8, ..., 2^6 and above."""
    edges = np.concatenate([BINS, [np.inf]])
    with np.errstate(invalid="ignore"):
        return [int(count) for count in np.histogram(np.abs(values[np.isfinite(values)]), edges)[0]]


def format_sparkline(counts: Sequence[int]) -> str:
    top = max(counts, default=0) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // top)] for count in counts)
