"""Cases of elementwise opcodes: consecutive rows, and columns at the edges of waves and workgroups."""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.validate.cases.sweep import Rooms, Sizes, Sweep, combine_shapes, pair_shapes

# Around a wave's 32, a workgroup's 256 and the native set's 2,048; 17,408 is the widest a model has.
COLUMNS = (1, 3, 31, 32, 33, 127, 255, 256, 257, 320, 1029, 2047, 2048, 2049)
WIDEST = 17408
ROOMS: Rooms = ({}, {"tokens": 5}, {"tokens": 64})
ROWS = (1, 2, 3, 5)

_N: tuple[Sizes, ...] = (*pair_shapes(T=ROWS, N=COLUMNS), {"T": 1, "N": WIDEST})
_REST: tuple[Sizes, ...] = (*pair_shapes(T=ROWS, rest=COLUMNS), {"T": 1, "rest": WIDEST})

SWEEPS = (
    Sweep(Op.ADD, _N, rooms=ROOMS),
    Sweep(Op.SWIGLU, _REST, rooms=ROOMS),
    Sweep(Op.GEGLU, _REST, rooms=ROOMS),
    Sweep(Op.SIGMOID_MUL, _N, rooms=ROOMS),
    Sweep(
        Op.MOE_SWIGLU,
        pair_shapes(T=ROWS, k=(1, 2, 8), F=(1, 33, 96, 257, 768)),
        ({"activation": "silu"}, {"activation": "gelu"}, {"activation": "clamped"}),
        rooms=ROOMS,
    ),
    Sweep(
        Op.SCALE,
        _N,
        ({"factor": 0.3}, {"factor": 1e30}, {"factor": 0.0}),
        ("f32",),
        ("mixed", "edges", "denormals"),
        ((), ("weight",)),
        ROOMS,
        more={"one": 1},
    ),
    Sweep(Op.ROW_SCALE, _N, values=("mixed", "edges", "denormals"), rooms=ROOMS, more={"ctx": 9}),
    Sweep(Op.GELU, _N, rooms=ROOMS),
    Sweep(Op.SOFTCAP, _N, ({"cap": 30.0}, {"cap": 1e-39}), rooms=ROOMS),
    Sweep(
        Op.SLICE,
        combine_shapes(T=(1, 3), N="5*group"),
        tuple(
            {"group": group, "offset": offset, "size": size}
            for group, offset, size in (
                *((1, 0, 1), (7, 3, 4), (9, 8, 1), (64, 32, 32), (257, 0, 256), (1200, 100, 1030), (512, 0, 512)),
            )
        ),
        values=("mixed", "edges"),
        rooms=ROOMS,
    ),
)
