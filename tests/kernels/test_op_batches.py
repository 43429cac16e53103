"""A token's result is its own: the same bits alone, in any batch, in any order of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_cases import floats, paged, run, same, weight

from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels import cases

BIT_IDENTICAL = ("canonical-1", "canonical-1-q8")  # float32-dequant's BLAS sums in an order of its own
TOKENS = 6
# A token of these sees what earlier ones left behind: test_op_recurrent.py and test_op_sampling.py have them.
SEQUENTIAL = {op for op in Op if op.name.startswith("SSM_") and op is not Op.SSM_GATED_NORM} | {Op.STREAM_OUT}

Case = tuple[list[Any], dict[str, Any]]
T = TOKENS


def x(seed: int, *columns: int) -> np.ndarray:
    values = floats(seed, T, *columns, scale=3)
    values[1] *= np.float32(1e-3)
    return values


def q4(seed: int, *shape: int) -> Any:
    return weight(floats(seed, *shape), "q4_k")


def q8(seed: int, *shape: int) -> Any:
    return weight(floats(seed, *shape), "q8_0")


def f32(seed: int, *shape: int) -> Any:
    return weight(floats(seed, *shape))


def indices(below: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, below, T).astype(np.int32)


SLOT = np.array([1, 0, 1, 0, 2, 2], np.int32)
POSITION = np.array([39, 5, 38, 16, 0, 270], np.int32)
TABLE, ROWS = paged(4, [17, 40, 271], page_tokens=16, pages=20)
PAGED = [POSITION, SLOT, TABLE]
CHOICES = np.array([[4, 0], [2, 4], [4, 3], [0, 1], [1, 0], [3, 4]], np.int32)
ROPE = [f32(8, 300, 4), f32(9, 300, 4)]
ATTENTION = {"heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 8, "scale": 0.3, "window": 30}
MLA = {"heads": 2, "latent": 32, "rope": 4}


def attention() -> Case:
    return [x(1, 64), floats(2, ROWS, 32), floats(3, ROWS, 16), *PAGED], ATTENTION


def sampling() -> Case:
    settings = np.array(
        [[1, 0, 1, 0], [0, 0, 1, 0], [0.5, 3, 1, 0], [2, 0, 0.5, 0], [1, 0, 1, 0.1], [3, 9, 0.9, 0.1]]
    )
    seed = np.random.default_rng(2).integers(-(2**31), 2**31, (T, 2)).astype(np.int32)
    return [x(1, 50), seed, settings.astype(np.float32), SLOT, POSITION], {}


def slots(op: Op, sizes: dict[str, int]) -> Case:
    return list(cases.Case(op, {"L": T, "V": 50, "slots": 9, "words": 64, "P": 7, **sizes}).operands()), {}


CASES: dict[Op, Callable[[], Case]] = {
    Op.EMBED: lambda: ([indices(7), q4(1, 7, 256)], {}),
    Op.RMS_NORM: lambda: ([x(1, 96), f32(2, 32)], {"eps": 1e-6, "size": 32}),
    Op.RMS_NORM_FUSED_QKV: lambda: (
        [x(1, 256), f32(2, 256), q4(3, 8, 256), q8(4, 5, 256), f32(5, 3, 256), f32(6, 8), None, None],
        {"eps": 1e-6},
    ),
    Op.RMS_NORM_FUSED_MLP_GATE_UP: lambda: ([x(1, 256), f32(2, 256), q4(3, 8, 256), q8(4, 8, 256)], {"eps": 1e-6}),
    Op.ROPE: lambda: ([x(1, 24), POSITION, *ROPE], {"head_dim": 12, "mode": "neox", "offset": 2}),
    Op.RMS_NORM_FUSED_ROPE_KV_WRITE: lambda: (
        [
            x(1, 24),
            x(2, 24),
            x(3, 9),
            f32(4, 12),
            f32(5, 12),
            *ROPE,
            *PAGED,
            floats(6, ROWS, 24),
            floats(7, ROWS, 9),
        ],
        {"eps": 1e-6, "head_dim": 12, "mode": "norm"},
    ),
    Op.FLASH_ATTN: attention,
    Op.FLASH_ATTN_BATCHED: attention,
    Op.MOE_GATE_TOPK: lambda: ([x(1, 64), f32(2, 8, 64), f32(3, 8)], {"k": 3, "groups": 2, "groups_used": 1}),
    Op.MOE_GATE_UP: lambda: ([x(1, 256), q4(2, 5, 6, 256), q8(3, 5, 6, 256), CHOICES], {}),
    Op.MOE_SWIGLU: lambda: ([x(1, 2, 9), x(2, 2, 9)], {"activation": "gelu"}),
    Op.MOE_DOWN_ACC: lambda: ([x(1, 2, 256), q4(2, 5, 6, 256), CHOICES, x(3, 2), f32(4, 5), x(5, 6)], {}),
    Op.SHARED_EXPERT: lambda: (
        [x(1, 256), q4(2, 256, 256), q8(3, 256, 256), q4(4, 256, 256), f32(5, 256), x(6, 256)],
        {},
    ),
    Op.SSM_GATED_NORM: lambda: ([x(1, 48), x(2, 48), f32(3, 16)], {"eps": 1e-6}),
    Op.RESIDUAL_RMS_NORM: lambda: ([x(1, 48), x(2, 48), f32(3, 48)], {"eps": 1e-6}),
    Op.LM_HEAD: lambda: ([x(1, 256), q4(2, 9, 256), np.array([5, 0, 2, 2, 1, 4], np.int32), f32(3, 9)], {}),
    Op.ARGMAX: lambda: ([x(1, 50)], {}),
    Op.SAMPLE: sampling,
    Op.LOGITS_ADJUST: lambda: slots(Op.LOGITS_ADJUST, {"ends": 2, "B": 2, "biases": 9, "M": 2}),
    Op.SAMPLE_SLOTS: lambda: slots(Op.SAMPLE_SLOTS, {}),
    Op.LOGPROBS: lambda: ([x(1, 50), indices(50) - 1], {"top": 4}),
    Op.KV_WRITE_BATCHED: lambda: ([x(1, 8), x(2, 4), *PAGED, floats(3, ROWS, 8), floats(4, ROWS, 4)], {}),
    Op.MATMUL_WMMA_F16: lambda: ([x(1, 96), weight(floats(2, 7, 96), "f16")], {}),
    Op.MATMUL_WMMA_Q4K: lambda: ([x(1, 256), q4(2, 7, 256)], {}),
    Op.LOAD_REQUEST_STATE: lambda: ([floats(1, 9, 2, 3), indices(9)], {}),
    Op.STORE_REQUEST_STATE: lambda: ([x(1, 3), np.array([8, 0, 3, 4, 1, 7], np.int32), floats(2, 9, 3)], {}),
    Op.TABLE_STORE: lambda: ([np.array([8, 0, 3, 4, 1, 7], np.int32), indices(9), np.zeros((3, 3), np.int32)], {}),
    Op.VERIFY_K: lambda: ([CHOICES, np.concatenate([CHOICES[:, :1], CHOICES[::-1]], axis=1)], {}),
    Op.MATMUL: lambda: ([x(1, 512), q4(2, 9, 512), f32(3, 9), f32(4, 1)], {}),
    Op.SWIGLU: lambda: ([x(1, 19), x(2, 19)], {}),
    Op.GEGLU: lambda: ([x(1, 19), x(2, 19)], {}),
    Op.SIGMOID_MUL: lambda: ([x(1, 19), x(2, 19)], {}),
    Op.ADD: lambda: ([x(1, 19), x(2, 19)], {}),
    Op.SCALE: lambda: ([x(1, 19), f32(2, 1)], {"factor": 0.1}),
    Op.ROW_SCALE: lambda: ([x(1, 19), POSITION, f32(2, 300)], {}),
    Op.SLICE: lambda: ([x(1, 24)], {"group": 6, "offset": 1, "size": 3}),
    Op.SOFTCAP: lambda: ([x(1, 19)], {"cap": 30.0}),
    Op.MLA_ABSORB: lambda: ([x(1, 72), q8(2, 2, 32, 32)], {**MLA, "nope": 32}),
    Op.MLA_EXPAND: lambda: ([x(1, 10), x(2, 4)], {"heads": 2, "nope": 3, "rope": 4, "value_dim": 2}),
    Op.MLA_FLASH_ATTN: lambda: (
        [x(1, 72), floats(2, ROWS, 32), floats(3, ROWS, 4), *PAGED, q8(4, 2, 5, 32)],
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
    result = run(op, ordering, *operands, **attrs)
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
        same(result, np.concatenate([item[i] for item in rows]))
    for ours, theirs, before in zip(together_stores, alone_stores, fresh_stores(op), strict=True):
        same(ours, theirs)
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
            same(got, want[order])
        for ours, theirs in zip(stores, plain_stores, strict=True):
            same(ours, theirs)
