"""The kernels of gfx11: the sources of gfx1201, assembled with include/gfx11/zrt.inc, in one archive."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.archive import ARCHIVE, read_archive
from zinc_rt.kernels.gfx1201 import table
from zinc_rt.kernels.rows.tuning import OWN_KERNELS
from zinc_rt.kernels.zrt import Zrt, read_zrt

TUNING = replace(
    table.TUNING, own_kernels=OWN_KERNELS - {"matmul_q8_32", "matmul_wmma"}
)  # WMMA has another layout


@cache
def _read_built() -> dict[str, bytes]:
    return read_archive(Path(__file__).parent / ARCHIVE)


@cache
def load(name: str) -> Zrt:
    """Return the committed kernel `name`. Raise UnsupportedError if there is no such kernel."""
    data = _read_built().get(name)
    if data is None:
        raise UnsupportedError(f"no gfx1100 kernel {name}", next="assemble it: zinc-rt asm --all")
    return read_zrt(data, f"{name}.zrt")


@cache
def names() -> tuple[str, ...]:
    """Return the names of the committed containers."""
    return tuple(sorted(_read_built()))


KERNELS = table.make_set("gfx1100", TUNING, names, load)
