"""Cases of projections, for one token and for many, and of nodes that consist mainly of a projection.

Rows of a weight at the edges of a workgroup's 16 (matvec) and 8 (matmul) and the native set's panels of 16; tokens
at those of matmul's 4; inner sizes at those of blocks, of a wave's step of 128 and of the packed layout's 1,024.
"""

from __future__ import annotations

from zinc_rt.ir.op import WMMA_FORMS, Op
from zinc_rt.validate.cases.sweep import (
    BLOCKS_OF_32,
    BLOCKS_OF_256,
    OTHERS,
    PLAIN,
    TYPES,
    Rooms,
    Sweep,
    pair_shapes,
)

MANY = {"tokens": 64}  # room for so many tokens is what matmul is for
ROOMS: Rooms = ({}, MANY)
N = (1, 3, 7, 8, 9, 15, 16, 17, 33)
T = (1, 2, 3, 4, 5, 8, 9)
FUSED = ("norm_w", "residual", "gate")  # options that a graph has where it is fused
OPTIONS = (FUSED, ("bias", *FUSED), ("scale", *FUSED), ("bias", "scale", *FUSED))
WITH_FUSED = (
    ("bias", "scale", "residual", "gate"),
    ("bias", "scale", "gate"),
    ("bias", "scale", "norm_w", "gate"),
    ("residual", "gate"),
    ("norm_w",),
    (),
)
GATED = (("bias", "scale"), ("bias", "scale", "residual"), ("scale",), ("bias", "scale", "gate"))
ONE = {"one": 1}
FEW = ("mixed", "edges", "outliers")

K_PLAIN = (1, 5, 31, 126, 127, 128, 129, 250, 320, 383, 512, 640, 1023, 1024, 1029)
K_OF_32 = (32, 64, 96, 128, 256, 320, 1024, 1056, 1120, 1920)
K_OF_256 = (256, 512, 768, 1024, 1280, 1792, 2304)
LONGEST = 17408  # the inner size of a down projection of 27 B
TALLEST = 17408

SWEEPS = (
    *(
        Sweep(
            Op.MATMUL,
            pair_shapes(T=T, N=N, K=k),
            types=types,
            without=OPTIONS,
            rooms=ROOMS,
            vectors=PLAIN,
            more=ONE,
        )
        for types, k in ((PLAIN, K_PLAIN), (BLOCKS_OF_32, K_OF_32), (BLOCKS_OF_256, K_OF_256))
    ),
    *(
        Sweep(
            Op.MATMUL,
            pair_shapes(T=(1, 2, 3), N=(17, 1, 33), K=k),
            ({"eps": 1e-6},),
            types=types,
            values=FEW,
            without=WITH_FUSED,
            rooms=ROOMS,
            vectors=PLAIN,
            more=ONE,
        )
        for types, k in (
            (PLAIN, (5, 131, 640, 2691)),
            (BLOCKS_OF_32, (96, 1056, 4736)),
            (BLOCKS_OF_256, (256, 2816)),
        )
    ),
    *(  # groups of a gated norm: less than a wave's step, a step, more than four groups for each of four waves
        Sweep(
            Op.MATMUL,
            pair_shapes(T=(1, 3, 2), N=(17, 1, 33), K=(f"norm_groups*{size}",)),
            ({"eps": 1e-6, "norm_groups": groups},),
            types=types,
            values=FEW,
            without=GATED,
            rooms=ROOMS,
            vectors=PLAIN,
            more=ONE,
        )
        for types, size, groups in (
            (PLAIN, 20, 5),
            (BLOCKS_OF_32, 128, 17),
            (BLOCKS_OF_256, 64, 8),
            (("q8_0", "f32"), 192, 3),
            (("mxfp4",), 64, 5),
        )
    ),
    Sweep(
        Op.MATMUL, pair_shapes(T=T, N=(17, 8), K=(256, 1280)), types=OTHERS, values=FEW, without=OPTIONS, more=ONE
    ),
    Sweep(  # whole groups, for kernels of tiles on matrix units
        Op.MATMUL,
        pair_shapes(T=(16, 17, 33), N=(16, 3, 70), K=(1024, 2048)),
        types=("q8_0", "q4_0"),
        values=("mixed", "edges"),
        without=(("bias", "scale", *FUSED),),
        rooms=ROOMS,
        more=ONE,
    ),
    Sweep(
        Op.MATMUL,
        ({"T": 1, "N": 3, "K": LONGEST}, {"T": 2, "N": TALLEST, "K": 256}),
        types=("f16", *BLOCKS_OF_32, *BLOCKS_OF_256),
        values=("plain",),
        without=(("bias", "scale", *FUSED),),
        rooms=({},),
        more=ONE,
    ),
    Sweep(
        Op.LM_HEAD,
        pair_shapes(T=(1, 6, 4), L=(1, 3, 4), V=(1, 17, 50, 320), D=(256, 512)),
        types=TYPES,
        values=FEW,
        without=(("bias",), ()),
        rooms=({}, {"tokens": 8, "rows": 4}),
    ),
    Sweep(
        Op.RMS_NORM_FUSED_QKV,
        pair_shapes(T=(1, 3, 5), D=(256, 512, 1280), Q=(32, 33, 1), K=(16, 17, 8), V=(7, 16, 3)),
        ({"eps": 1e-6},),
        types=TYPES,
        values=FEW,
        without=((), ("k_bias",), ("q_bias", "k_bias", "v_bias")),
        rooms=({}, {"tokens": 4}, MANY),
    ),
    Sweep(
        Op.RMS_NORM_FUSED_MLP_GATE_UP,
        pair_shapes(T=(1, 3, 5), D=(256, 512, 1280), F=(1, 16, 33)),
        tuple({"eps": 1e-5, "activation": activation} for activation in ("none", "silu", "gelu")),
        types=TYPES,
        values=FEW,
        rooms=({}, {"tokens": 4}, MANY),
    ),
    Sweep(
        Op.EMBED,
        pair_shapes(T=(1, 3, 5), V=(1, 9, 320), D=(256, 512, 1024, 1280)),
        types=TYPES,
        values=("mixed", "edges"),
        rooms=({}, {"tokens": 6}),
    ),
    Sweep(Op.EMBED, pair_shapes(T=(2,), V=(3,), D=(1, 33, 255, 257, 300)), types=PLAIN, values=("mixed", "edges")),
    Sweep(Op.EMBED, pair_shapes(T=(2,), V=(3,), D=(32, 96, 1120)), types=BLOCKS_OF_32, values=("mixed", "edges")),
    Sweep(
        Op.MLA_ABSORB,
        pair_shapes(T=(1, 3, 2)),
        (
            {"heads": 2, "nope": 256, "rope": 5, "latent": 18},
            {"heads": 1, "nope": 512, "rope": 64, "latent": 33},
        ),
        types=TYPES,
        values=("mixed", "outliers"),
    ),
    *(  # widths of partial and of whole groups of 64, in and out
        sweep
        for types, inner, latents in (
            ((*PLAIN, *BLOCKS_OF_32), (96, 64), (64, 33)),
            (BLOCKS_OF_256, (256,), (64,)),
        )
        for sweep in (
            Sweep(Op.LM_HEAD, pair_shapes(T=(3,), L=(2,), V=(64,), D=inner), types=types, values=("mixed",)),
            Sweep(
                Op.RMS_NORM_FUSED_QKV,
                pair_shapes(T=(1, 3), D=inner, Q=(128,), K=(64,), V=(64,)),
                ({"eps": 1e-6},),
                types=types,
                values=("mixed",),
                without=((), ("q_bias", "k_bias", "v_bias")),
            ),
            Sweep(
                Op.RMS_NORM_FUSED_MLP_GATE_UP,
                pair_shapes(T=(1, 3), D=inner, F=(64,)),
                ({"eps": 1e-6, "activation": "silu"},),
                types=types,
                values=("mixed",),
            ),
            Sweep(
                Op.MLA_ABSORB,
                pair_shapes(T=(1, 3)),
                tuple({"heads": 2, "nope": inner[-1], "rope": 5, "latent": latent} for latent in latents),
                types=types,
                values=("mixed",),
            ),
        )
    ),
    *(  # at the edges of a workgroup's 128 tokens and 64 rows, of a step of 128 and of a tile of 16
        Sweep(
            op,
            pair_shapes(T=(1, 33, 129), N=(65, 17, 33), K=k),
            types=types,
            values=("mixed", "edges"),
            without=(("bias", "scale"), ()),
            rooms=({}, {"tokens": 192}),
            more=ONE,
        )
        for op, types, k in (
            *(
                (forms[Op.MATMUL], types, k)
                for forms in WMMA_FORMS.values()
                for types, k in (
                    (PLAIN, (4, 260, 388)),
                    (BLOCKS_OF_32, (96, 1184)),
                    (BLOCKS_OF_256, (256, 1280)),
                    (OTHERS, (256,)),
                )
            ),
            (Op.MATMUL_WMMA_Q4K, ("q4_k",), (256, 1024)),
        )
    ),
)
