"""Comparison of outputs with expected values: the number of different elements, the first one, and the ULP
distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.launching.values import is_float


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """The comparison of one output.

    `first` is the index of the first element beyond the limit; `most_ulps` is the maximum over all elements, None
    for integers.
    """

    name: str
    count: int
    mismatches: int
    first: tuple[int, ...] | None = None
    got: str = ""
    wanted: str = ""
    most_ulps: int | None = None


def read_expected(path: str) -> dict[str, np.ndarray]:
    """Read expected outputs. Raise InputError if the file is not an .npz archive."""
    try:
        with np.load(Path(path)) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"--expect {path}: {error}") from None


def compare(
    outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], ulps: int
) -> list[ExpectedOutput]:
    """Compare each array of `expected`. Raise InputError if there is no output of that name, size and type."""
    compared = []
    for name, wanted in expected.items():
        got = outputs.get(name)
        if got is not None and got.dtype.kind == "V" and wanted.dtype == np.dtype(f"V{got.dtype.itemsize}"):
            wanted = wanted.view(got.dtype)  # as NumPy stores a type of ml_dtypes
        if got is None or got.dtype != wanted.dtype or got.size != wanted.size:
            has = ", ".join(f"{key}: {item.dtype}{list(item.shape)}" for key, item in outputs.items())
            raise InputError(
                f"--expect: {name} {wanted.dtype}{list(wanted.shape)} matches no output; outputs are "
                f"{has or 'none'}"
            )
        compared.append(_compare_output(name, got, wanted.reshape(got.shape), ulps))
    return compared


def _compare_output(name: str, got: np.ndarray, expected: np.ndarray, ulps: int) -> ExpectedOutput:
    if not is_float(got.dtype):
        bad, maximum = got != expected, None
    else:
        apart = _compute_ulps(got, expected)
        bad, maximum = apart > ulps, int(apart.max(initial=0))
    if not bad.any():
        return ExpectedOutput(name, got.size, 0, most_ulps=maximum)
    first = tuple(int(axis) for axis in np.argwhere(bad)[0])
    return ExpectedOutput(name, got.size, int(bad.sum()), first, str(got[first]), str(expected[first]), maximum)


def _compute_ulps(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the ULP distances as uint64. A NaN equals other NaNs and differs from all other values."""
    kind = np.dtype(f"i{got.dtype.itemsize}")
    minimum = np.iinfo(kind).min
    ordered = []
    for item in (got, wanted):
        bits = np.ascontiguousarray(item).view(kind).astype(object if kind.itemsize == 8 else np.int64)
        ordered.append(np.where(bits < 0, minimum - bits, bits))
    apart = np.abs(ordered[0] - ordered[1]).astype(np.uint64)
    one, other = np.isnan(got.astype(np.float64)), np.isnan(wanted.astype(np.float64))
    return np.where(one & other, 0, np.where(one | other, np.uint64(1 << 63), apart)).astype(np.uint64)
