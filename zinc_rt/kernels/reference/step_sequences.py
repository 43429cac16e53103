"""Check the guarantees about a step's sequences that kernels rely on."""

from __future__ import annotations

import numpy as np


def check_ascending(op: str, sequence: np.ndarray) -> None:
    """Raise ValueError unless tokens of a sequence are adjacent, that is, sequence numbers never decrease."""
    falls = np.flatnonzero(np.diff(sequence) < 0)
    if falls.size:
        index = int(falls[0]) + 1
        raise ValueError(
            f"{op}: token {index} belongs to sequence {sequence[index]}, but the previous token to "
            f"{sequence[index - 1]}"
        )


def check_disjoint(op: str, source: np.ndarray, target: np.ndarray) -> None:
    """Raise ValueError unless targets are distinct and none is another sequence's source."""
    for item, row in enumerate(target):
        if np.count_nonzero(target == row) > 1:
            raise ValueError(f"{op}: row {row} is the target of two sequences, the first of which is {item}")
        foreign = np.flatnonzero((source == row) & (np.arange(len(source)) != item))
        if foreign.size:
            raise ValueError(f"{op}: row {row} is the target of sequence {item} and the source of {foreign[0]}")
