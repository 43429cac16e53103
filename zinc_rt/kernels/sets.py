"""Kernel sets by name: one per chip, and the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Protocol, runtime_checkable

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.isa.target import TARGETS
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.expand import Expansions
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import Zrt

# Modules with KERNELS, imported when a set is requested.
SETS = {
    "numpy-reference": "zinc_rt.kernels.reference.table",
    "native": "zinc_rt.kernels.native.table",
    "gfx1201": "zinc_rt.kernels.gfx1201.table",
    "gfx1100": "zinc_rt.kernels.gfx1100.table",
    "radv": "zinc_rt.kernels.radv.table",
    "spirv": "zinc_rt.kernels.spirv.table",
}


# The same sets for other chips than their own, by set and code chip.
VARIANTS = {("radv", "gfx1100"): "zinc_rt.kernels.radv.gfx1100"}


class KernelSet(Protocol):
    """A kernel set. `target`: the chip, or another executor. `entries`: the supported nodes and their code.
    `expansions`: types that are stored as another type. `fuses`: a fused node costs less than the nodes it
    replaces. `merging`: of launches between two barriers, if supported."""

    @property
    def target(self) -> str: ...

    @property
    def entries(self) -> tuple[Entry, ...]: ...

    @property
    def expansions(self) -> Expansions: ...

    @property
    def fuses(self) -> bool: ...

    @property
    def merging(self) -> Merging | None: ...

    def pack(self, weight: Weight, /) -> np.ndarray:
        """Pack a weight as the kernels read it, lossless: uint8, 1-D."""
        ...

    def packed_bytes(self, weight: Weight, /) -> int:
        """Return the size of `pack`'s result, without packing."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of all kernels as used in launches, sorted. For the oracle these are its opcodes."""
        ...


@dataclass(frozen=True, slots=True)
class Merging:
    """Launches that may be merged into one dispatch. `key`: launches with equal keys can be merged, if they fit
    together; None: this one cannot."""

    most: int
    key: Callable[[Launch], Hashable | None]
    merged: Callable[[Sequence[Launch]], Launch]
    fit: Callable[[Sequence[Launch]], bool] = lambda launches: True


@runtime_checkable
class BinaryKernelSet(KernelSet, Protocol):
    """A set whose entries yield launches of assembled kernels."""

    def load(self, name: str, /) -> Zrt:
        """Return a kernel by its name in launches. Raise UnsupportedError if there is no such kernel."""
        ...


@runtime_checkable
class SpirvKernelSet(KernelSet, Protocol):
    """A set whose entries yield launches of SPIR-V modules."""

    def module(self, name: str, /) -> bytes:
        """Return a kernel by its name in launches, without float modes. Raise UnsupportedError if there is no such
        kernel.
        """
        ...


@dataclass(frozen=True, slots=True)
class Kernels:
    """A KernelSet."""

    target: str
    entries: tuple[Entry, ...]
    pack: Callable[[Weight], np.ndarray]
    packed_bytes: Callable[[Weight], int]
    names: Callable[[], tuple[str, ...]]
    expansions: Expansions = field(default_factory=dict, kw_only=True)
    fuses: bool = field(default=False, kw_only=True)
    merging: Merging | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class BinaryKernels(Kernels):
    """A BinaryKernelSet."""

    load: Callable[[str], Zrt]


@dataclass(frozen=True, slots=True)
class SpirvKernels(Kernels):
    """A SpirvKernelSet."""

    module: Callable[[str], bytes]


def make_empty_set(target: str) -> BinaryKernels:
    """Return the set of a target without kernels: weights keep the file's layout."""

    def load(name: str) -> Zrt:
        raise InputError(f"there is no kernel {name} for {target}")

    return BinaryKernels(target, (), lambda weight: weight.raw, lambda weight: weight.nbytes, tuple, load)


@cache
def find_kernel_set(name: str) -> KernelSet | None:
    """Return the kernel set by name; None for a target without kernels."""
    if name not in SETS:
        return None
    kernels: KernelSet = import_module(SETS[name]).KERNELS
    return kernels


def find_chip_kernels(arch: str, name: str = "") -> KernelSet | None:
    """Return the kernels that a chip runs: its own, or those of the set `name` for it. None if there are none for
    this chip."""
    chip = find_code_chip(arch)
    if (name, chip) in VARIANTS:
        kernels: KernelSet = import_module(VARIANTS[name, chip]).KERNELS
        return kernels
    found = find_kernel_set(name or chip)
    return found if found is not None and found.target == chip else None


def find_code_chip(arch: str) -> str:
    """Return the chip whose kernels this chip runs: its own name if it has separate kernels or none at all."""
    target = TARGETS.get(arch)
    return target.kernels if target is not None and target.kernels else arch
