"""Cases of sampling: from logits to tokens, verification of drafts, updates of rings and page tables."""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.validate.cases.sweep import ALL, Rooms, Sweep, combine_shapes, pair_shapes

# Around a workgroup's 1,024 logits and the native set's steps; 151,936 is a real vocabulary.
VOCABULARIES = (1, 2, 31, 33, 320, 1023, 1024, 1025, 5003)
ROOMS: Rooms = ({}, {"rows": 8})
SLOTS = {"slots": 11, "words": 64, "P": 7}

SWEEPS = (
    Sweep(Op.ARGMAX, pair_shapes(L=(1, 3), V=VOCABULARIES), values=(*ALL, "rising"), rooms=ROOMS),
    Sweep(Op.ARGMAX, ({"L": 1, "V": 151936},), values=("plain", "ties", "rising")),
    Sweep(
        Op.SAMPLE,
        pair_shapes(L=(6, 1, 7), V=VOCABULARIES),
        values=(*ALL, "rising"),
        rooms=ROOMS,
        more={"two": 2, "four": 4},
    ),
    Sweep(Op.SAMPLE, ({"L": 2, "V": 20011},), values=("plain", "ties"), more={"two": 2, "four": 4}),
    Sweep(
        Op.LOGITS_ADJUST,
        pair_shapes(L=(5, 1, 8), V=VOCABULARIES, biases=(1, 1, 7, 33, 300), ends=(1, 3)),
        rooms=({}, {"rows": 9}),
        without=((), ("mask", "mask_row"), ("bias_id", "bias_value")),
        more={**SLOTS, "B": 3, "M": 2},
    ),
    Sweep(
        Op.SAMPLE_SLOTS, pair_shapes(L=(6, 1, 7), V=VOCABULARIES), values=(*ALL, "rising"), rooms=ROOMS, more=SLOTS
    ),
    Sweep(
        Op.LOGPROBS,
        pair_shapes(L=(3, 1, 7), V=VOCABULARIES[2:]),
        attrs=({"top": 1}, {"top": 20}),
        values=(*ALL, "rising"),
        rooms=ROOMS,
    ),
    Sweep(Op.LOGPROBS, ({"L": 1, "V": 151936},), attrs=({"top": 5},), values=("plain", "ties")),
    Sweep(
        Op.STREAM_OUT,
        pair_shapes(L=(1, 8, 5, 2), capacity=(4, 4, 3, 1000)),
        values=("plain",),
        rooms=ROOMS,
        more={"one": 1, "four": 4, "slots": 11, "words": 64},
    ),
    Sweep(
        Op.VERIFY_K,
        pair_shapes(S=(1, 40, 3, 33), K=(3, 1, 8, 2)),
        values=("plain",),
        rooms=({}, {"sequences": 64}),
        more={"slots": 7},
    ),
    Sweep(
        Op.TABLE_STORE,
        combine_shapes(E=(1, 31, 32, 33, 100), slots=(6,), pages=(40,)),
        values=("plain",),
        rooms=({}, {"entries": 120}),
    ),
)
