"""Cases of convolution, the gated delta rule and the selective scan, in every form of their state."""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.validate.cases.sweep import (
    BLOCKS_OF_32,
    BLOCKS_OF_256,
    PLAIN,
    TYPES,
    Rooms,
    Sweep,
    combine_shapes,
    pair_shapes,
)

ROOMS: Rooms = ({}, {"tokens": 9, "sequences": 3})
DELTA_ROOMS: Rooms = (*ROOMS, {"tokens": 40, "sequences": 3})  # gates and units apart, and by each wave
FEW = ("mixed", "edges", "outliers", "zeros")
CHANNELS = (1, 37, 255, 256, 257, 320)
CONV = (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
DELTA = (Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS)
IDS = (Op.SSM_CONV1D_UPDATE_IDS, Op.SSM_DELTA_NET_INPLACE_IDS)
STEPS = pair_shapes(T=(1, 7, 2, 9), S=(1, 2, 2, 3))  # decode, two prompts, two requests, three


def _delta_attrs(k_heads: int, v_heads: int, head_dim: int, grouping: str) -> dict[str, object]:
    return {"k_heads": k_heads, "v_heads": v_heads, "head_dim": head_dim, "eps": 1e-6, "grouping": grouping}


def _make_disjoint_attrs(op: Op, attrs: dict[str, object]) -> tuple[dict[str, object], ...]:
    """Return the same attributes with disjoint rows, if the opcode has rows."""
    return ({**attrs, "disjoint": True},) if op in IDS else ()


SWEEPS = (
    *(
        Sweep(
            op,
            tuple({**step, "C": channels} for step in STEPS for channels in CHANNELS),
            ({"silu": True}, {"silu": False}, *_make_disjoint_attrs(op, {"silu": True})),
            values=FEW,
            without=((), ("bias",)),
            rooms=ROOMS,
            more={"slots": 4, "K": 4},
        )
        for op in CONV
    ),
    Sweep(Op.SSM_CONV1D, combine_shapes(T=(2,), S=1, C=37, K=(2, 3, 5)), values=("mixed",)),
    Sweep(  # of a projection: for one token, in one launch
        Op.MATMUL_FUSED_CONV1D_IDS,
        pair_shapes(T=(1, 1, 1, 7), S=(1, 1, 1, 2), C=(1, 17, 64), D=(256, 512)),
        ({"eps": 1e-5}, {"silu": False, "disjoint": True}),
        types=TYPES,
        values=("mixed", "edges"),
        without=((), ("bias",), ("bias", "norm_w")),
        more={"slots": 4, "K": 4},
    ),
    *(
        Sweep(
            Op.MATMUL_FUSED_CONV1D_IDS,
            ({"T": 1, "S": 1, "C": 64, "D": inner}, {"T": 3, "S": 2, "C": 17, "D": inner}),
            ({"eps": 1e-5},),
            types=types,
            values=("mixed",),
            more={"slots": 4, "K": 4},
        )
        for types, inner in (((*PLAIN, *BLOCKS_OF_32), 96), (BLOCKS_OF_256, 256))
    ),
    Sweep(
        Op.MATMUL_FUSED_CONV1D_IDS,
        ({"T": 1, "S": 1, "C": 37, "D": 256, "slots": 4, "K": 3},),
        values=("mixed", "zeros"),
    ),
    *(
        Sweep(
            op,
            combine_shapes(T=(1, 7), S=1, C=37, K=(2, 6)),
            values=("mixed",),
            without=((), ("bias",)),
            more={"slots": 4},
        )
        for op in CONV[1:]
    ),
    *(
        Sweep(
            op,
            STEPS,
            (
                _delta_attrs(1, 1, 4, "tiled"),
                _delta_attrs(2, 4, 20, "grouped"),
                _delta_attrs(1, 2, 64, "tiled"),
                _delta_attrs(2, 6, 36, "tiled"),
                _delta_attrs(1, 1, 128, "tiled"),
                *_make_disjoint_attrs(op, _delta_attrs(2, 4, 20, "grouped")),
            ),
            values=FEW,
            rooms=DELTA_ROOMS,
            more={"slots": 4},
        )
        for op in DELTA
    ),
    # a head for each lane of delta_gates, and one more
    Sweep(
        Op.SSM_DELTA_NET,
        ({"T": 2, "S": 1},),
        (_delta_attrs(1, 32, 4, "tiled"), _delta_attrs(3, 33, 4, "grouped")),
        values=FEW,
    ),
    Sweep(
        Op.SSM_SCAN,
        tuple(
            {**step, "I": inner, "N": states} for step in STEPS for inner, states in ((1, 16), (21, 16), (33, 7))
        ),
        values=FEW,
    ),
    # Wider than a dot's 128 accumulators, and no multiple of 4.
    *(
        Sweep(
            op,
            STEPS[:2],
            (_delta_attrs(1, 2, 17, "tiled"), _delta_attrs(2, 4, 132, "grouped")),
            values=("mixed", "infinite"),
            more={"slots": 4},
        )
        for op in DELTA
    ),
    Sweep(Op.SSM_SCAN, tuple({**step, "I": 5, "N": 130} for step in STEPS[:2]), values=("mixed", "infinite")),
    # Infinity times the zeros behind a row that is narrower than a kernel's registers would be NaN.
    *(
        Sweep(
            op,
            STEPS,
            (_delta_attrs(1, 1, 4, "tiled"), _delta_attrs(2, 4, 20, "grouped")),
            values=("infinite",),
            more={"slots": 4},
        )
        for op in DELTA
    ),
    Sweep(Op.SSM_SCAN, tuple({**step, "I": 21, "N": 7} for step in STEPS), values=("infinite",)),
    Sweep(
        Op.LOAD_REQUEST_STATE,
        combine_shapes(S=(1, 3), slots=(3, 6), rest=(1, 5, 255, 256, 257, 1029)),
        values=("mixed", "edges"),
        rooms=({}, {"sequences": 4}),
    ),
    Sweep(
        Op.STORE_REQUEST_STATE,
        combine_shapes(S=(1, 3), slots=(3, 6), rest=(1, 5, 255, 256, 257, 1029)),
        values=("mixed", "edges"),
        rooms=({}, {"sequences": 4}),
    ),
)
