"""Cases of layer norms, and of RMS norms over rows and heads, also fused with the preceding residual sum."""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.validate.cases.sweep import OTHERS, PLAIN, Rooms, Sweep, pair_shapes

# A wave's 32 lanes, the canonical sum's 128 elements, a head's 64 to 512, a model's 5,120 and 17,408.
SIZES = (1, 3, 31, 32, 33, 127, 128, 129, 255, 256, 320, 1024, 1031, 5120)
ROOMS: Rooms = ({}, {"tokens": 4})
EPS = ({"eps": 1e-6},)

SWEEPS = (
    Sweep(
        Op.RMS_NORM,
        pair_shapes(T=(1, 3, 2), K=("size", "2*size", "5*size")),
        tuple({"size": size, **eps} for size in SIZES for eps in EPS),
        rooms=ROOMS,
        without=(("residual",), ("weight", "residual"), (), ("weight",)),
    ),
    Sweep(
        Op.RMS_NORM,
        pair_shapes(T=(1, 3), K=("size", "3*size")),
        ({"size": 128, "eps": 1e-5},),
        values=("mixed", "edges"),
        without=(("residual",), ()),
        vectors=PLAIN[1:],
    ),
    Sweep(Op.RESIDUAL_RMS_NORM, pair_shapes(T=(1, 2, 3), D=SIZES), EPS, rooms=ROOMS),
    Sweep(Op.LAYER_NORM, pair_shapes(T=(1, 2, 3), K=SIZES), EPS, rooms=ROOMS, without=((), ("bias",))),
    Sweep(Op.LAYER_NORM, ({"T": 2, "K": 256},), EPS, values=("mixed", "edges"), vectors=PLAIN[1:]),
    Sweep(
        Op.SSM_GATED_NORM, pair_shapes(T=(1, 3), D=(1, 16, 37, 128, 256), K=("D", "2*D", "3*D")), EPS, rooms=ROOMS
    ),
    Sweep(
        Op.SSM_GATED_NORM,
        ({"T": 2, "D": 256, "K": 512},),
        EPS,
        values=("mixed",),
        vectors=("f16", "bf16", "q8_0", "q4_k", OTHERS[0]),
    ),
)
