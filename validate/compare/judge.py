"""Compute the distance of each peer's values from the reference's, over the values that both have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zinc_rt.validate.compare.peer import PeerOutcome, Sample
from zinc_rt.validate.measure import compute_agreement


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a peer from the reference. `logits` is the largest difference, or None if nothing could be
    compared. `layers` is the RMS of the difference over the RMS of the reference, by layer; for sampled values,
    over the samples. `samples` is the number of values, 0 for all.
    """

    logits: float | None = None
    kl: float | None = None
    top1: int | None = None
    positions: int = 0
    same_bits: bool = False
    layers: dict[int, float] = field(default_factory=dict)
    samples: int = 0
    nonfinite: int = 0
    problem: str = ""

    @property
    def worst_layer(self) -> tuple[int, float] | None:
        return max(self.layers.items(), key=lambda item: item[1]) if self.layers else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "max_abs": self.logits,
            "kl_mean": self.kl,
            "top1": self.top1,
            "positions": self.positions,
            "same_bits": self.same_bits,
            "layers_rel_rms": {str(layer): value for layer, value in sorted(self.layers.items())},
            "sampled_values": self.samples,
            "nonfinite": self.nonfinite,
        }


def measure_distance(outcome: PeerOutcome, reference: PeerOutcome) -> Distance:
    """Return the distance of one outcome from another. `reference` has logits [T, V] and layers."""
    want = reference.logits
    assert want is not None
    if outcome.logits is not None:
        return _measure_whole(outcome, outcome.logits, reference, want)
    if outcome.sampled_logits is not None:
        return _measure_samples(outcome, outcome.sampled_logits, reference, want)
    return Distance()


def _measure_whole(outcome: PeerOutcome, got: np.ndarray, reference: PeerOutcome, want: np.ndarray) -> Distance:
    if got.shape != want.shape:
        return Distance(problem=f"logits of shape {list(got.shape)}, the reference has {list(want.shape)}")
    nonfinite = int(np.count_nonzero(~np.isfinite(got)))
    agreed = compute_agreement(got, want)
    both = [n for n in sorted(outcome.layers) if n in reference.layers]
    layers = {
        n: compute_rel_rms(outcome.layers[n], reference.layers[n])
        for n in both
        if outcome.layers[n].shape == reference.layers[n].shape
    }
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(got.astype(np.float64) - want).max())
    return Distance(
        logits=largest if not nonfinite else float("inf"),
        kl=agreed.kl_mean,
        top1=agreed.top1,
        positions=len(got),
        same_bits=bool(np.array_equal(got.view(np.uint32), want.view(np.uint32))),
        layers=layers,
        nonfinite=nonfinite,
    )


def _measure_samples(outcome: PeerOutcome, got: Sample, reference: PeerOutcome, want: np.ndarray) -> Distance:
    layers = {
        n: compute_rel_rms(sample.values, _select_samples(reference.layers[n], sample))
        for n, sample in outcome.sampled_layers.items()
        if n in reference.layers
    }
    difference = np.abs(got.values - _select_samples(want, got))
    nonfinite = int(np.count_nonzero(~np.isfinite(got.values)))
    return Distance(
        logits=float(difference.max()) if not nonfinite else float("inf"),
        positions=got.rows,
        layers=layers,
        samples=len(got.values) + sum(len(sample.values) for sample in outcome.sampled_layers.values()),
        nonfinite=nonfinite,
    )


def _select_samples(whole: np.ndarray, sample: Sample) -> np.ndarray:
    """Return the same elements of the reference. A value with fewer rows contains only the last tokens."""
    first = len(whole) - sample.rows
    values: np.ndarray = whole[first + sample.at[:, 0], sample.at[:, 1]].astype(np.float64)
    return values


def compute_rel_rms(got: np.ndarray, want: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        scale = float(np.sqrt(np.mean(np.square(want, dtype=np.float64))))
        off = float(np.sqrt(np.mean(np.square(got.astype(np.float64) - want))))
    if not np.isfinite(off):
        return float("inf")
    return off / scale if scale else float("inf") if off else 0.0
