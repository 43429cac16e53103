"""Sizes of real models for timings: the largest operation of each kernel in a layer of a 27 B model or a 35 B
mixture of experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import Case
from zinc_rt.validate.cases.sweep import BLOCKS_OF_32, BLOCKS_OF_256, PLAIN

HIDDEN, INNER, VOCABULARY = 5120, 17408, 151936
_PAGED = {"pages": 257, "kv_rows": 257 * 16, "slots": 1}
_HEADS = {"heads": 32, "kv_heads": 8, "head_dim": 128, "value_dim": 128, "scale": 0.088, "page_tokens": 16}
_WIDE = {**_HEADS, "heads": 16, "kv_heads": 4, "head_dim": 256, "value_dim": 256}
_DELTA = {"k_heads": 16, "v_heads": 48, "head_dim": 128, "eps": 1e-6, "grouping": "tiled"}
_TYPES = (*PLAIN, *BLOCKS_OF_32, *BLOCKS_OF_256)
_OPTIONS = ("bias", "scale", "norm_w", "residual")
_SLOTS = {"slots": 1, "words": 64, "P": 1}


def _of(**dims: int) -> dict[str, int]:
    return dims


def _plain(
    op: Op,
    dims: Mapping[str, int],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtype: str = "f32",
    without: tuple[str, ...] = (),
) -> Case:
    return Case(op, dims, attrs or {}, dtype, without=without, values="plain")


CASES: tuple[Case, ...] = (
    *(_plain(Op.MATMUL, _of(T=1, N=INNER, K=HIDDEN, one=1), dtype=d, without=_OPTIONS) for d in _TYPES),
    *(_plain(Op.MATMUL, _of(T=64, N=1024, K=HIDDEN, one=1), dtype=d, without=_OPTIONS) for d in _TYPES),
    *(_plain(Op.EMBED, _of(T=1, V=1024, D=HIDDEN), dtype=d) for d in _TYPES),
    _plain(Op.LM_HEAD, _of(T=1, L=1, V=VOCABULARY, D=1024), dtype="q6_k", without=("bias",)),
    _plain(Op.RMS_NORM, _of(T=1, K=HIDDEN), {"size": HIDDEN, "eps": 1e-6}, without=("residual",)),
    _plain(Op.RESIDUAL_RMS_NORM, _of(T=1, D=HIDDEN), {"eps": 1e-6}),
    *(_plain(op, _of(T=1, N=INNER)) for op in (Op.ADD, Op.SIGMOID_MUL)),
    *(_plain(op, _of(T=1, rest=INNER)) for op in (Op.SWIGLU, Op.GEGLU)),
    _plain(Op.SCALE, _of(T=1, N=HIDDEN, one=1), {"factor": 0.5}, without=("weight",)),
    _plain(Op.ROW_SCALE, _of(T=1, N=HIDDEN, ctx=64)),
    _plain(Op.SOFTCAP, _of(T=1, N=VOCABULARY), {"cap": 30.0}),
    _plain(Op.SLICE, _of(T=1, N=12288), {"group": 512, "offset": 0, "size": 256}),
    _plain(Op.ROPE, _of(T=1, K=4096, R=64, ctx=4096), {"head_dim": 128, "mode": "neox", "offset": 0}),
    _plain(Op.KV_WRITE_BATCHED, _of(T=1, ctx=4096, K=1024, V=1024, **_PAGED), {"page_tokens": 16}),
    _plain(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        _of(T=1, ctx=4096, Q=4096, K=1024, V=1024, R=64, **_PAGED),
        {"eps": 1e-6, "head_dim": 128, "mode": "neox", "page_tokens": 16},
    ),
    _plain(Op.FLASH_ATTN, _of(T=1, ctx=4096, **_PAGED), _HEADS),
    _plain(Op.FLASH_ATTN, _of(T=1, ctx=4096, **_PAGED), _WIDE),
    _plain(Op.MLA_EXPAND, _of(T=64), {"heads": 16, "nope": 128, "rope": 64, "value_dim": 128}),
    _plain(Op.MOE_GATE_TOPK, _of(T=1, D=2048, E=256), {"k": 8}, without=("select_bias", "norm_w")),
    _plain(
        Op.MOE_GATE_UP,
        _of(T=1, D=2048, E=16, F=512, k=8),
        dtype="q4_k",
        without=("gate_scale", "up_scale"),
    ),
    _plain(
        Op.MOE_DOWN_ACC,
        _of(T=1, D=2048, E=16, F=512, k=8),
        dtype="q4_k",
        without=("expert_scale", "hidden", "residual"),
    ),
    _plain(
        Op.SHARED_EXPERT,
        _of(T=1, D=2048, F=512, one=1),
        dtype="q4_k",
        without=("hidden", "gate_scale", "up_scale", "down_scale"),
    ),
    _plain(Op.SSM_CONV1D_UPDATE_IDS, _of(T=1, S=1, slots=1, C=8192, K=4), without=("bias",)),
    _plain(Op.SSM_DELTA_NET_INPLACE_IDS, _of(T=1, S=1, slots=1), _DELTA),
    _plain(Op.SSM_GATED_NORM, _of(T=1, K=6144, D=128), {"eps": 1e-6}),
    _plain(Op.SSM_SCAN, _of(T=1, S=1, I=8192, N=16)),
    _plain(Op.LOAD_REQUEST_STATE, _of(S=1, slots=1, rest=786432)),
    _plain(Op.STORE_REQUEST_STATE, _of(S=1, slots=1, rest=786432)),
    _plain(Op.ARGMAX, _of(L=1, V=VOCABULARY)),
    _plain(Op.SAMPLE, _of(L=1, V=VOCABULARY, two=2, four=4)),
    _plain(Op.LOGITS_ADJUST, _of(L=1, V=VOCABULARY, **_SLOTS, ends=2, B=1, biases=300, M=1)),
    _plain(Op.SAMPLE_SLOTS, _of(L=1, V=VOCABULARY, **_SLOTS)),
    _plain(Op.LOGPROBS, _of(L=1, V=VOCABULARY), {"top": 20}),
    _plain(Op.STREAM_OUT, _of(L=1, capacity=1024, one=1, four=4, slots=1, words=64)),
    _plain(Op.VERIFY_K, _of(S=1, K=8, slots=7)),
    _plain(Op.TABLE_STORE, _of(E=1, slots=1, pages=256)),
)
