"""The kernel sets of GPU tiers: one row a chip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.resources import files

import numpy as np

from zinc_rt.errors import UnsupportedError
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt, read_zrt

PACKAGES = {"gfx1201": "zinc_rt.kernels.gfx1201"}


@dataclass(frozen=True, slots=True)
class KernelSet:
    """`entries`: which nodes run, as functions that yield launches. `read`: a kernel by the name a launch gives.
    `pack`: a weight's bytes as the kernels read them, lossless."""

    arch: str
    entries: tuple[Entry, ...]
    read: Callable[[str], Zrt]
    pack: Callable[[Weight], np.ndarray]


@cache
def kernel_set(arch: str) -> KernelSet | None:
    """None for a chip without kernels. A set is a package with table.py (ENTRIES), repack.py and .zrt files."""
    if arch not in PACKAGES:
        return None
    package = PACKAGES[arch]
    entries = import_module(f"{package}.table").ENTRIES
    return KernelSet(arch, entries, partial(read_kernel, package), import_module(f"{package}.repack").pack_weight)


@cache
def read_kernel(package: str, name: str) -> Zrt:
    """Raises InputError for a container that is damaged, UnsupportedError for a kernel that is not there."""
    file = files(package) / f"{name}.zrt"
    if not file.is_file():
        raise UnsupportedError(
            f"{package} has no kernel {name}.zrt", next="zinc-rt asm --all assembles the sources"
        )
    return read_zrt(file.read_bytes(), f"{name}.zrt")
