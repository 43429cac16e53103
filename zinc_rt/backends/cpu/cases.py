"""Small unkind operands for every opcode that has a native kernel: what the self-test runs.

A row gives the dimensions that an opcode's patterns name, and its attributes; operands follow from the patterns
in ir/op.py. An opcode with several kernels has a row for each; one that reads weights of any type runs with each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from zinc_rt.ir.dtypes import block_of, row_bytes
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.ir.shapes import evaluate
from zinc_rt.kernels.native.types import DTYPES
from zinc_rt.kernels.weight import Weight

Operand = np.ndarray | Weight | None


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    op: Op
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]

    def outputs(self, inputs: Sequence[Operand], fresh: Sequence[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Name and wanted value of each output: in place, what became of the input."""
        spec = OPS[self.op]
        given = dict(zip((port.name for port in spec.inputs), inputs, strict=False))
        made = iter(fresh)
        for port in spec.outputs:
            value = given[port.inplace] if port.inplace else next(made)
            assert isinstance(value, np.ndarray)
            yield port.name, value


@dataclass(frozen=True, slots=True)
class Row:
    """`types`: of the weights that a projection or a look-up reads, by turns; others are f32. `without`: optional
    ports left out."""

    op: Op
    dims: Mapping[str, int]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ("f32",)
    without: tuple[str, ...] = ()


_POSITIONS = {"T": 4, "ctx": 40, "slots": 3, "pages": 10, "page_tokens": 4, "kv_rows": 120}
_ATTENTION = {"heads": 6, "kv_heads": 2, "head_dim": 20, "value_dim": 17, "scale": 0.25, "page_tokens": 4}
_NORM = {"eps": 1e-6}
_DELTA = {"k_heads": 2, "v_heads": 4, "head_dim": 20, **_NORM}

# Of matrices: types with bodies of their own, and two that go by dequantised pieces.
_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q5_1", "nvfp4")

ROWS: tuple[Row, ...] = (
    # ADD first: tests plant faults in it.
    Row(Op.ADD, {"T": 3, "N": 37}),
    Row(Op.MATMUL, {"T": 2, "N": 18, "K": 1280, "one": 1}, types=_TYPES),
    Row(Op.MATMUL, {"T": 18, "N": 18, "K": 512, "one": 1}, types=_TYPES),
    Row(Op.MATMUL, {"T": 1, "N": 5, "K": 1056, "one": 1}, types=("f32", "q8_0", "q4_0")),
    Row(Op.LM_HEAD, {"T": 4, "L": 2, "V": 17, "D": 256}, types=("f32", "q8_0", "q6_k")),
    Row(
        Op.RMS_NORM_FUSED_QKV,
        {"T": 2, "D": 256, "Q": 33, "K": 17, "V": 16},
        _NORM,
        types=("f16", "q8_0", "q4_k"),
        without=("k_bias",),
    ),
    Row(Op.RMS_NORM_FUSED_MLP_GATE_UP, {"T": 2, "D": 256, "F": 33}, _NORM, types=("f32", "q4_0")),
    Row(Op.MOE_GATE_UP, {"T": 3, "D": 256, "E": 4, "F": 17, "k": 2}, types=("f32", "q8_0", "q4_k")),
    Row(Op.SHARED_EXPERT, {"T": 2, "D": 256, "F": 256, "one": 1}, types=("f16", "q8_0", "q6_k")),
    Row(
        Op.MLA_ABSORB,
        {"T": 3},
        {"heads": 2, "nope": 256, "rope": 5, "latent": 18},
        types=("f32", "q8_0", "q5_k"),
    ),
    Row(Op.EMBED, {"T": 3, "V": 5, "D": 512}, types=tuple(sorted(DTYPES))),
    Row(Op.SWIGLU, {"T": 3, "rest": 2085}),
    Row(Op.GEGLU, {"T": 3, "rest": 37}),
    Row(Op.SIGMOID_MUL, {"T": 3, "N": 37}),
    Row(Op.SCALE, {"T": 3, "N": 37, "one": 1}, {"factor": 0.3}),
    Row(Op.ROW_SCALE, {"T": 3, "N": 37, "ctx": 9}),
    Row(Op.SOFTCAP, {"T": 3, "N": 37}, {"cap": 30.0}),
    Row(Op.SLICE, {"T": 3, "N": 40}, {"group": 10, "offset": 2, "size": 5}),
    Row(Op.RMS_NORM, {"T": 3, "K": 111, "size": 37}, {"size": 37, **_NORM}),
    Row(Op.RESIDUAL_RMS_NORM, {"T": 3, "D": 145}, _NORM),
    Row(Op.ROPE, {**_POSITIONS, "K": 80, "R": 17}, {"head_dim": 40, "mode": "norm", "offset": 2}),
    Row(Op.ROPE, {**_POSITIONS, "K": 80, "R": 17}, {"head_dim": 40, "mode": "neox", "offset": 1}),
    Row(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        {**_POSITIONS, "Q": 80, "K": 40, "V": 21, "R": 8},
        {"head_dim": 20, "mode": "neox", "page_tokens": 4, **_NORM},
    ),
    Row(Op.KV_WRITE_BATCHED, {**_POSITIONS, "K": 40, "V": 21}, {"page_tokens": 4}),
    Row(Op.FLASH_ATTN, {**_POSITIONS, "slots": 1, "pages": 150, "kv_rows": 600, "ctx": 600}, _ATTENTION),
    Row(Op.FLASH_ATTN_BATCHED, _POSITIONS, {**_ATTENTION, "window": 5}),
    Row(Op.MLA_EXPAND, {"T": 3}, {"heads": 3, "nope": 7, "rope": 5, "value_dim": 9}),
    Row(
        Op.MLA_FLASH_ATTN,
        _POSITIONS,
        {"heads": 18, "latent": 32, "rope": 9, "value_dim": 11, "scale": 0.1, "page_tokens": 4},
        types=("f16", "q8_0"),
    ),
    Row(Op.MOE_GATE_TOPK, {"T": 5, "D": 64, "E": 20}, {"k": 4, "scale": 2.5}),
    Row(
        Op.MOE_GATE_TOPK,
        {"T": 5, "D": 64, "E": 20},
        {"k": 3, "gating": "sigmoid", "renormalise": False, "groups": 5, "groups_used": 2},
        without=("select_bias",),
    ),
    Row(Op.MOE_SWIGLU, {"T": 3, "F": 37, "k": 2}, {"activation": "gelu"}),
    Row(Op.MOE_DOWN_ACC, {"T": 3, "D": 33, "E": 4, "F": 64, "k": 2}, types=("f32", "q8_0")),
    *(
        Row(op, {"T": 7, "S": 2, "slots": 3, "C": 37, "K": 4})
        for op in (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
    ),
    *(
        Row(
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
    Row(
        Op.SSM_DELTA_NET,
        {"T": 3, "S": 1},
        {"k_heads": 1, "v_heads": 1, "head_dim": 128, "grouping": "tiled", **_NORM},
    ),
    Row(Op.SSM_GATED_NORM, {"T": 3, "K": 74, "D": 37}, _NORM),
    Row(Op.SSM_SCAN, {"T": 7, "S": 2, "I": 21, "N": 16}),
    Row(Op.SAMPLE, {"L": 6, "V": 1037, "two": 2, "four": 4}),
    Row(Op.ARGMAX, {"L": 3, "V": 1037}),
    Row(Op.STREAM_OUT, {"L": 3, "capacity": 4, "one": 1, "two": 2}),
    Row(Op.VERIFY_K, {"S": 40, "K": 3, "slots": 7}),
    Row(Op.TABLE_STORE, {"E": 5, "slots": 3, "pages": 10}),
    Row(Op.LOAD_REQUEST_STATE, {"S": 2, "slots": 3, "rest": 37}),
    Row(Op.STORE_REQUEST_STATE, {"S": 2, "slots": 3, "rest": 37}),
    Row(Op.MATMUL_WMMA_F16, {"T": 3, "N": 18, "K": 96}, types=("f16",)),
    Row(Op.MATMUL_WMMA_Q4K, {"T": 3, "N": 18, "K": 512}, types=("q4_k",)),
)


def cases() -> Iterator[Case]:
    """The same ones at every call."""
    for number, row in enumerate(ROWS):
        for dtype in row.types:
            yield case(row, dtype, seed=number)


def case(row: Row, dtype: str = "f32", *, seed: int = 0) -> Case:
    """Operands of one row. `dtype`: of its matrices of weights."""
    random = np.random.default_rng(seed)
    names = {**row.dims, **{name: value for name, value in row.attrs.items() if isinstance(value, int)}}
    operands = tuple(
        None if port.name in row.without else _operand(port, names, dtype, random) for port in OPS[row.op].inputs
    )
    return Case(f"{row.op.name} {dtype}" if len(row.types) > 1 else row.op.name, row.op, operands, row.attrs)


def _operand(port: Port, names: Mapping[str, int], dtype: str, random: np.random.Generator) -> Operand:
    shape = tuple(int(evaluate(part, names)) for part in port.shape if part != "...")
    shape += tuple(names[key] for key in ("rest",) if port.shape[-1] == "..." and key in names)
    if port.kind == "weight":
        return weight(shape, dtype if len(shape) > 1 and port.name not in ("cos", "sin") else "f32", random)
    if port.name == "sampling":  # temperature, top_k, top_p, min_p
        return random.choice(SAMPLING, shape[0], replace=False)
    if port.kind == "index" or port.name in INDEX:
        rule = INDEX.get(port.name)
        if rule is None:
            return random.integers(0, 7, shape).astype(np.int32)
        return rule(shape, names, random).astype(np.int32)
    return values(shape, random)


def values(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Normal values with zeros of both signs, denormals, large ones."""
    made = random.normal(size=shape).astype(np.float32)
    flat = made.reshape(-1)
    for value in (0.0, -0.0, 1e-41, -3e-39, 1e4, -2e3):
        flat[random.integers(0, flat.size)] = value
    return made


def weight(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> Weight:
    """Any bytes are a block of a quantised type: scales may be infinite or NaN."""
    match dtype:
        case "f32":
            return Weight("f32", shape, values(shape, random))
        case "f16":
            return Weight("f16", shape, values(shape, random).astype(np.float16))
        case "bf16":
            return Weight("bf16", shape, (values(shape, random).view(np.uint32) >> 16).astype(np.uint16))
    block_of(dtype)  # raises KeyError for a name that ggml does not have
    size = (*shape[:-1], row_bytes(dtype, shape[-1]))
    return Weight(dtype, shape, random.integers(0, 256, size, dtype=np.uint8))


def _below(name: str) -> Callable[..., np.ndarray]:
    """Distinct where there are enough of them."""

    def rule(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
        bound, size = names[name], prod(shape)
        drawn = random.permutation(bound)[:size] if size <= bound else random.integers(0, bound, size)
        return drawn.reshape(shape)

    return rule


def _sequence(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    """Whose token each is: in runs, as a step has them."""
    return np.sort(np.arange(shape[0]) % names["S"])


def _pages(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(prod(shape)).reshape(shape)


def _entries(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(names["slots"] * names["pages"])[: shape[0]]


def _position(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(names["ctx"])[: shape[0]]


SAMPLING = np.array(
    [[0, 0, 1, 0], [0.7, 40, 0.9, 0.05], [1, 0, 1, 0], [1.5, 0, 0.8, 0], [0.2, 900, 1, 0.01], [3, 1, 1, 0]],
    np.float32,
)

# What an index means, by its port's name.
INDEX: dict[str, Callable[..., np.ndarray]] = {
    "token_id": _below("V"),
    "position": _position,
    "slot": _below("slots"),
    "page_table": _pages,
    "sequence": _sequence,
    "source": _below("slots"),
    "target": _below("slots"),
    "ids": _below("E"),
    "row": _below("T"),
    "entry": _entries,
}
