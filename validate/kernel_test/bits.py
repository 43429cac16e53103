"""Find the first place where the bits of two arrays diverge, and the distance of the values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SIGN = 1 << 31


@dataclass(frozen=True, slots=True)
class BitDifference:
    """The first wrong element of an output. `ulp` is the number of representable values between the two, or None
    for NaN and integers.
    """

    output: str
    index: tuple[int, ...]
    got: str
    want: str
    got_bits: int
    want_bits: int
    ulp: int | None
    wrong: int
    of: int
    worst_ulp: int | None

    @property
    def text(self) -> str:
        where = f"{self.output}[{', '.join(map(str, self.index))}]"
        bits = f"0x{self.got_bits:08x}, expected 0x{self.want_bits:08x}"
        apart = f", {self.ulp} ulp" if self.ulp is not None else ""
        worst = f", {self.worst_ulp} ulp at the worst" if self.worst_ulp not in (None, self.ulp) else ""
        return (
            f"{where} is {self.got}, expected {self.want} ({bits}{apart}); {self.wrong} of {self.of} wrong{worst}"
        )


def find_first_difference(output: str, got: np.ndarray, want: np.ndarray) -> tuple[int, BitDifference | None]:
    """Return the number of elements that differ, and the first of them; a NaN equals any NaN."""
    mine, theirs = (np.ascontiguousarray(array).view(f"u{want.itemsize}") for array in (got, want))
    wrong = mine != theirs
    if want.dtype.kind == "f":
        wrong &= ~(np.isnan(got) & np.isnan(want))
    count = int(np.count_nonzero(wrong))
    if not count:
        return 0, None
    index = tuple(map(int, np.argwhere(wrong)[0]))
    apart = _measure_distances(mine[wrong], theirs[wrong], got[wrong], want[wrong])
    return count, BitDifference(
        output,
        index,
        repr(got[index].item()),
        repr(want[index].item()),
        int(mine[index]),
        int(theirs[index]),
        None if apart[0] < 0 else int(apart[0]),
        count,
        want.size,
        int(apart.max()) if apart.max() >= 0 else None,
    )


def _measure_distances(mine: np.ndarray, theirs: np.ndarray, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return the distance of each element, i64, in ulp, or -1 where it is undefined."""
    if want.dtype != np.float32:
        return np.full(len(mine), -1, np.int64)
    far = np.abs(_to_ordered_integer(mine) - _to_ordered_integer(theirs))
    return np.where(np.isnan(got) | np.isnan(want), -1, far)


def _to_ordered_integer(bits: np.ndarray) -> np.ndarray:
    """Map a float to its index in the order of all floats: neighbours differ by one, both zeros are 0."""
    wide = bits.astype(np.int64)
    return np.where(wide & SIGN, -(wide & (SIGN - 1)), wide)
