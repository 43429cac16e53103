"""Which code computed a result: recorded results of other code are other results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache

import numpy as np

from zinc_rt.rooms import ROOMS, ROOT, files_of

PLANNERS = ("graph_store", "ir", "kernels", "lower", "mem", "model", "resident", "variants")


@cache
def code_version() -> str:
    """Digest of what decides a model's values: any change of the oracle is another oracle."""
    return _digest(name for name, room in ROOMS.items() if room.computes)


@cache
def runtime_version() -> str:
    """Digest of everything that runs below the harness, kernels included: what a speed or a bit was shown of."""
    return _digest(ROOMS)


@cache
def planning_version() -> str:
    """Digest of the Python that makes a model's graphs and plans their dispatches. Kernels' code does not count: a
    plan names kernels, it holds none."""
    return _digest(PLANNERS, ".py")


def _digest(rooms: Iterable[str], *suffixes: str) -> str:
    digest = hashlib.sha256(np.__version__.encode())
    for room in sorted(rooms):
        for file in files_of(room):
            if suffixes and file.suffix not in suffixes:
                continue
            content = file.read_bytes()
            digest.update(f"{file.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
