"""Histograms over powers of two: of differences by sign and magnitude, of distances by magnitude."""

from __future__ import annotations

import numpy as np

# A signed histogram has 64 bins in the order of the number line: 31 of negative differences, the largest magnitude
# first, one for 0, 31 of positive ones, and one for what is not finite.
LOWEST, HIGHEST = -24, 5  # the magnitudes' edges are 2^-24 to 2^5: float32's resolution at 1, and a broken logit
MAGNITUDES = HIGHEST - LOWEST + 2  # below the lowest edge, between neighbours, from the highest on
ZERO = MAGNITUDES
NONFINITE = 2 * MAGNITUDES + 1
SIGNED_BINS = NONFINITE + 1
DOUBLING_BINS = 33  # 0, then [2^(k-1), 2^k) up to the distance of any two float32 values


def count_differences(differences: np.ndarray) -> np.ndarray:
    """Return counts i64 [64] of differences, float64 of any shape."""
    finite = np.isfinite(differences)
    known = differences[finite]
    magnitude = np.clip(np.frexp(known)[1] - 1, LOWEST - 1, HIGHEST) - (LOWEST - 1)
    places = np.where(known == 0, ZERO, np.where(known < 0, ZERO - 1 - magnitude, ZERO + 1 + magnitude))
    counts = np.bincount(places.reshape(-1), minlength=SIGNED_BINS)
    counts[NONFINITE] = differences.size - known.size
    return counts


def count_distances(distances: np.ndarray) -> np.ndarray:
    """Return counts i64 [33] of distances, integers below 2^32 of any shape."""
    places = np.frexp(distances.astype(np.float64))[1]  # exact: 33 bits at most
    return np.bincount(places.reshape(-1), minlength=DOUBLING_BINS)


def name_signed_bin(place: int) -> str:
    """Describe a bin of a signed histogram."""
    if place in (ZERO, NONFINITE):
        return "0" if place == ZERO else "not finite"
    sign, magnitude = ("-", ZERO - 1 - place) if place < ZERO else ("", place - ZERO - 1)
    low = LOWEST - 1 + magnitude
    if not magnitude:
        return f"{sign}0..{sign}2^{LOWEST}"
    return f"{sign}2^{low} and beyond" if low == HIGHEST else f"{sign}2^{low}..{sign}2^{low + 1}"


def name_distance_bin(place: int) -> str:
    """Describe a bin of a histogram of distances."""
    low, high = 1 << max(place - 1, 0), (1 << place) - 1
    return "0" if not place else str(low) if low == high else f"{low}..{high}"
