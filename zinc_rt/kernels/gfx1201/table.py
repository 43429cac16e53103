"""Which gfx1201 kernels run which opcode: the rows of every family, in the order lowering tries them."""

from __future__ import annotations

from importlib.resources import files

from zinc_rt.errors import UnsupportedError
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201 import (
    attention_rows,
    elementwise_rows,
    embed_rows,
    matvec_rows,
    moe_rows,
    norm_rows,
    recurrent_rows,
    sampling_rows,
)
from zinc_rt.kernels.gfx1201.repack import pack_weight as pack
from zinc_rt.kernels.gfx1201.repack import packed_bytes
from zinc_rt.kernels.zrt import Zrt, read_zrt

__all__ = ["ENTRIES", "pack", "packed_bytes", "read"]

# A family is one file with ROWS. Adding one: its import above, its name here.
FAMILIES = (
    embed_rows,
    matvec_rows,
    norm_rows,
    elementwise_rows,
    attention_rows,
    moe_rows,
    recurrent_rows,
    sampling_rows,
)

ENTRIES: tuple[Entry, ...] = tuple(row for family in FAMILIES for row in family.ROWS)


def read(name: str) -> Zrt:
    """The kernel `name` as committed. Raises UnsupportedError where there is none."""
    file = files(__package__).joinpath(f"{name}.zrt")
    if not file.is_file():
        raise UnsupportedError(f"no gfx1201 kernel {name}", next="assemble it: zinc-rt asm --all")
    return read_zrt(file.read_bytes(), file.name)
