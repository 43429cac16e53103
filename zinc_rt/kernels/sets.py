"""The kernel sets of GPU tiers: one row a chip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np

from zinc_rt.errors import InputError
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt

PACKAGES = {"gfx1201": "zinc_rt.kernels.gfx1201"}


@dataclass(frozen=True, slots=True)
class KernelSet:
    """`entries`: which nodes run, as functions that yield launches. `read`: a kernel by the name a launch gives.
    `pack`: a weight's bytes as the kernels read them, lossless."""

    arch: str
    entries: tuple[Entry, ...]
    read: Callable[[str], Zrt]
    pack: Callable[[Weight], np.ndarray]
    packed_bytes: Callable[[Weight], int]  # of what `pack` gives, without packing


def plain_set(arch: str, entries: tuple[Entry, ...] = ()) -> KernelSet:
    """A set without kernel files: weights stay as the file has them."""
    return KernelSet(arch, entries, _no_kernel, lambda weight: weight.raw, lambda weight: weight.nbytes)


def _no_kernel(name: str) -> Zrt:
    raise InputError(f"there is no kernel file {name}: this set has none")


@cache
def kernel_set(arch: str) -> KernelSet | None:
    """None for a chip without kernels. Its package's table.py has ENTRIES, read, pack and packed_bytes."""
    if arch not in PACKAGES:
        return None
    table = import_module(f"{PACKAGES[arch]}.table")
    return KernelSet(arch, table.ENTRIES, cache(table.read), table.pack, table.packed_bytes)
