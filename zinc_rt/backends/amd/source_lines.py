"""Source lines in what a simulated device says: it knows a kernel's name and a pc, the container the line."""

from __future__ import annotations

import re
from collections.abc import Callable

from zinc_rt.errors import ZincError
from zinc_rt.kernels.zrt import Zrt

# "... kernel moe_topk+0x0: uninitialised-vgpr at pc 0x658 `v_cndmask_b32 ...`", as sim/shader/findings.py has it
_PLACE = re.compile(r"kernel (\w+)\+0x0: .*?\bpc (0x[0-9a-f]+)")


def with_source(sentence: str, read: Callable[[str], Zrt]) -> str:
    """The sentence with ` (moe_topk.s:97)` behind the pc, where `read` knows the kernel and it has lines."""
    found = _PLACE.search(sentence)
    if found is None:
        return sentence
    try:
        place = read(found[1]).place_at(int(found[2], 16))
    except ZincError:  # a kernel of somebody else's by that name
        return sentence
    return f"{sentence[: found.end()]} ({place}){sentence[found.end() :]}" if place else sentence
