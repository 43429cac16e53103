"""Small operands with edge cases for every opcode that has a native kernel: the cases of the self-test.

An opcode with several kernels has a row for each. A kernel that reads weights of any type runs with each type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.native.types import list_dtypes


@dataclass(frozen=True, slots=True)
class SelfTestRow:
    """The cases of one kernel. `types`: weight types that a projection or a look-up reads, in turn; others are
    f32. `without`: optional ports that are absent. `kv`: type of caches."""

    op: Op
    dims: Mapping[str, int]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ("f32",)
    without: tuple[str, ...] = ()
    kv: str = "f32"


_POSITIONS = {"T": 4, "ctx": 40, "slots": 3, "pages": 10, "page_tokens": 4, "kv_rows": 120}
_ATTENTION = {"heads": 6, "kv_heads": 2, "head_dim": 20, "value_dim": 17, "scale": 0.25, "page_tokens": 4}
_NORM = {"eps": 1e-6}
_SLOTS = {"slots": 7, "words": 64, "P": 5}
_DELTA = {"k_heads": 2, "v_heads": 4, "head_dim": 20, **_NORM}

# Of matrices: types with bodies of their own, and two that go by dequantised pieces.
_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q5_1", "nvfp4")

ROWS: tuple[SelfTestRow, ...] = (
    # ADD first: tests plant faults in it.
    SelfTestRow(Op.ADD, {"T": 3, "N": 37}),
    SelfTestRow(Op.MATMUL, {"T": 2, "N": 18, "K": 1280, "one": 1}, types=_TYPES),
    SelfTestRow(Op.MATMUL, {"T": 18, "N": 18, "K": 512, "one": 1}, types=_TYPES),
    SelfTestRow(Op.MATMUL, {"T": 3, "N": 5, "K": 320, "one": 1}, {"norm_groups": 5}, types=("f32", "q8_0")),
    SelfTestRow(Op.MATMUL, {"T": 1, "N": 5, "K": 1056, "one": 1}, types=("f32", "q8_0", "q4_0")),
    SelfTestRow(Op.LM_HEAD, {"T": 4, "L": 2, "V": 17, "D": 256}, types=("f32", "q8_0", "q6_k")),
    SelfTestRow(
        Op.RMS_NORM_FUSED_QKV,
        {"T": 2, "D": 256, "Q": 33, "K": 17, "V": 16},
        _NORM,
        types=("f16", "q8_0", "q4_k"),
        without=("k_bias",),
    ),
    SelfTestRow(Op.RMS_NORM_FUSED_MLP_GATE_UP, {"T": 2, "D": 256, "F": 33}, _NORM, types=("f32", "q4_0")),
    SelfTestRow(Op.MOE_GATE_UP, {"T": 3, "D": 256, "E": 4, "F": 17, "k": 2}, types=("f32", "q8_0", "q4_k")),
    SelfTestRow(Op.SHARED_EXPERT, {"T": 2, "D": 256, "F": 256, "one": 1}, types=("f16", "q8_0", "q6_k")),
    SelfTestRow(
        Op.MLA_ABSORB,
        {"T": 3},
        {"heads": 2, "nope": 256, "rope": 5, "latent": 18},
        types=("f32", "q8_0", "q5_k"),
    ),
    SelfTestRow(Op.EMBED, {"T": 3, "V": 5, "D": 512}, types=tuple(sorted(list_dtypes()))),
    SelfTestRow(Op.SWIGLU, {"T": 3, "rest": 2085}),
    SelfTestRow(Op.GEGLU, {"T": 3, "rest": 37}),
    SelfTestRow(Op.SIGMOID_MUL, {"T": 3, "N": 37}),
    SelfTestRow(Op.SCALE, {"T": 3, "N": 37, "one": 1}, {"factor": 0.3}),
    SelfTestRow(Op.ROW_SCALE, {"T": 3, "N": 37, "ctx": 9}),
    SelfTestRow(Op.GELU, {"T": 3, "N": 37}),
    SelfTestRow(Op.SOFTCAP, {"T": 3, "N": 37}, {"cap": 30.0}),
    SelfTestRow(Op.SLICE, {"T": 3, "N": 40}, {"group": 10, "offset": 2, "size": 5}),
    SelfTestRow(Op.RMS_NORM, {"T": 3, "K": 111, "size": 37}, {"size": 37, **_NORM}),
    SelfTestRow(Op.LAYER_NORM, {"T": 3, "K": 145}, _NORM),
    SelfTestRow(Op.RESIDUAL_RMS_NORM, {"T": 3, "D": 145}, _NORM),
    SelfTestRow(Op.ROPE, {**_POSITIONS, "K": 80, "R": 17}, {"head_dim": 40, "mode": "norm", "offset": 2}),
    SelfTestRow(Op.ROPE, {**_POSITIONS, "K": 80, "R": 17}, {"head_dim": 40, "mode": "neox", "offset": 1}),
    SelfTestRow(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        {**_POSITIONS, "Q": 100, "K": 40, "V": 21, "R": 8},
        {"head_dim": 20, "mode": "neox", "page_tokens": 4, "q_skip": 5, **_NORM},
    ),
    SelfTestRow(
        Op.QKV_FUSED_ROPE_KV_WRITE,
        {**_POSITIONS, "D": 256, "Q": 100, "K": 40, "V": 21, "R": 8},
        {"head_dim": 20, "mode": "neox", "page_tokens": 4, "q_skip": 5, **_NORM},
        types=("f32", "q8_0"),
    ),
    SelfTestRow(Op.KV_WRITE_BATCHED, {**_POSITIONS, "K": 40, "V": 21}, {"page_tokens": 4}),
    SelfTestRow(
        Op.FLASH_ATTN,
        {**_POSITIONS, "slots": 1, "pages": 150, "kv_rows": 600, "ctx": 600},
        {**_ATTENTION, "gate_skip": 5},
    ),
    SelfTestRow(Op.FLASH_ATTN_BATCHED, _POSITIONS, {**_ATTENTION, "window": 5}),
    *(
        SelfTestRow(op, {**_POSITIONS, **dims}, attrs, kv=kv)
        for kv in ("f16", "q8_0")
        for op, dims, attrs in (
            (Op.KV_WRITE_BATCHED, {"K": 96, "V": 64}, {"page_tokens": 4}),
            (
                Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
                {"Q": 64, "K": 128, "V": 32, "R": 8},
                {"head_dim": 64, "mode": "neox", "page_tokens": 4, **_NORM},
            ),
            (Op.FLASH_ATTN, {}, {**_ATTENTION, "head_dim": 160, "value_dim": 96}),
        )
    ),
    SelfTestRow(Op.FLASH_ATTN, _POSITIONS, {**_ATTENTION, "window": 5}, kv="f16"),
    SelfTestRow(Op.MLA_EXPAND, {"T": 3}, {"heads": 3, "nope": 7, "rope": 5, "value_dim": 9}),
    SelfTestRow(
        Op.MLA_FLASH_ATTN,
        _POSITIONS,
        {"heads": 18, "latent": 32, "rope": 9, "value_dim": 11, "scale": 0.1, "page_tokens": 4},
        types=("f16", "q8_0"),
    ),
    SelfTestRow(Op.MOE_GATE_TOPK, {"T": 5, "D": 64, "E": 20, "F": 17}, {"k": 4, "scale": 2.5}),
    SelfTestRow(
        Op.MOE_GATE_TOPK,
        {"T": 5, "D": 64, "E": 20},
        {"k": 3, "gating": "sigmoid", "renormalise": False, "groups": 5, "groups_used": 2},
        without=("select_bias", "expert_gate_w", "expert_up_w", "gate_scale", "up_scale"),
    ),
    SelfTestRow(Op.MOE_SWIGLU, {"T": 3, "F": 37, "k": 2}, {"activation": "gelu"}),
    SelfTestRow(Op.MOE_DOWN_ACC, {"T": 3, "D": 33, "E": 4, "F": 64, "k": 2}, types=("f32", "q8_0")),
    *(
        SelfTestRow(op, {"T": 7, "S": 2, "slots": 3, "C": 37, "K": 4})
        for op in (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
    ),
    SelfTestRow(
        Op.MATMUL_FUSED_CONV1D_IDS, {"T": 7, "S": 2, "slots": 3, "C": 37, "D": 256, "K": 4}, types=("f32", "q8_0")
    ),
    *(
        SelfTestRow(
            op,
            {"T": 7, "S": 2, "slots": 3},
            {**_DELTA, "grouping": way},
        )
        for op, way in (
            (Op.SSM_DELTA_NET, "tiled"),
            (Op.SSM_DELTA_NET_INPLACE, "grouped"),
            (Op.SSM_DELTA_NET_INPLACE_IDS, "tiled"),
        )
    ),
    SelfTestRow(
        Op.SSM_DELTA_NET,
        {"T": 3, "S": 1},
        {"k_heads": 1, "v_heads": 1, "head_dim": 128, "grouping": "tiled", **_NORM},
    ),
    SelfTestRow(Op.SSM_GATED_NORM, {"T": 3, "K": 74, "D": 37}, _NORM),
    SelfTestRow(Op.SSM_SCAN, {"T": 7, "S": 2, "I": 21, "N": 16}),
    SelfTestRow(Op.SAMPLE, {"L": 6, "V": 1037, "two": 2, "four": 4}),
    SelfTestRow(Op.LOGITS_ADJUST, {"L": 6, "V": 1037, **_SLOTS, "ends": 2, "B": 2, "biases": 9, "M": 2}),
    SelfTestRow(Op.SAMPLE_SLOTS, {"L": 6, "V": 1037, **_SLOTS}),
    SelfTestRow(Op.LOGPROBS, {"L": 3, "V": 1037}, {"top": 5}),
    SelfTestRow(Op.ARGMAX, {"L": 3, "V": 1037}),
    SelfTestRow(Op.STREAM_OUT, {"L": 6, "capacity": 4, "one": 1, "four": 4, "slots": 7, "words": 64}),
    SelfTestRow(Op.VERIFY_K, {"S": 40, "K": 3, "slots": 7}),
    SelfTestRow(Op.TABLE_STORE, {"E": 5, "slots": 3, "pages": 10}),
    SelfTestRow(Op.LOAD_REQUEST_STATE, {"S": 2, "slots": 3, "rest": 37}),
    SelfTestRow(Op.STORE_REQUEST_STATE, {"S": 2, "slots": 3, "rest": 37}),
    SelfTestRow(Op.MATMUL_WMMA_F16, {"T": 3, "N": 18, "K": 96, "one": 1}, types=("f16",)),
    SelfTestRow(Op.MATMUL_WMMA_Q4K, {"T": 3, "N": 18, "K": 512, "one": 1}, types=("q4_k",)),
    SelfTestRow(Op.MOE_GATE_UP_WMMA_F16, {"T": 3, "D": 256, "E": 4, "F": 17, "k": 2}, types=("f16", "q4_k")),
    SelfTestRow(Op.MOE_DOWN_ACC_WMMA_F16, {"T": 3, "D": 33, "E": 4, "F": 64, "k": 2}, types=("q8_0",)),
    SelfTestRow(Op.SHARED_EXPERT_WMMA_F16, {"T": 2, "D": 256, "F": 256, "one": 1}, types=("q6_k",)),
    SelfTestRow(Op.MATMUL_WMMA_BF16, {"T": 3, "N": 18, "K": 96, "one": 1}, types=("f32", "bf16")),
    SelfTestRow(Op.MOE_GATE_UP_WMMA_BF16, {"T": 3, "D": 256, "E": 4, "F": 17, "k": 2}, types=("q4_k",)),
    SelfTestRow(Op.MOE_DOWN_ACC_WMMA_BF16, {"T": 3, "D": 33, "E": 4, "F": 64, "k": 2}, types=("q8_0",)),
    SelfTestRow(Op.SHARED_EXPERT_WMMA_BF16, {"T": 2, "D": 256, "F": 256, "one": 1}, types=("q6_k",)),
)


def make_cases() -> Iterator[Case]:
    """Return the cases. Every call returns the same ones."""
    for number, row in enumerate(ROWS):
        for dtype in row.types:
            yield Case(row.op, row.dims, row.attrs, dtype, without=row.without, seed=number, kv=row.kv)
