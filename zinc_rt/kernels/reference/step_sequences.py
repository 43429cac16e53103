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
    readers: dict[int, list[int]] = {}
    for item, row in enumerate(source.tolist()):
        readers.setdefault(row, []).append(item)
    owners: dict[int, int] = {}
    for item, row in enumerate(target.tolist()):
        if (first := owners.setdefault(row, item)) != item:
            raise ValueError(f"{op}: row {row} is the target of two sequences, {first} and {item}")
        if foreign := [reader for reader in readers.get(row, ()) if reader != item]:
            raise ValueError(f"{op}: row {row} is the target of sequence {item} and the source of {foreign[0]}")
