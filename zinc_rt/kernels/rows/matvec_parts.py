"""Several projections of one input in one dispatch: matvec_parts.s describes the kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.repack import Q8_BLOCKS, WEIGHT_TYPES

PARTS = 4  # at most
FAMILY = "matvec_parts_"
_MEMBERS = {*WEIGHT_TYPES, *(f"q8_{block}_{dtype}" for dtype, block in Q8_BLOCKS.items())}
_NEVER = 0xFFFFFFFF  # the first block of a part that is not there


def key(launch: Launch) -> Hashable | None:
    """Launches of equal keys can be one dispatch, so many at a time; None for a launch that cannot."""
    family, _, member = launch.kernel.partition("_")
    if family != "matvec" or member not in _MEMBERS:
        return None
    x, _, _, _, _, ids, row = launch.buffers
    _, k, *_, choices, flags, _ = launch.constants
    by_choice = int(flags) & ~0xF
    return member, x, ids, row, k, choices, by_choice, launch.grid[0], launch.grid[2]


def merged(launches: Sequence[Launch]) -> Launch:
    """One dispatch of up to PARTS launches of one key."""
    x, *_, ids, row = launches[0].buffers
    _, k, *_, choices, flags, _ = launches[0].constants
    buffers = [x, ids, row]
    constants: list[int | float] = []
    first_blocks, end = [_NEVER] * PARTS, 0
    for part, launch in enumerate(launches):
        _, weight, y, scale, bias, _, _ = launch.buffers
        buffers += weight, y, scale, bias
        n, _, *planes, _, part_flags, _ = launch.constants
        constants += *planes, int(part_flags) & 0xF, n, 0
        first_blocks[part] = end
        blocks = launch.grid[1]
        assert isinstance(blocks, int)
        end += blocks
    missing = PARTS - len(launches)
    buffers += [None] * 4 * missing
    constants += [0] * 8 * missing
    return Launch(
        launches[0].kernel.replace("matvec_", FAMILY),
        tuple(buffers),
        (k, choices, int(flags) & ~0xF, *first_blocks[1:], 0, 0, *constants),
        (launches[0].grid[0], end, launches[0].grid[2]),
    )
