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
_OPTIONS = ("bias", "scale", "norm_w", "residual", "gate")
_SLOTS = {"slots": 1, "words": 64, "P": 1}


def _read_dimensions(**dims: int) -> dict[str, int]:
    return dims


def _make_plain_case(
    op: Op,
    dims: Mapping[str, int],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtype: str = "f32",
    without: tuple[str, ...] = (),
) -> Case:
    return Case(op, dims, attrs or {}, dtype, without=without, values="plain")


CASES: tuple[Case, ...] = (
    *(
        _make_plain_case(Op.MATMUL, _read_dimensions(T=1, N=INNER, K=HIDDEN, one=1), dtype=d, without=_OPTIONS)
        for d in _TYPES
    ),
    *(
        _make_plain_case(Op.MATMUL, _read_dimensions(T=64, N=1024, K=HIDDEN, one=1), dtype=d, without=_OPTIONS)
        for d in _TYPES
    ),
    *(_make_plain_case(Op.EMBED, _read_dimensions(T=1, V=1024, D=HIDDEN), dtype=d) for d in _TYPES),
    _make_plain_case(
        Op.LM_HEAD, _read_dimensions(T=1, L=1, V=VOCABULARY, D=1024), dtype="q6_k", without=("bias",)
    ),
    _make_plain_case(
        Op.RMS_NORM, _read_dimensions(T=1, K=HIDDEN), {"size": HIDDEN, "eps": 1e-6}, without=("residual",)
    ),
    _make_plain_case(Op.RESIDUAL_RMS_NORM, _read_dimensions(T=1, D=HIDDEN), {"eps": 1e-6}),
    *(_make_plain_case(op, _read_dimensions(T=1, N=INNER)) for op in (Op.ADD, Op.SIGMOID_MUL)),
    *(_make_plain_case(op, _read_dimensions(T=1, rest=INNER)) for op in (Op.SWIGLU, Op.GEGLU)),
    _make_plain_case(Op.SCALE, _read_dimensions(T=1, N=HIDDEN, one=1), {"factor": 0.5}, without=("weight",)),
    _make_plain_case(Op.ROW_SCALE, _read_dimensions(T=1, N=HIDDEN, ctx=64)),
    _make_plain_case(Op.SOFTCAP, _read_dimensions(T=1, N=VOCABULARY), {"cap": 30.0}),
    _make_plain_case(Op.SLICE, _read_dimensions(T=1, N=12288), {"group": 512, "offset": 0, "size": 256}),
    _make_plain_case(
        Op.ROPE, _read_dimensions(T=1, K=4096, R=64, ctx=4096), {"head_dim": 128, "mode": "neox", "offset": 0}
    ),
    _make_plain_case(
        Op.KV_WRITE_BATCHED, _read_dimensions(T=1, ctx=4096, K=1024, V=1024, **_PAGED), {"page_tokens": 16}
    ),
    _make_plain_case(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        _read_dimensions(T=1, ctx=4096, Q=4096, K=1024, V=1024, R=64, **_PAGED),
        {"eps": 1e-6, "head_dim": 128, "mode": "neox", "page_tokens": 16},
    ),
    _make_plain_case(Op.FLASH_ATTN, _read_dimensions(T=1, ctx=4096, **_PAGED), _HEADS),
    _make_plain_case(Op.FLASH_ATTN, _read_dimensions(T=1, ctx=4096, **_PAGED), _WIDE),
    _make_plain_case(
        Op.MLA_EXPAND, _read_dimensions(T=64), {"heads": 16, "nope": 128, "rope": 64, "value_dim": 128}
    ),
    _make_plain_case(
        Op.MOE_GATE_TOPK,
        _read_dimensions(T=1, D=2048, E=256),
        {"k": 8},
        without=("select_bias", "norm_w", "expert_gate_w", "expert_up_w", "gate_scale", "up_scale"),
    ),
    _make_plain_case(
        Op.MOE_GATE_UP,
        _read_dimensions(T=1, D=2048, E=16, F=512, k=8),
        dtype="q4_k",
        without=("gate_scale", "up_scale"),
    ),
    _make_plain_case(
        Op.MOE_DOWN_ACC,
        _read_dimensions(T=1, D=2048, E=16, F=512, k=8),
        dtype="q4_k",
        without=("expert_scale", "hidden", "residual"),
    ),
    _make_plain_case(
        Op.SHARED_EXPERT,
        _read_dimensions(T=1, D=2048, F=512, one=1),
        dtype="q4_k",
        without=("hidden", "gate_scale", "up_scale", "down_scale"),
    ),
    _make_plain_case(
        Op.SSM_CONV1D_UPDATE_IDS, _read_dimensions(T=1, S=1, slots=1, C=8192, K=4), without=("bias",)
    ),
    _make_plain_case(Op.SSM_DELTA_NET_INPLACE_IDS, _read_dimensions(T=1, S=1, slots=1), _DELTA),
    _make_plain_case(Op.SSM_GATED_NORM, _read_dimensions(T=1, K=6144, D=128), {"eps": 1e-6}),
    _make_plain_case(Op.SSM_SCAN, _read_dimensions(T=1, S=1, I=8192, N=16)),
    _make_plain_case(Op.LOAD_REQUEST_STATE, _read_dimensions(S=1, slots=1, rest=786432)),
    _make_plain_case(Op.STORE_REQUEST_STATE, _read_dimensions(S=1, slots=1, rest=786432)),
    _make_plain_case(Op.ARGMAX, _read_dimensions(L=1, V=VOCABULARY)),
    _make_plain_case(Op.SAMPLE, _read_dimensions(L=1, V=VOCABULARY, two=2, four=4)),
    _make_plain_case(
        Op.LOGITS_ADJUST, _read_dimensions(L=1, V=VOCABULARY, **_SLOTS, ends=2, B=1, biases=300, M=1)
    ),
    _make_plain_case(Op.SAMPLE_SLOTS, _read_dimensions(L=1, V=VOCABULARY, **_SLOTS)),
    _make_plain_case(Op.LOGPROBS, _read_dimensions(L=1, V=VOCABULARY), {"top": 20}),
    _make_plain_case(Op.STREAM_OUT, _read_dimensions(L=1, capacity=1024, one=1, four=4, slots=1, words=64)),
    _make_plain_case(Op.VERIFY_K, _read_dimensions(S=1, K=8, slots=7)),
    _make_plain_case(Op.TABLE_STORE, _read_dimensions(E=1, slots=1, pages=256)),
)
