"""Merge several projections of one input in one dispatch. matvec_parts.s and matvec_norm.s describe the
kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zinc_rt.kernels.launch import Launch, Operand
from zinc_rt.kernels.rows.repack import Q8_BLOCKS, WEIGHT_TYPES

PARTS = 4  # at most
FAMILY, NORM_FAMILY = "matvec_parts_", "matvec_norm_"
_MEMBERS = {*WEIGHT_TYPES, *(f"q8_{block}_{dtype}" for dtype, block in Q8_BLOCKS.items())}
_NEVER = 0xFFFFFFFF  # the first block of an absent part
_OF_PART, _X_BY_CHOICE, _CONVOLVED = 0x3AF, 1 << 4, 1 << 8  # of the flags
_PART_FLAGS = 13  # the constant with the first part's flags
Rows = tuple[Operand | None, Operand | None, Operand | None]
_NO_ROWS: Rows = (None, None, None)


def launch_key(launch: Launch) -> Hashable | None:
    """Return the merge key: a limited number of launches with equal keys can be one dispatch; None for a launch
    that cannot be merged."""
    if launch.kernel.startswith(NORM_FAMILY):
        k, choices, by_choice, _, _, _, eps, *_ = launch.constants
        x, ids, row, *_, norm, _, _, _ = launch.buffers
        return launch.kernel, x, ids, row, k, choices, by_choice, launch.grid[0], launch.grid[2], norm, eps
    family, _, member = launch.kernel.partition("_")
    if family != "matvec" or member not in _MEMBERS:
        return None
    x, _, _, _, _, ids, row = launch.buffers
    _, k, *_, choices, flags, _ = launch.constants
    by_choice = int(flags) & _X_BY_CHOICE
    return member, x, ids, row, k, choices, by_choice, launch.grid[0], launch.grid[2]


def can_merge(launches: Sequence[Launch]) -> bool:
    """Return whether launches with the same key fit in one dispatch: it has the rows of one convolution."""
    convolved = (launch for launch in launches if launch.kernel.startswith(NORM_FAMILY))
    return sum(bool(int(launch.constants[_PART_FLAGS]) & _CONVOLVED) for launch in convolved) < 2


def merge_launches(launches: Sequence[Launch]) -> Launch:
    """Return one dispatch of up to PARTS launches with the same key."""
    first = launches[0]
    if not first.kernel.startswith(NORM_FAMILY):
        return _merge_one(launches, first.kernel.replace("matvec_", FAMILY))
    parts = [_require_single_launch(launch) for launch in launches]
    rows = [launch.buffers[-3:] for launch in launches if any(launch.buffers[-3:])] or [_NO_ROWS]
    source, target, bias = rows[0]
    return _merge_one(parts, first.kernel, first.buffers[-4], first.constants[6], (source, target, bias))


def fuse_norm(launch: Launch, norm: Operand, eps: float, rows: Rows = _NO_ROWS) -> Launch:
    """Return a matvec of RMS_NORM of its input by weight `norm`, which each workgroup computes. `rows`: source,
    target and bias of a convolution, if the launch has one."""
    return _merge_one([launch], launch.kernel.replace("matvec_", NORM_FAMILY), norm, eps, rows)


def _merge_one(
    launches: Sequence[Launch],
    kernel: str,
    norm: Operand | None = None,
    eps: int | float = 0,
    rows: Rows = _NO_ROWS,
) -> Launch:
    """Return the dispatch with matvecs of one key as its parts."""
    x, *_, ids, row = launches[0].buffers
    _, k, *_, choices, flags, _ = launches[0].constants
    buffers = [x, ids, row]
    constants: list[int | float] = []
    first_blocks, end = [_NEVER] * PARTS, 0
    for part, launch in enumerate(launches):
        _, weight, y, scale, bias, _, _ = launch.buffers
        buffers += weight, y, scale, bias
        n, _, *planes, _, part_flags, _ = launch.constants
        constants += *planes, int(part_flags) & _OF_PART, n, 0
        first_blocks[part] = end
        blocks = launch.grid[1]
        assert isinstance(blocks, int)
        end += blocks
    missing = PARTS - len(launches)
    buffers += [None] * 4 * missing
    constants += [0] * 8 * missing
    if norm is not None:
        buffers += norm, *rows
    return Launch(
        kernel,
        tuple(buffers),
        (k, choices, int(flags) & _X_BY_CHOICE, *first_blocks[1:], eps, 0, *constants),
        (launches[0].grid[0], end, launches[0].grid[2]),
    )


def _require_single_launch(launch: Launch) -> Launch:
    """Return the matvec that was passed to `fuse_norm`."""
    x, ids, row, weight, y, scale, bias, *_ = launch.buffers
    k, choices, by_choice, _, _, _, _, _, *planes = launch.constants[:13]
    part_flags, n = launch.constants[_PART_FLAGS : _PART_FLAGS + 2]
    return Launch(
        launch.kernel.replace(NORM_FAMILY, "matvec_"),
        (x, weight, y, scale, bias, ids, row),
        (n, k, *planes, choices, int(part_flags) | int(by_choice), 0),
        launch.grid,
    )
