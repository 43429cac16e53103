"""The Vulkan kernels compiled by RADV for gfx1201: rows and packing of set `spirv`, machine code of T1."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.sets import BinaryKernels, BinaryKernelSet
from zinc_rt.kernels.spirv import table as spirv
from zinc_rt.kernels.zrt import Zrt, read_zrt

BUILT = Path(__file__).parent / "built"


@cache
def load(name: str) -> Zrt:
    """Return the committed kernel `name`. Raise UnsupportedError if there is no such kernel."""
    path = BUILT / f"{name}.zrt"
    if not path.is_file():
        raise UnsupportedError(
            f"there is no kernel {name} compiled by RADV for gfx1201",
            next="compile it: zinc-rt vulkan compile --radv gfx1201",
        )
    return read_zrt(path.read_bytes(), path.name)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the committed containers."""
    return tuple(sorted(path.stem for path in BUILT.glob("*.zrt")))


def make_radv_set(
    target: str, names: Callable[[], tuple[str, ...]], load: Callable[[str], Zrt]
) -> BinaryKernelSet:
    """Return the kernel set of a chip for which RADV compiled the Vulkan kernels."""
    return BinaryKernels(
        target,
        spirv.ENTRIES,
        spirv.KERNELS.pack,
        spirv.KERNELS.packed_bytes,
        names,
        load,
        expansions=spirv.KERNELS.expansions,
    )


KERNELS = make_radv_set("gfx1201", names, load)
