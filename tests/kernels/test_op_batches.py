"""A token's result is its own: the same bits alone, in any batch, in any order of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_cases import assert_same, make_pages, make_weight, random_floats, run_op

from zinc_rt.ir.op import OPS, WMMA_FORMS, Op
from zinc_rt.kernels import cases

BIT_IDENTICAL = ("canonical-1", "canonical-1-q8")  # float32-dequant's BLAS sums in an order of its own
TOKENS = 6
# A token of these sees what earlier ones left behind: test_op_recurrent.py and test_op_sampling.py have them.
SEQUENTIAL = {op for op in Op if op.name.startswith("SSM_") and op is not Op.SSM_GATED_NORM} | {
    Op.STREAM_OUT,
    Op.MATMUL_FUSED_CONV1D_IDS,
}

Case = tuple[list[Any], dict[str, Any]]
T = TOKENS


def activations(seed: int, *columns: int) -> np.ndarray:
    values = random_floats(seed, T, *columns, scale=3)
    values[1] *= np.float32(1e-3)
    return values


def q4_weight(seed: int, *shape: int) -> Any:
    return make_weight(random_floats(seed, *shape), "q4_k")


def q8_weight(seed: int, *shape: int) -> Any:
    return make_weight(random_floats(seed, *shape), "q8_0")


def f32_weight(seed: int, *shape: int) -> Any:
    return make_weight(random_floats(seed, *shape))


def random_indices(limit: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, limit, T).astype(np.int32)


SLOT = np.array([1, 0, 1, 0, 2, 2], np.int32)
POSITION = np.array([39, 5, 38, 16, 0, 270], np.int32)
TABLE, ROWS = make_pages(4, [17, 40, 271], page_tokens=16, pages=20)
PAGED = [POSITION, SLOT, TABLE]
CHOICES = np.array([[4, 0], [2, 4], [4, 3], [0, 1], [1, 0], [3, 4]], np.int32)
ROPE = [f32_weight(8, 300, 4), f32_weight(9, 300, 4)]
ATTENTION = {"heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 8, "scale": 0.3, "window": 30}
MLA = {"heads": 2, "latent": 32, "rope": 4}


def attention_operands() -> Case:
    return [activations(1, 64), random_floats(2, ROWS, 32), random_floats(3, ROWS, 16), *PAGED], ATTENTION


def sampling_operands() -> Case:
    settings = np.array(
        [[1, 0, 1, 0], [0, 0, 1, 0], [0.5, 3, 1, 0], [2, 0, 0.5, 0], [1, 0, 1, 0.1], [3, 9, 0.9, 0.1]]
    )
    seed = np.random.default_rng(2).integers(-(2**31), 2**31, (T, 2)).astype(np.int32)
    return [activations(1, 50), seed, settings.astype(np.float32), SLOT, POSITION], {}


def slot_operands(op: Op, sizes: dict[str, int]) -> Case:
    return list(cases.Case(op, {"L": T, "V": 50, "slots": 9, "words": 64, "P": 7, **sizes}).operands()), {}


CASES: dict[Op, Callable[[], Case]] = {
    Op.EMBED: lambda: ([random_indices(7), q4_weight(1, 7, 256)], {}),
    Op.RMS_NORM: lambda: ([activations(1, 96), f32_weight(2, 32)], {"eps": 1e-6, "size": 32}),
    Op.RMS_NORM_FUSED_QKV: lambda: (
        [
            activations(1, 256),
            f32_weight(2, 256),
            q4_weight(3, 8, 256),
            q8_weight(4, 5, 256),
            f32_weight(5, 3, 256),
            f32_weight(6, 8),
            None,
            None,
        ],
        {"eps": 1e-6},
    ),
    Op.RMS_NORM_FUSED_MLP_GATE_UP: lambda: (
        [activations(1, 256), f32_weight(2, 256), q4_weight(3, 8, 256), q8_weight(4, 8, 256)],
        {"eps": 1e-6},
    ),
    Op.ROPE: lambda: ([activations(1, 24), POSITION, *ROPE], {"head_dim": 12, "mode": "neox", "offset": 2}),
    Op.RMS_NORM_FUSED_ROPE_KV_WRITE: lambda: (
        [
            activations(1, 24),
            activations(2, 24),
            activations(3, 9),
            f32_weight(4, 12),
            f32_weight(5, 12),
            *ROPE,
            *PAGED,
            random_floats(6, ROWS, 24),
            random_floats(7, ROWS, 9),
        ],
        {"eps": 1e-6, "head_dim": 12, "mode": "norm"},
    ),
    Op.QKV_FUSED_ROPE_KV_WRITE: lambda: (
        [
            activations(1, 256),
            f32_weight(2, 256),
            q4_weight(3, 24, 256),
            q8_weight(4, 24, 256),
            f32_weight(5, 9, 256),
            f32_weight(6, 12),
            f32_weight(7, 12),
            *ROPE,
            *PAGED,
            random_floats(8, ROWS, 24),
            random_floats(9, ROWS, 9),
        ],
        {"eps": 1e-6, "head_eps": 1e-6, "head_dim": 12, "mode": "norm"},
    ),
    Op.FLASH_ATTN: attention_operands,
    Op.FLASH_ATTN_BATCHED: attention_operands,
    Op.MOE_GATE_TOPK: lambda: (
        [activations(1, 64), f32_weight(2, 8, 64), f32_weight(3, 8)],
        {"k": 3, "groups": 2, "groups_used": 1},
    ),
    Op.MOE_GATE_UP: lambda: ([activations(1, 256), q4_weight(2, 5, 6, 256), q8_weight(3, 5, 6, 256), CHOICES], {}),
    Op.MOE_SWIGLU: lambda: ([activations(1, 2, 9), activations(2, 2, 9)], {"activation": "gelu"}),
    Op.MOE_DOWN_ACC: lambda: (
        [
            activations(1, 2, 256),
            q4_weight(2, 5, 6, 256),
            CHOICES,
            activations(3, 2),
            f32_weight(4, 5),
            activations(5, 6),
        ],
        {},
    ),
    Op.SHARED_EXPERT: lambda: (
        [
            activations(1, 256),
            q4_weight(2, 256, 256),
            q8_weight(3, 256, 256),
            q4_weight(4, 256, 256),
            f32_weight(5, 256),
            activations(6, 256),
        ],
        {},
    ),
    Op.SSM_GATED_NORM: lambda: ([activations(1, 48), activations(2, 48), f32_weight(3, 16)], {"eps": 1e-6}),
    Op.RESIDUAL_RMS_NORM: lambda: ([activations(1, 48), activations(2, 48), f32_weight(3, 48)], {"eps": 1e-6}),
    Op.LM_HEAD: lambda: (
        [activations(1, 256), q4_weight(2, 9, 256), np.array([5, 0, 2, 2, 1, 4], np.int32), f32_weight(3, 9)],
        {},
    ),
    Op.ARGMAX: lambda: ([activations(1, 50)], {}),
    Op.SAMPLE: sampling_operands,
    Op.LOGITS_ADJUST: lambda: slot_operands(Op.LOGITS_ADJUST, {"ends": 2, "B": 2, "biases": 9, "M": 2}),
    Op.SAMPLE_SLOTS: lambda: slot_operands(Op.SAMPLE_SLOTS, {}),
    Op.LOGPROBS: lambda: ([activations(1, 50), random_indices(50) - 1], {"top": 4}),
    Op.KV_WRITE_BATCHED: lambda: (
        [activations(1, 8), activations(2, 4), *PAGED, random_floats(3, ROWS, 8), random_floats(4, ROWS, 4)],
        {},
    ),
    Op.MATMUL_WMMA_F16: lambda: ([activations(1, 96), make_weight(random_floats(2, 7, 96), "f16")], {}),
    Op.MATMUL_WMMA_Q4K: lambda: ([activations(1, 256), q4_weight(2, 7, 256)], {}),
    **{
        form: lambda op=op: CASES[op]()
        for forms in WMMA_FORMS.values()
        for op, form in forms.items()
        if op is not Op.MATMUL
    },
    Op.MATMUL_WMMA_BF16: lambda: CASES[Op.MATMUL_WMMA_F16](),
    Op.LOAD_REQUEST_STATE: lambda: ([random_floats(1, 9, 2, 3), random_indices(9)], {}),
    Op.STORE_REQUEST_STATE: lambda: (
        [activations(1, 3), np.array([8, 0, 3, 4, 1, 7], np.int32), random_floats(2, 9, 3)],
        {},
    ),
    Op.TABLE_STORE: lambda: (
        [np.array([8, 0, 3, 4, 1, 7], np.int32), random_indices(9), np.zeros((3, 3), np.int32)],
        {},
    ),
    Op.VERIFY_K: lambda: ([CHOICES, np.concatenate([CHOICES[:, :1], CHOICES[::-1]], axis=1)], {}),
    Op.MATMUL: lambda: ([activations(1, 512), q4_weight(2, 9, 512), f32_weight(3, 9), f32_weight(4, 1)], {}),
    Op.SWIGLU: lambda: ([activations(1, 19), activations(2, 19)], {}),
    Op.GEGLU: lambda: ([activations(1, 19), activations(2, 19)], {}),
    Op.SIGMOID_MUL: lambda: ([activations(1, 19), activations(2, 19)], {}),
    Op.ADD: lambda: ([activations(1, 19), activations(2, 19)], {}),
    Op.SCALE: lambda: ([activations(1, 19), f32_weight(2, 1)], {"factor": 0.1}),
    Op.ROW_SCALE: lambda: ([activations(1, 19), POSITION, f32_weight(2, 300)], {}),
    Op.SLICE: lambda: ([activations(1, 24)], {"group": 6, "offset": 1, "size": 3}),
    Op.GELU: lambda: ([activations(1, 19)], {}),
    Op.LAYER_NORM: lambda: ([activations(1, 96), f32_weight(2, 96), f32_weight(3, 96)], {"eps": 1e-5}),
    Op.SOFTCAP: lambda: ([activations(1, 19)], {"cap": 30.0}),
    Op.MLA_ABSORB: lambda: ([activations(1, 72), q8_weight(2, 2, 32, 32)], {**MLA, "nope": 32}),
    Op.MLA_EXPAND: lambda: (
        [activations(1, 10), activations(2, 4)],
        {"heads": 2, "nope": 3, "rope": 4, "value_dim": 2},
    ),
    Op.MLA_FLASH_ATTN: lambda: (
        [
            activations(1, 72),
            random_floats(2, ROWS, 32),
            random_floats(3, ROWS, 4),
            *PAGED,
            q8_weight(4, 2, 5, 32),
        ],
        {**MLA, "value_dim": 5, "scale": 0.2},
    ),
}


def rows_of(op: Op, pick: list[int], ordering: str, stores: list[np.ndarray] | None = None) -> list[np.ndarray]:
    """Run the case with the tokens `pick`; return the results, with in-place updates in `stores`."""
    inputs, attrs = CASES[op]()
    spec = OPS[op]
    inputs += [None] * (len(spec.inputs) - len(inputs))  # optional operands at the end
    leading = [port.shape[0] for port in spec.inputs]
    tokens = next(symbol for symbol in ("L", "T", "S", "E") if symbol in leading)
    updated = [i for i, port in enumerate(spec.inputs) if port.name in {out.inplace for out in spec.outputs}]
    for i, store in zip(updated, stores or [], strict=True):
        inputs[i] = store
    operands = [
        operand[pick] if symbol == tokens and isinstance(operand, np.ndarray) else operand
        for operand, symbol in zip(inputs, leading, strict=True)
    ]
    result = run_op(op, ordering, *operands, **attrs)
    return [] if result is None else list(result) if isinstance(result, tuple) else [result]


def fresh_stores(op: Op) -> list[np.ndarray]:
    inputs, _ = CASES[op]()
    names = {out.inplace for out in OPS[op].outputs}
    return [operand for operand, port in zip(inputs, OPS[op].inputs, strict=False) if port.name in names]


def test_every_stateless_opcode_is_listed() -> None:
    assert set(CASES) | SEQUENTIAL | {Op.BARRIER} == set(Op)


@pytest.mark.rest(keep=23)
@pytest.mark.parametrize("ordering", BIT_IDENTICAL)
@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_batch_matches_single_tokens(op: Op, ordering: str) -> None:
    together_stores, alone_stores = fresh_stores(op), fresh_stores(op)
    together = rows_of(op, list(range(T)), ordering, together_stores)
    rows = [rows_of(op, [t], ordering, alone_stores) for t in range(T)]
    for i, result in enumerate(together):
        assert_same(result, np.concatenate([item[i] for item in rows]))
    for ours, theirs, before in zip(together_stores, alone_stores, fresh_stores(op), strict=True):
        assert_same(ours, theirs)
        assert not np.array_equal(ours, before)
    assert together or together_stores


@pytest.mark.rest(keep=25)
@pytest.mark.parametrize("ordering", BIT_IDENTICAL)
@pytest.mark.parametrize("op", CASES, ids=lambda op: op.name)
def test_batch_order_does_not_matter(op: Op, ordering: str) -> None:
    plain_stores = fresh_stores(op)
    plain = rows_of(op, list(range(T)), ordering, plain_stores)
    for order in ([5, 4, 3, 2, 1, 0], [2, 5, 0, 3, 1, 4]):
        stores = fresh_stores(op)
        for got, want in zip(rows_of(op, order, ordering, stores), plain, strict=True):
            assert_same(got, want[order])
        for ours, theirs in zip(stores, plain_stores, strict=True):
            assert_same(ours, theirs)
