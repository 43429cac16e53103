"""The kernels of gfx11: the sources of gfx1201, assembled with include/gfx11/zrt.inc, in one archive."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.gfx1201 import table
from zinc_rt.kernels.rows.tuning import OWN_KERNELS
from zinc_rt.kernels.zrt import Zrt, read_zrt

ARCHIVE = Path(__file__).parent / "built.tar.xz"
TUNING = replace(table.TUNING, own_kernels=OWN_KERNELS - {"matmul_q8_32"})


@cache
def read_archive() -> dict[str, bytes]:
    """Return the containers of the archive by kernel name."""
    with tarfile.open(fileobj=BytesIO(ARCHIVE.read_bytes())) as archive:
        members = [(member, archive.extractfile(member)) for member in archive]
        return {member.name.removesuffix(".zrt"): file.read() for member, file in members if file is not None}


@cache
def load(name: str) -> Zrt:
    """Return the committed kernel `name`. Raise UnsupportedError if there is no such kernel."""
    data = read_archive().get(name)
    if data is None:
        raise UnsupportedError(f"no gfx1100 kernel {name}", next="assemble it: zinc-rt asm --all")
    return read_zrt(data, f"{name}.zrt")


@cache
def names() -> tuple[str, ...]:
    """Return the names of the committed containers."""
    return tuple(sorted(read_archive()))


KERNELS = table.make_set("gfx1100", TUNING, names, load)
