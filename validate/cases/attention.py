"""Cases of RoPE, the paged cache and attention: positions at the edges of pages, groups of 32 and chunks of 256
keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.ir.op import Op
from zinc_rt.validate.cases.sweep import (
    BLOCKS_OF_32,
    BLOCKS_OF_256,
    OTHERS,
    PLAIN,
    TYPES,
    Rooms,
    Sweep,
    combine_shapes,
    pair_shapes,
)

FEW = ("mixed", "edges", "outliers")
ROOMS: Rooms = ({}, {"tokens": 6})
# A slot has one page more than it needs; what no query sees is NaN.
PAGES = {"pages": "(ctx + page_tokens - 1)//page_tokens + 1", "kv_rows": "slots*pages*page_tokens"}
MANY_PAGES: Mapping[str, int | str] = {
    "pages": 96,
    "kv_rows": "slots*pages*page_tokens",
}  # whatever of them is written
SINKS = (("sinks",), ())
CONTEXTS = (1, 2, 8, 9, 16, 17, 31, 32, 33, 255, 256, 257, 513)


def _attention_attrs(heads: int, kv_heads: int, head_dim: int, value_dim: int, **more: int) -> dict[str, object]:
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "value_dim": value_dim,
        "scale": head_dim**-0.5,
        "page_tokens": 16,
        **more,
    }


SMALL_HEADS = tuple(
    _attention_attrs(*item)
    for item in ((1, 1, 4, 4), (6, 3, 16, 16), (8, 1, 64, 64), (3, 1, 128, 64), (4, 2, 128, 128), (5, 5, 20, 16))
)
WIDE_HEADS = tuple(
    _attention_attrs(*item)
    for item in (
        (2, 1, 132, 4),
        (2, 1, 192, 128),
        (2, 2, 256, 256),
        (1, 1, 320, 512),
        (2, 1, 512, 512),
        (1, 1, 12, 388),
    )
)
LONGEST_HEADS = (
    _attention_attrs(2, 1, 576, 516),
    _attention_attrs(1, 1, 2048, 2048),
    _attention_attrs(2, 2, 7, 2),
)
WINDOWS = tuple(_attention_attrs(2, 1, 32, 32, window=window) for window in (1, 2, 31, 32, 33, 256, 257, 5000))
CAPS = tuple(
    _attention_attrs(*item) | {"cap": cap}
    for item in ((2, 1, 32, 32), (4, 2, 128, 64), (2, 2, 256, 256), (2, 2, 7, 2))
    for cap in (0.5, 50.0)
)
PAGE_SIZES = tuple(_attention_attrs(2, 1, 20, 20) | {"page_tokens": page} for page in (1, 2, 8, 32, 128, 512))

# Caches of keys and values in fewer bits: writes, widths of heads, windows, caps, latents, shared chunks.
CACHE_SWEEPS = tuple(
    sweep
    for kv in ("f16", "q8_0")
    for sweep in (
        Sweep(
            Op.KV_WRITE_BATCHED,
            pair_shapes(T=(1, 4, 3), ctx=(71, 16), slots=(3, 1), K=(64, 512, 1088), V=(32, 640)),
            ({"page_tokens": 16},),
            rooms=ROOMS,
            more=PAGES,
            kv=kv,
        ),
        Sweep(
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            pair_shapes(
                T=(1, 3), ctx=(20, 33), slots=(2, 1), Q=("3*head_dim",), K=("2*head_dim", "head_dim"), V=(64,)
            ),
            tuple({"eps": 1e-6, "head_dim": dim, "mode": "neox", "page_tokens": 16} for dim in (32, 128)),
            values=FEW,
            without=((), ("q_norm_w", "k_norm_w")),
            rooms=ROOMS,
            more={"R": "head_dim//2", **PAGES},
            kv=kv,
        ),
        *(
            Sweep(
                op,
                pair_shapes(T=(1, 3), ctx=(41, 773), slots=(2, 1)),
                heads,
                values=FEW,
                without=SINKS,
                rooms=ROOMS,
                more=PAGES,
                kv=kv,
            )
            for op, heads in (
                (
                    Op.FLASH_ATTN,
                    (
                        _attention_attrs(4, 2, 64, 32, gate_skip=7),
                        _attention_attrs(2, 1, 256, 256),
                        _attention_attrs(2, 1, 32, 32, window=300),
                    ),
                ),
                (Op.FLASH_ATTN_BATCHED, (_attention_attrs(6, 3, 128, 128) | {"cap": 1.5},)),
            )
        ),
        *(
            Sweep(
                Op.MLA_FLASH_ATTN,
                ({"T": 3, "ctx": 273, "slots": 2},),
                ({"heads": 3, "latent": latent, "rope": 32, "value_dim": 5, "scale": 0.1, "page_tokens": 16},),
                values=FEW,
                rooms=ROOMS,
                more=pages,
                kv=kv,
            )
            for latent, pages in ((96, MANY_PAGES), (256, PAGES), (608, PAGES))
        ),
        Sweep(  # chunks shared out, of heads of each width
            Op.FLASH_ATTN,
            ({"T": 3, "ctx": 773, "slots": 2},),
            (
                _attention_attrs(4, 2, 128, 64),
                _attention_attrs(2, 1, 256, 256, gate_skip=256),
                _attention_attrs(2, 1, 32, 32, window=1025),
            ),
            values=FEW,
            rooms=ROOMS,
            more=MANY_PAGES,
            kv=kv,
        ),
        Sweep(  # wider heads and smaller pages than most kernels take
            Op.FLASH_ATTN_BATCHED,
            ({"T": 3, "ctx": 41, "slots": 2},),
            (_attention_attrs(2, 1, 576, 544), _attention_attrs(4, 2, 32, 64) | {"page_tokens": 2}),
            values=FEW,
            more=PAGES,
            kv=kv,
        ),
        Sweep(  # a head that a wave rounds in parts, and heads with other columns behind them
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            ({"T": 3, "Q": "2*(head_dim + q_skip)", "K": "head_dim", "V": 96, "R": "head_dim//4"},),
            tuple(
                {"eps": 1e-6, "head_dim": dim, "mode": "norm", "page_tokens": 2, "q_skip": skip}
                for dim, skip in ((1088, 0), (96, 5))
            ),
            values=FEW,
            without=((), ("k_norm_w",)),
            more={"ctx": 33, "slots": 2, **PAGES},
            kv=kv,
        ),
    )
)
HALF_SWEEPS = (  # rows of f16 that are not whole words
    Sweep(
        Op.KV_WRITE_BATCHED,
        pair_shapes(T=(4, 3), ctx=(71, 16), slots=(3, 1), K=(1, 514, 1030), V=(3, 511)),
        ({"page_tokens": 2},),
        more=PAGES,
        kv="f16",
    ),
    Sweep(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        ({"T": 3, "ctx": 33, "slots": 2, "Q": "head_dim", "K": "3*head_dim", "V": 9, "R": "head_dim//2"},),
        tuple(
            {"eps": 1e-6, "head_dim": dim, "mode": mode, "page_tokens": 16}
            for dim in (7, 66)
            for mode in ("norm", "neox")
        ),
        values=FEW,
        more=PAGES,
        kv="f16",
    ),
    Sweep(
        Op.FLASH_ATTN,
        pair_shapes(T=(1, 3), ctx=(41, 270), slots=(2, 1)),
        (_attention_attrs(3, 1, 20, 12), _attention_attrs(2, 2, 7, 3) | {"cap": 1.5}),
        values=FEW,
        more=PAGES,
        kv="f16",
    ),
    Sweep(
        Op.MLA_FLASH_ATTN,
        ({"T": 3, "ctx": 273, "slots": 2},),
        ({"heads": 3, "latent": 64, "rope": 16, "value_dim": 5, "scale": 0.1, "page_tokens": 16},),
        values=FEW,
        more=PAGES,
        kv="f16",
    ),
)

SWEEPS = (
    *CACHE_SWEEPS,
    *HALF_SWEEPS,
    Sweep(
        Op.ROPE,
        pair_shapes(T=(1, 3), K=("head_dim", "3*head_dim"), R=(1,), ctx=(9,)),
        tuple(
            {"head_dim": dim, "mode": mode, "offset": offset}
            for dim, offset in ((2, 0), (7, 1), (6, 3), (64, 5))
            for mode in ("norm", "neox")
        ),
        values=FEW,
        rooms=ROOMS,
    ),
    Sweep(
        Op.ROPE,
        pair_shapes(T=(1, 3), K=("2*head_dim", "head_dim"), R=("head_dim//2", "head_dim//4"), ctx=(320, 9)),
        tuple(
            {"head_dim": dim, "mode": mode, "offset": 0}
            for dim in (4, 16, 64, 66, 128, 192, 256, 512)
            for mode in ("norm", "neox")
        ),
        values=FEW,
        rooms=ROOMS,
    ),
    Sweep(
        Op.KV_WRITE_BATCHED,
        pair_shapes(T=(1, 4, 3), ctx=(71, 16, 320), slots=(3, 1), K=(1, 40, 512, 1030), V=(3, 600, 511, 64)),
        tuple({"page_tokens": page} for page in (1, 2, 16, 64)),
        values=("mixed", "edges"),
        rooms=ROOMS,
        more=PAGES,
    ),
    Sweep(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        pair_shapes(
            T=(1, 3),
            ctx=(20, 33),
            slots=(2, 1, 3),
            Q=("3*head_dim", "head_dim"),
            K=("2*head_dim", "head_dim"),
            V=(48, 1, 512, 1100),
            R=("head_dim//2", "head_dim//3"),
        ),
        tuple(
            {"eps": 1e-6, "head_dim": dim, "mode": mode, "page_tokens": 16}
            for dim in (3, 16, 64, 128, 130, 256)
            for mode in ("norm", "neox")
        ),
        values=FEW,
        without=((), ("q_norm_w",), ("k_norm_w",), ("q_norm_w", "k_norm_w")),
        rooms=ROOMS,
        more=PAGES,
    ),
    Sweep(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        ({"T": 3, "ctx": 33, "slots": 2, "Q": 32, "K": 16, "V": 48, "R": 8},),
        ({"eps": 1e-6, "head_dim": 16, "mode": "neox", "page_tokens": 32},),
        values=("mixed",),
        more=PAGES,
    ),
    Sweep(  # with the projections before it: fewer and more parts than a workgroup has waves
        Op.QKV_FUSED_ROPE_KV_WRITE,
        pair_shapes(
            T=(1, 3),
            D=(256, 512),
            Q=("3*(head_dim + q_skip)", "head_dim + q_skip"),
            K=("2*head_dim", "head_dim"),
            V=(48, 600),
            R=("head_dim//2",),
        ),
        tuple(
            {"eps": 1e-5, "head_dim": dim, "mode": mode, "page_tokens": 16, "q_skip": skip}
            for dim, mode, skip in ((16, "norm", 0), (64, "neox", 64))
        ),
        types=TYPES,
        values=("mixed", "edges"),
        without=((), ("q_norm_w",), ("q_norm_w", "k_norm_w")),
        rooms=ROOMS,
        more={"ctx": 33, "slots": 2, **PAGES},
    ),
    *(  # with pages of another size, caches of each type, and values of whole and of partial groups of 64
        Sweep(
            Op.QKV_FUSED_ROPE_KV_WRITE,
            pair_shapes(T=(1, 3), D=inner, Q=("2*head_dim",), K=("head_dim",), V=(64, 32)),
            ({"eps": 1e-5, "head_dim": 32, "mode": "neox", "page_tokens": 32, "q_skip": 0},),
            types=types,
            values=("mixed",),
            more={"R": 16, "ctx": 33, "slots": 2, **PAGES},
            kv=kv,
        )
        for kv in CACHE_TYPES
        for types, inner in (((*PLAIN, *BLOCKS_OF_32), (96, 128)), (BLOCKS_OF_256, (256,)))
    ),
    Sweep(  # heads with other columns behind them
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        pair_shapes(T=(1, 3), Q=("3*(head_dim + q_skip)",), K=("2*head_dim", "head_dim"), R=("head_dim//2",)),
        tuple(
            {"eps": 1e-6, "head_dim": dim, "mode": "neox", "page_tokens": 16, "q_skip": skip}
            for dim, skip in ((16, 3), (256, 256))
        ),
        values=FEW,
        without=((), ("q_norm_w",)),
        rooms=ROOMS,
        more={"ctx": 33, "slots": 2, "V": 48, **PAGES},
    ),
    Sweep(
        Op.FLASH_ATTN,
        combine_shapes(T=1, ctx=CONTEXTS, slots=1),
        (_attention_attrs(2, 2, 32, 32),),
        without=SINKS,
        more=PAGES,
    ),
    *(
        Sweep(
            op,
            pair_shapes(T=(1, 3), ctx=(41, 270), slots=(2, 1)),
            heads,
            values=FEW,
            without=SINKS,
            rooms=ROOMS,
            more=PAGES,
        )
        for op in (Op.FLASH_ATTN, Op.FLASH_ATTN_BATCHED)
        for heads in (SMALL_HEADS, WIDE_HEADS)
    ),
    Sweep(
        Op.FLASH_ATTN,
        ({"T": 3, "ctx": 41, "slots": 2},),
        LONGEST_HEADS,
        values=("mixed", "edges"),
        without=SINKS,
        more=PAGES,
    ),
    Sweep(
        Op.FLASH_ATTN, pair_shapes(T=(3,), ctx=(300,), slots=(1,)), WINDOWS, values=FEW, without=SINKS, more=PAGES
    ),
    Sweep(Op.FLASH_ATTN, pair_shapes(T=(3,), ctx=(300,), slots=(1,)), CAPS, values=FEW, without=SINKS, more=PAGES),
    *(
        Sweep(op, pair_shapes(T=(5,), ctx=(290,), slots=(2,)), sizes, values=FEW, without=SINKS, more=PAGES)
        for op, sizes in ((Op.FLASH_ATTN_BATCHED, PAGE_SIZES), (Op.FLASH_ATTN, PAGE_SIZES[-2:-1]))
    ),
    *(
        Sweep(
            op,
            pair_shapes(T=(1, 3), ctx=(41, 773), slots=(2, 1)),
            tuple(_attention_attrs(8, 2, 64, 64, window=window) for window in (0, 33)),
            values=FEW,
            without=without,
            rooms=ROOMS,
            more=PAGES,
        )
        for op, without in ((Op.FLASH_ATTN, (("gate",),)), (Op.FLASH_ATTN_BATCHED, ((),)))
    ),
    Sweep(  # gates with other columns before them
        Op.FLASH_ATTN,
        ({"T": 2, "ctx": 41, "slots": 2}, {"T": 1, "ctx": 1300, "slots": 1}),
        (_attention_attrs(4, 2, 64, 32, gate_skip=7), _attention_attrs(2, 1, 256, 256, gate_skip=256)),
        values=FEW,
        without=SINKS,
        more=PAGES,
    ),
    Sweep(
        Op.FLASH_ATTN,
        ({"T": 1, "ctx": 2049, "slots": 1},),
        (_attention_attrs(4, 2, 128, 128),),
        values=("mixed", "edges"),
        without=SINKS,
        more=PAGES,
    ),
    # Chunks of 256 keys shared out: of heads of each width, of windows, of latents.
    Sweep(
        Op.FLASH_ATTN,
        ({"T": 3, "ctx": 773, "slots": 2}, {"T": 1, "ctx": 768, "slots": 1}),
        (
            _attention_attrs(2, 1, 20, 20),
            _attention_attrs(4, 2, 128, 64),
            _attention_attrs(2, 1, 256, 256),
            _attention_attrs(2, 1, 32, 32, window=1025),
            _attention_attrs(2, 1, 32, 32) | {"cap": 1.5},
            _attention_attrs(2, 1, 256, 256) | {"cap": 1.5},
        ),
        values=FEW,
        without=SINKS,
        rooms=ROOMS,
        more=MANY_PAGES,
    ),
    Sweep(
        Op.MLA_FLASH_ATTN,
        ({"T": 3, "ctx": 773, "slots": 2},),
        ({"heads": 3, "latent": 64, "rope": 12, "value_dim": 5, "scale": 0.1, "page_tokens": 16},),
        values=FEW,
        rooms=ROOMS,
        more=MANY_PAGES,
    ),
    Sweep(
        Op.MLA_EXPAND,
        combine_shapes(T=(1, 3)),
        (
            {"heads": 3, "nope": 7, "rope": 5, "value_dim": 9},
            {"heads": 1, "nope": 128, "rope": 64, "value_dim": 128},
        ),
        values=FEW,
        rooms=ROOMS,
    ),
    Sweep(
        Op.MLA_FLASH_ATTN,
        pair_shapes(T=(1, 4), ctx=(1, 33, 270), slots=(1, 3)),
        (
            {"heads": 18, "latent": 32, "rope": 9, "value_dim": 11, "scale": 0.1, "page_tokens": 4},
            {"heads": 2, "latent": 256, "rope": 64, "value_dim": 17, "scale": 0.1, "page_tokens": 16},
        ),
        types=("f32", "f16", "q8_0"),
        values=FEW,
        rooms=ROOMS,
        more=PAGES,
    ),
    *(  # weights of each type, with latents of whole blocks, pages of another size and caches of each type
        Sweep(
            Op.MLA_FLASH_ATTN,
            pair_shapes(T=(1, 3), ctx=(35, 20), slots=(1, 2)),
            tuple(
                {"heads": 2, "latent": latent, "rope": 32, "value_dim": value, "scale": 0.1, "page_tokens": page}
                for latent, value, page in shapes
            ),
            types=types,
            values=("mixed",),
            more=PAGES,
            kv=kv,
        )
        for kv in CACHE_TYPES
        for types, shapes in (
            ((*PLAIN, *BLOCKS_OF_32), ((96, 64, 32), (64, 5, 16))),
            (BLOCKS_OF_256, ((256, 64, 32), (256, 5, 16))),
            (OTHERS, ((256, 5, 16),)),
        )
        if kv == "f32" or types is not OTHERS
    ),
    Sweep(
        Op.MLA_FLASH_ATTN,
        ({"T": 2, "ctx": 35, "slots": 1},),
        tuple(
            {"heads": 2, "latent": latent, "rope": rope, "value_dim": 6, "scale": 0.1, "page_tokens": 16}
            for latent, rope in ((512, 64), (608, 1))
        ),
        more=PAGES,
    ),
)
