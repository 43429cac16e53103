"""Weights of every type to float32, and rows of them: the oracle's bits, whatever the bytes are."""

from __future__ import annotations

import ctypes
import re
import struct

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from kernels.native.harness import assert_same_bits, check_op, load_code, make_backend

from zinc_rt.backends.cpu.one_node import run_node
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import draw_weight
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Stride, Temp
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.types import find_type_number, list_dtypes
from zinc_rt.kernels.native.vectors import check_vectors, convert_to_f32
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.weight import Weight

TYPES = sorted(list_dtypes())
# Float16 bits: denormals of both signs, zeros, the largest, infinities, NaN, an ordinary one
ODD_SCALES = (0x0001, 0x03FF, 0x8001, 0x0000, 0x8000, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x2E66)
# Where a block keeps what multiplies it, as offsets of float16s
SCALES = {"q4_1": (0, 2), "q5_1": (0, 2), "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2)}
SCALES |= {"q6_k": (208,), "tq1_0": (52,), "tq2_0": (64,), "mxfp4": (), "nvfp4": (), "iq1_m": (), "bf16": ()}


def dequantise_by_kernel(weight: Weight, row_stride: int | None = None) -> np.ndarray:
    """Run the kernel `dequantise` into a new array."""
    rows, k = weight.shape
    y = np.full((rows, k), np.nan, np.float32)
    stride = weight.raw.strides[0] if row_stride is None else row_stride
    block = struct.pack("<QQQII", weight.raw.ctypes.data, y.ctypes.data, stride, find_type_number(weight.dtype), k)
    kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
    assert kernel(load_code().address("dequantise"))(block, (ctypes.c_uint32 * 3)(rows, 1, 1), 0, rows) == 0
    return y


def random_blocks(dtype: str, rows: int, k: int, seed: int = 0) -> np.ndarray:
    elements, size_bytes = find_block(dtype)
    return np.random.default_rng(seed).integers(0, 256, (rows, k // elements * size_bytes), dtype=np.uint8)


def weight_of_bytes(dtype: str, raw: np.ndarray) -> Weight:
    elements, size_bytes = find_block(dtype)
    plain = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
    shape = (raw.shape[0], raw.shape[1] // size_bytes * elements)
    return Weight(dtype, shape, raw.view(plain.get(dtype, np.uint8)))


@pytest.mark.parametrize("dtype", TYPES)
def test_any_bytes_match_the_oracle_bits(dtype: str) -> None:
    raw = random_blocks(dtype, 64, 1024)
    raw[0], raw[1] = 0, 255
    w = weight_of_bytes(dtype, raw)
    assert_same_bits(dequantise_by_kernel(w), dequantise(w), dtype)


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if SCALES.get(dtype, (0,))])
def test_odd_scales_match_the_oracle_bits(dtype: str) -> None:
    elements, size_bytes = find_block(dtype)
    raw = random_blocks(dtype, len(ODD_SCALES), 2 * max(elements, 16))
    for row, bits in enumerate(ODD_SCALES):
        for offset in SCALES.get(dtype, (0,)):
            raw[row].reshape(-1, size_bytes)[:, offset : offset + 2] = (bits & 0xFF, bits >> 8)
    w = weight_of_bytes(dtype, raw)
    assert_same_bits(dequantise_by_kernel(w), dequantise(w), dtype)


def test_odd_iq1_m_scales_match() -> None:
    raw = random_blocks("iq1_m", len(ODD_SCALES), 256)
    for row, bits in enumerate(ODD_SCALES):
        for piece in range(4):
            index = 49 + 2 * piece
            raw[row, index] = (raw[row, index] & 0x0F) | (bits >> 4 * piece & 15) << 4
    w = weight_of_bytes("iq1_m", raw)
    assert_same_bits(dequantise_by_kernel(w), dequantise(w), "iq1_m")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("k", [1, 15, 16, 17, 37])
def test_rows_of_plain_types_have_any_length(dtype: str, k: int) -> None:
    w = weight_of_bytes(dtype, random_blocks(dtype, 3, k, seed=k))
    assert_same_bits(dequantise_by_kernel(w), dequantise(w), dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_16_bit_value_is_exact(dtype: str) -> None:
    w = weight_of_bytes(dtype, np.arange(1 << 16, dtype=np.uint16).reshape(1, -1).view(np.uint8))
    assert_same_bits(dequantise_by_kernel(w), dequantise(w), dtype)


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k"])
def test_strided_rows_match(dtype: str) -> None:
    wide = weight_of_bytes(dtype, random_blocks(dtype, 4, 512))
    half = wide.raw[:, : wide.raw.shape[1] // 2]
    w = Weight(dtype, (4, 256), half)
    assert_same_bits(
        dequantise_by_kernel(w), dequantise(Weight(dtype, (4, 256), np.ascontiguousarray(half))), dtype
    )


def test_kernel_type_table_matches_ggml() -> None:
    text = (build.HEADERS / "types.h").read_text(encoding="ascii")
    rows = re.findall(r"X\((\w+), (\d+), (\d+), (\d+)\)", text)
    assert {name for name, *_ in rows} == list_dtypes()
    for name, number, elements, size_bytes in rows:
        ggml = GGMLQuantizationType[name.upper()]
        assert (int(number), (int(elements), int(size_bytes))) == (ggml, GGML_QUANT_SIZES[ggml]), name


def test_every_type_read_by_the_oracle_is_supported() -> None:
    for ggml in GGMLQuantizationType:
        dtype = ggml.name.lower()
        elements, size_bytes = GGML_QUANT_SIZES[ggml]
        try:
            dequantise(weight_of_bytes(dtype, np.zeros((1, size_bytes * (256 // elements)), np.uint8)))
        except UnsupportedError:
            assert dtype not in list_dtypes()
        else:
            assert dtype in list_dtypes()


@pytest.mark.parametrize("dtype", TYPES)
def test_embedding_rows_of_every_type_match(dtype: str) -> None:
    table = draw_weight((7, 512), dtype, np.random.default_rng(1))
    check_op(Op.EMBED, np.array([6, 0, 3, 3, 1], np.int32), table, capacity={"tokens": 8})


def test_strided_embedding_table_matches() -> None:
    wide = draw_weight((7, 512), "q4_0", np.random.default_rng(1))
    table = Weight("q4_0", (7, 256), wide.raw[:, : wide.raw.shape[1] // 2])
    check_op(Op.EMBED, np.array([6, 2], np.int32), table)


@pytest.mark.parametrize("token", [7, -1, 1 << 30, -(1 << 31)])
def test_token_outside_the_vocabulary_is_rejected_and_the_next_step_runs(token: int) -> None:
    table = draw_weight((7, 64), "f16", np.random.default_rng(1))
    fresh = (np.zeros((3, 64), np.float32),)
    tier = make_backend("canonical-1", 2, TaskSplitting(least=1))
    with pytest.raises(InputError, match=r"EMBED.*a token is outside the vocabulary"):
        run_node(tier, Op.EMBED, (np.array([1, token, 2], np.int32), table), fresh)
    (hidden,) = run_node(tier, Op.EMBED, (np.array([1, 6, 2], np.int32), table), fresh)
    assert_same_bits(hidden, dequantise(table)[[1, 6, 2]], "EMBED")


def _norm_graph(dtype: str, shape: tuple[int, ...]) -> Builder:
    builder = Builder("vectors")
    builder.buffer("x", ("tokens", 64), "f32", "activation")
    builder.buffer("w", shape, dtype, "weight")
    builder.buffer("y", ("tokens", 64), "f32", "activation")
    builder.node(Op.RMS_NORM, ("x", "w"), ("y",), eps=1e-6, size=64)
    return builder


def test_non_f32_vector_is_dequantised_first() -> None:
    graph = _norm_graph("q8_0", (64,)).build()
    proper = Launch("norm", (Ref("x"), Ref("w"), Ref("y")), (64,), ("tokens", 1, 1))
    first, sync, second = convert_to_f32(graph.nodes[0], graph, [proper])
    temp = Temp("f32:w", 256)
    assert first == Launch("dequantise", (Ref("w"), temp, None), (find_type_number("q8_0"), 64), (1, 1, 1))
    assert sync is SYNC
    assert second == Launch("norm", (Ref("x"), temp, Ref("y")), (64,), ("tokens", 1, 1))


def test_f32_vector_and_strided_matrix_are_not_copied() -> None:
    graph = _norm_graph("f32", (64,)).build()
    proper = Launch("norm", (Ref("x"), Ref("w"), Ref("y")), (64,), ("tokens", 1, 1))
    assert list(convert_to_f32(graph.nodes[0], graph, [proper])) == [proper]
    graph = _norm_graph("q8_0", (2, 64)).build()
    strided = Launch("matvec", (Ref("x"), Ref("w"), Stride("w", -2), Ref("y")), (64,), ("tokens", 1, 1))
    assert list(convert_to_f32(graph.nodes[0], graph, [strided])) == [strided]


def test_unreadable_vector_error_gives_the_reason() -> None:
    graph = _norm_graph("q8_1", (64,)).build()
    assert check_vectors(graph.nodes[0], graph) == "no native kernel supports q8_1 weights"
    graph = _norm_graph("q8_0", (2, 2, 64)).build()
    assert "3 dimensions" in (check_vectors(graph.nodes[0], graph) or "")
    assert check_vectors(graph.nodes[0], graph, "w") is None
