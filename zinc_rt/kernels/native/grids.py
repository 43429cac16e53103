"""The grids of ggml's IQ types as C, generated from the gguf package's tables; blocks_iq.h declares them."""

from __future__ import annotations

from functools import cache
from typing import Any

from gguf import quants

GRIDS = {
    "iq2_xxs": quants.IQ2_XXS,
    "iq2_xs": quants.IQ2_XS,
    "iq2_s": quants.IQ2_S,
    "iq3_xxs": quants.IQ3_XXS,
    "iq3_s": quants.IQ3_S,
    "iq1_s": quants.IQ1_S,  # iq1_m's too
}


@cache
def generate_source() -> str:
    """Return the text of grids.c."""
    return "#include <stdint.h>\n" + "".join(_format_table(name, of) for name, of in GRIDS.items())


def _format_table(name: str, of: Any) -> str:  # one of gguf.quants's classes
    of.init_grid()
    runs, length = of.grid_shape
    rows = of.grid.astype("i1").reshape(runs, length).tolist()
    text = ",".join("{" + ",".join(map(str, row)) + "}" for row in rows)
    return f"const int8_t grid_{name}[{runs}][{length}] = {{{text}}};\n"
