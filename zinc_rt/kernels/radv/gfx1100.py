"""The Vulkan kernels compiled by RADV for gfx1100, in one archive."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.archive import read_archive
from zinc_rt.kernels.radv.table import make_radv_set
from zinc_rt.kernels.zrt import Zrt, read_zrt

ARCHIVE = Path(__file__).parent / "gfx1100.tar.xz"


@cache
def read_compiled() -> dict[str, bytes]:
    """Return the containers by kernel name."""
    return read_archive(ARCHIVE)


@cache
def load(name: str) -> Zrt:
    """Return the committed kernel `name`. Raise UnsupportedError if there is no such kernel."""
    data = read_compiled().get(name)
    if data is None:
        raise UnsupportedError(
            f"there is no kernel {name} compiled by RADV for gfx1100",
            next="compile it: zinc-rt vulkan compile --radv gfx1100",
        )
    return read_zrt(data, f"{name}.zrt")


KERNELS = make_radv_set("gfx1100", lambda: tuple(sorted(read_compiled())), load)
