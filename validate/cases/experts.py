"""Cases of mixtures of experts: the router, the experts' projections and their sum, the shared expert."""

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

ROOMS: Rooms = ({}, {"tokens": 4})
FEW = ("mixed", "edges", "outliers")
SCALES = ((), ("gate_scale",), ("gate_scale", "up_scale"))

EXPERTS = ("expert_gate_w", "expert_up_w", "gate_scale", "up_scale")  # of a router, where the graph is fused
BIASES = ("gate_bias", "up_bias")

SWEEPS = (
    # the bias in order moves the choice to the last experts, behind whole passes of the workgroup
    Sweep(
        Op.MOE_GATE_TOPK,
        pair_shapes(T=(1, 2), D=(64,), E=(12, 127, 128, 129, 130, 257, 512)),
        ({"k": 1}, {"k": 10}),
        values=("rising",),
        without=(("norm_w", *EXPERTS),),
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        # as far as 512 experts, and around a workgroup's 128
        pair_shapes(T=(1, 3, 2), D=(64, 256), E=(8, 16, 32, 127, 128, 130, 256, 512)),
        ({"k": 1}, {"k": 4, "scale": 2.5}, {"k": 8, "renormalise": False}, {"k": 6, "scale": 0.0}),
        without=(("norm_w", *EXPERTS), ("select_bias", "norm_w", *EXPERTS), EXPERTS),
        rooms=ROOMS,
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        pair_shapes(T=(2,), D=(64,), E=(1, 3, 12)),
        ({"k": 1},),
        values=("mixed", "edges", "ties", "zeros"),
        without=(("norm_w", *EXPERTS),),
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        ({"T": 2, "D": 32, "E": 12},),
        ({"k": 12},),
        values=("mixed", "edges", "zeros"),
        without=(("norm_w", *EXPERTS),),
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        ({"T": 5, "D": 64, "E": 20}, {"T": 1, "D": 256, "E": 40}),
        (
            {"k": 3, "gating": "sigmoid", "renormalise": False, "groups": 5, "groups_used": 2},
            {"k": 4, "gating": "sigmoid", "scale": 2.5},
        ),
        without=(("norm_w", *EXPERTS), ("select_bias", "norm_w", *EXPERTS), EXPERTS),
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        ({"T": 2, "D": 256, "E": 17},),
        ({"k": 3},),
        types=TYPES[1:],
        values=("mixed",),
        without=(("norm_w", *EXPERTS), EXPERTS),
    ),
    Sweep(  # the router with the experts' first projections
        Op.MOE_GATE_TOPK,
        pair_shapes(T=(1, 3, 2), D=(256, 512), E=(5, 130, 16), F=(9, 17, 33)),
        (
            {"k": 2, "activation": "silu", "eps": 1e-5},
            {"k": 5, "activation": "gelu"},
            {"k": 1, "gating": "sigmoid", "scale": 2.5},
        ),
        types=TYPES,
        values=FEW,
        without=(
            ("gate_scale", "up_scale", "bias"),
            ("select_bias", "bias"),
            ("norm_w", "select_bias", "gate_scale", "bias"),
            ("select_bias", "gate_scale", "up_scale", "bias"),
            ("select_bias", "norm_w", "gate_scale", "up_scale", "bias"),
        ),
        rooms=({}, {"tokens": 4}, {"tokens": 64}),
        vectors=("f32",),
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        ({"T": 2, "D": 256, "E": 20, "F": 16},),
        ({"k": 3, "gating": "sigmoid", "renormalise": False, "groups": 5, "groups_used": 2},),
        types=("f32", "q8_0", "q4_k"),
        values=(*FEW, "ties", "zeros"),
        without=((), ("gate_scale", "up_scale", "bias")),
    ),
    Sweep(
        Op.MOE_GATE_UP,
        pair_shapes(T=(1, 3, 2), D=(256, 512, 1280), E=(5, 4, 16), F=(1, 9, 33), k=(2, 1, 4)),
        tuple({"activation": activation} for activation in ("none", "silu", "gelu")),
        types=TYPES,
        values=FEW,
        without=tuple((*names, *BIASES) for names in (*SCALES, ("norm_w",), ("gate_scale", "up_scale", "norm_w"))),
        rooms=ROOMS,
        vectors=PLAIN,
    ),
    Sweep(
        Op.MOE_DOWN_ACC,
        pair_shapes(T=(1, 3, 2), E=(5, 4, 16), D=(1, 131, 33, 256), F=(256, 512), k=(2, 1, 4)),
        types=TYPES,
        values=FEW,
        without=tuple(
            (*names, "bias")
            for names in (
                ("residual",),
                ("hidden",),
                ("expert_scale",),
                ("expert_scale", "hidden", "residual"),
                (),
            )
        ),
        rooms=ROOMS,
        vectors=PLAIN,
    ),
    Sweep(  # with the experts' biases
        Op.MOE_GATE_UP,
        pair_shapes(T=(1, 3, 2), D=(256, 512), E=(5, 4, 16), F=(1, 9, 33, 2100), k=(2, 1, 4)),
        tuple({"activation": activation} for activation in ("clamped", "none", "silu")),
        types=("f32", "q8_0", "mxfp4"),
        values=FEW,
        without=(("gate_scale", "up_scale", "norm_w"), ("gate_scale", "norm_w", "up_bias"), ("up_scale",)),
        rooms=ROOMS,
    ),
    Sweep(
        Op.MOE_GATE_UP,
        ({"T": 2, "D": 256, "E": 5, "F": 9, "k": 2},),
        ({"activation": "clamped"},),
        types=TYPES[1:],
        values=("mixed",),
        without=(("gate_scale", "up_scale", "norm_w"), ("gate_scale", "up_scale")),
    ),
    Sweep(
        Op.MOE_DOWN_ACC,
        pair_shapes(T=(1, 3, 2), E=(5, 4, 16), D=(1, 131, 33, 2100), F=(256, 512), k=(2, 1, 4)),
        types=("f32", "q8_0", "mxfp4"),
        values=FEW,
        without=(
            ("expert_scale", "hidden", "residual"),
            ("expert_scale", "hidden"),
            ("expert_scale", "residual"),
            (),
        ),
        rooms=ROOMS,
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        pair_shapes(T=(1, 3), D=(64, 256), E=(8, 32, 128, 130)),
        tuple({"k": k, "gating": "softmax_selected"} for k in (1, 4, 8)),
        values=("mixed", "edges", "ties", "zeros"),
        without=(("select_bias", "norm_w", *EXPERTS), ("select_bias", *EXPERTS), ("norm_w", *EXPERTS)),
        rooms=ROOMS,
    ),
    Sweep(
        Op.MOE_GATE_TOPK,
        ({"T": 2, "D": 256, "E": 17},),
        ({"k": 3, "gating": "softmax_selected"},),
        types=TYPES[1:],
        values=("mixed",),
        without=(("select_bias", *EXPERTS), ("select_bias", "norm_w", *EXPERTS)),
    ),
    Sweep(
        Op.SHARED_EXPERT,
        pair_shapes(T=(1, 3, 2), D=(256, 512), F=(256, 512, 256)),
        types=TYPES,
        values=FEW,
        without=(
            (),
            ("norm_w",),
            ("gate_inp",),
            ("hidden", "gate_scale", "up_scale", "down_scale"),
            ("down_scale", "norm_w"),
            ("gate_inp", "hidden"),
        ),
        rooms=({}, {"tokens": 4}, {"tokens": 64}),
        more={"one": 1},
    ),
    Sweep(
        Op.SHARED_EXPERT,
        pair_shapes(T=(1, 5), D=(160, 96), F=(64, 32)),
        types=BLOCKS_OF_32,
        values=FEW,
        without=((), ("gate_inp", "hidden")),
        more={"one": 1},
    ),
    *(  # widths of partial and of whole groups of 64, and the router's other choices, for each type
        sweep
        for types, inner in (((*PLAIN, *BLOCKS_OF_32), 96), (BLOCKS_OF_256, 256))
        for sweep in (
            Sweep(
                Op.MOE_GATE_TOPK,
                pair_shapes(T=(1, 3), D=(inner,), E=(12,), F=(64,)),
                ({"k": 2, "gating": "sigmoid", "renormalise": False, "groups": 3, "groups_used": 2},),
                types=types,
                values=("mixed",),
                without=((), ("gate_scale", "up_scale"), EXPERTS),
            ),
            Sweep(
                Op.MOE_GATE_TOPK,
                pair_shapes(T=(1, 3), D=(inner,), E=(12,), F=(64,)),
                ({"k": 2},),
                types=types,
                values=("mixed",),
                without=(("select_bias", "norm_w", "gate_scale", "up_scale"),),
            ),
            Sweep(
                Op.MOE_GATE_UP,
                pair_shapes(T=(1, 3), D=(inner,), E=(4,), F=(64,), k=(2,)),
                ({"activation": "silu"},),
                types=types,
                values=("mixed",),
                without=SCALES,
            ),
            Sweep(
                Op.MOE_DOWN_ACC,
                pair_shapes(T=(1, 3), E=(4,), D=(64,), F=(inner,), k=(2,)),
                types=types,
                values=("mixed",),
                without=(("residual",), ()),
            ),
            Sweep(
                Op.SHARED_EXPERT,
                pair_shapes(T=(1, 3), D=(inner,), F=(inner,)),
                types=types,
                values=("mixed",),
                without=((), ("gate_inp",)),
                more={"one": 1},
            ),
        )
    ),
    *(  # on matrix cores: tiles of 32 pairs and 64 rows, experts with no pairs and with all of them, tails of k
        sweep
        for forms in WMMA_FORMS.values()
        for types, inner in ((PLAIN, (4, 260, 388)), (BLOCKS_OF_32, (96, 1184)), (BLOCKS_OF_256, (256, 1280)))
        for sweep in (
            Sweep(
                forms[Op.MOE_GATE_UP],
                pair_shapes(T=(1, 33, 70), D=inner, E=(1, 40, 3), F=(65, 1, 16), k=(1, 5, 2)),
                ({"activation": "none"},),
                types=types,
                values=("mixed", "edges"),
                without=(("gate_scale", "up_scale", "norm_w"), ("norm_w", *BIASES)),
                rooms=({}, {"tokens": 96}),
            ),
            Sweep(
                forms[Op.MOE_DOWN_ACC],
                pair_shapes(T=(1, 33, 70), E=(1, 40, 3), D=(65, 1, 16), F=inner, k=(1, 5, 2)),
                types=types,
                values=("mixed", "edges"),
                without=((), ("expert_scale", "hidden", "residual", "bias")),
                rooms=({}, {"tokens": 96}),
            ),
            Sweep(
                forms[Op.SHARED_EXPERT],
                pair_shapes(T=(1, 34), D=inner[:1], F=inner[:1]),
                types=types,
                values=("mixed",),
                without=((), ("gate_inp", "hidden", "gate_scale", "up_scale", "down_scale", "norm_w")),
                more={"one": 1},
            ),
        )
    ),
    *(
        sweep
        for forms in WMMA_FORMS.values()
        for sweep in (
            Sweep(
                forms[Op.MOE_GATE_UP],
                ({"T": 3, "D": 256, "E": 4, "F": 17, "k": 2},),
                ({"activation": "clamped"},),
                types=OTHERS,
                values=("mixed",),
                without=(("gate_scale", "up_scale", "norm_w"),),
            ),
            Sweep(
                forms[Op.MOE_DOWN_ACC],
                ({"T": 3, "E": 4, "D": 17, "F": 256, "k": 2},),
                types=OTHERS,
                values=("mixed",),
                without=((),),
            ),
            Sweep(
                forms[Op.SHARED_EXPERT],
                ({"T": 3, "D": 256, "F": 256},),
                types=OTHERS,
                values=("mixed",),
                without=((),),
                more={"one": 1},
            ),
        )
    ),
)
