"""Compile a corpus of Triton kernels for gfx1201, offline. Needs triton 3.9.0 and NumPy, nothing of zinc_rt.

python corpus.py FOLDER

For each kernel, write NAME.hsaco, NAME.json (Triton's metadata) and NAME.args.json: the arguments of a launch of
one workgroup, by name, as "random f32 1024" (or zeros, out) or an integer or float.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

ARCH = "gfx1201"
_POINTERS = {
    "f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "f64": "*fp64", "fp8": "*fp8e4nv", "i8": "*i8", "u8": "*u8",
    "i32": "*i32",
}  # fmt: skip


@dataclass(frozen=True)
class CorpusKernel:
    """A kernel of the corpus. `args`: by name, either an array ("random f32 1024"), an int or a float."""

    name: str
    kernel: Any
    args: dict[str, str | int | float]
    constants: dict[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2


# --- element-wise


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def transcendental(x, out, n, BLOCK: tl.constexpr, WHICH: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0)
    if WHICH == "erf":
        value = libdevice.erf(value)
    elif WHICH == "sin":
        value = tl.sin(value) + tl.cos(value)
    elif WHICH == "gelu":
        value = 0.5 * value * (1 + libdevice.tanh(0.79788456 * (value + 0.044715 * value * value * value)))
    else:
        value = tl.exp(value) + tl.log(value * value + 1) + tl.sqrt(value * value)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def philox(out, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.randn(seed, i), mask=i < n)


@triton.jit
def rope(q, cosines, sines, out, HEADS: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0)
    head = tl.arange(0, HEADS)[:, None]
    index = tl.arange(0, HALF)[None, :]
    base = row * HEADS * HALF * 2 + head * HALF * 2
    one = tl.load(q + base + index).to(tl.float32)
    other = tl.load(q + base + HALF + index).to(tl.float32)
    cosine, sine = tl.load(cosines + row * HALF + index), tl.load(sines + row * HALF + index)
    tl.store(out + base + index, (one * cosine - other * sine).to(tl.float16))
    tl.store(out + base + HALF + index, (other * cosine + one * sine).to(tl.float16))


@triton.jit
def transpose(x, out, n, m, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    column = tl.arange(0, BLOCK)
    tile = tl.load(x + row[:, None] * m + column[None, :], mask=(row[:, None] < n) & (column[None, :] < m))
    inside = (column[:, None] < m) & (row[None, :] < n)
    tl.store(out + column[:, None] * n + row[None, :], tl.trans(tile), mask=inside)


@triton.jit
def gather(table, indices, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + row, mask=row < n, other=0)
    column = tl.arange(0, WIDTH)
    tile = tl.load(table + index[:, None] * WIDTH + column[None, :])
    tl.store(out + row[:, None] * WIDTH + column[None, :], tile, mask=row[:, None] < n)


@triton.jit
def axpy_f64(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = a * tl.load(x + i, mask=i < n) / (1 + tl.load(y + i, mask=i < n))
    tl.store(out + i, tl.sqrt(value * value + 1), mask=i < n)


# --- rows


@triton.jit
def softmax(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    value = tl.load(x + row * width + index, mask=index < width, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(
        out + row * width + index, (value / tl.sum(value, axis=0)).to(out.dtype.element_ty), mask=index < width
    )


@triton.jit
def layer_norm(x, weight, bias, out, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < width
    value = tl.load(x + row * width + index, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / width
    centred = tl.where(mask, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    result = centred * scale * tl.load(weight + index, mask=mask) + tl.load(bias + index, mask=mask)
    tl.store(out + row * width + index, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _plus(one, other):
    return one + other


@triton.jit
def scan(x, out, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + index, tl.associative_scan(tl.load(x + index), 0, _plus))


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(out + index, tl.sort(tl.load(x + index)))


@triton.jit
def argmax(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    value = tl.load(x + row * width + index, mask=index < width, other=-float("inf"))
    tl.store(out + row, tl.argmax(value, axis=0))


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK)) & (BINS - 1)
    tl.store(out + tl.arange(0, BINS), tl.histogram(value, BINS))


@triton.jit
def atomics(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(out + (value & (BINS - 1)), 1, mask=i < n)
    tl.atomic_max(out + BINS + (value & (BINS - 1)), value, mask=i < n)


@triton.jit
def cas_lock(x, total, lock, BLOCK: tl.constexpr):
    value = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def matvec_q4(x, weights, scales, out, K: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    index = tl.arange(0, K // 2)
    packed = tl.load(weights + row[:, None] * (K // 2) + index[None, :])
    scale = tl.load(scales + row[:, None] * (K // 32) + index[None, :] // 16)
    low = ((packed & 15).to(tl.float32) - 8) * scale
    high = ((packed >> 4).to(tl.float32) - 8) * scale
    total = tl.sum(low * tl.load(x + 2 * index)[None, :] + high * tl.load(x + 2 * index + 1)[None, :], axis=1)
    tl.store(out + row, total)


# --- products


@triton.jit
def matmul(
    a, b, c, k, stride_a, stride_b, stride_c,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    at_a = a + row[:, None] * stride_a + inner[None, :]
    at_b = b + inner[:, None] * stride_b + column[None, :]
    total = tl.zeros((M, N), OUT)
    for start in range(0, k, K):
        left = tl.load(at_a, mask=inner[None, :] < k - start, other=0.0)
        right = tl.load(at_b, mask=inner[:, None] < k - start, other=0.0)
        total = tl.dot(left, right, total, out_dtype=OUT)
        at_a += K
        at_b += K * stride_b
    tl.store(c + row[:, None] * stride_c + column[None, :], total.to(c.dtype.element_ty))


@triton.jit
def attention(q, k, v, out, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start = tl.program_id(0) * M
    row, index, column = start + tl.arange(0, M), tl.arange(0, D), tl.arange(0, N)
    query = tl.load(q + row[:, None] * D + index[None, :], mask=row[:, None] < length, other=0.0)
    total = tl.zeros((M, D), tl.float32)
    largest = tl.full((M,), -float("inf"), tl.float32)
    norm = tl.zeros((M,), tl.float32)
    for first in range(0, start + M, N):
        key_row = first + column
        key = tl.load(k + key_row[None, :] * D + index[:, None], mask=key_row[None, :] < length, other=0.0)
        score = tl.dot(query, key) * scale
        score = tl.where((row[:, None] >= key_row[None, :]) & (key_row[None, :] < length), score, -float("inf"))
        now = tl.maximum(largest, tl.max(score, axis=1))
        weight = tl.exp2(score - now[:, None])
        factor = tl.exp2(largest - now)
        norm = norm * factor + tl.sum(weight, axis=1)
        value = tl.load(v + key_row[:, None] * D + index[None, :], mask=key_row[:, None] < length, other=0.0)
        total = tl.dot(weight.to(tl.float16), value, total * factor[:, None])
        largest = now
    tl.store(
        out + row[:, None] * D + index[None, :], (total / norm[:, None]).to(tl.float16), mask=row[:, None] < length
    )


def _element_wise() -> Iterator[CorpusKernel]:
    arrays: dict[str, str | int | float] = {"x": "random f32 2048", "y": "random f32 2048", "out": "out f32 2048"}
    for warps in (1, 4, 8):
        yield CorpusKernel(f"add_w{warps}", add, {**arrays, "n": 1000}, {"BLOCK": 1024}, warps)
    one: dict[str, str | int | float] = {"x": "random f32 1024", "out": "out f32 1024", "n": 1000}
    for which in ("erf", "sin", "gelu", "exp"):
        yield CorpusKernel(f"{which}_w4", transcendental, one, {"BLOCK": 1024, "WHICH": which})
    yield CorpusKernel("sin_w1", transcendental, one, {"BLOCK": 1024, "WHICH": "sin"}, 1)
    yield CorpusKernel("erf_w8", transcendental, one, {"BLOCK": 1024, "WHICH": "erf"}, 8)
    yield CorpusKernel("philox_w4", philox, {"out": "out f32 1024", "seed": 7, "n": 1000}, {"BLOCK": 1024})
    yield CorpusKernel("philox_w1", philox, {"out": "out f32 512", "seed": 7, "n": 500}, {"BLOCK": 512}, 1)
    for warps, heads in ((1, 4), (4, 16)):
        size = heads * 64
        turned: dict[str, str | int | float] = {
            "q": f"random f16 {size}",
            "cosines": "random f32 32",
            "sines": "random f32 32",
            "out": f"out f16 {size}",
        }
        yield CorpusKernel(f"rope_w{warps}", rope, turned, {"HEADS": heads, "HALF": 32}, warps)
    for warps, size in ((4, 32), (8, 64)):
        square: dict[str, str | int | float] = {"x": f"random f32 {size * size}", "out": f"out f32 {size * size}"}
        yield CorpusKernel(
            f"transpose_w{warps}", transpose, {**square, "n": size, "m": size}, {"BLOCK": size}, warps
        )
    yield CorpusKernel(
        "gather_w4",
        gather,
        {"table": "random f16 4096", "indices": "zeros i32 64", "out": "out f16 4096", "n": 60},
        {"WIDTH": 64, "BLOCK": 64},
    )
    doubles: dict[str, str | int | float] = {"x": "random f64 512", "y": "random f64 512", "out": "out f64 512"}
    yield CorpusKernel("f64_w4", axpy_f64, {**doubles, "a": 1.5, "n": 500}, {"BLOCK": 512})


def _rows() -> Iterator[CorpusKernel]:
    for dtype, width, warps in (("f32", 256, 1), ("f32", 1024, 4), ("f16", 4096, 8)):
        row: dict[str, str | int | float] = {"x": f"random {dtype} {width}", "out": f"out {dtype} {width}"}
        yield CorpusKernel(
            f"softmax_{dtype}_w{warps}", softmax, {**row, "width": width - 5}, {"BLOCK": width}, warps
        )
        scale: dict[str, str | int | float] = {"weight": f"random f32 {width}", "bias": f"random f32 {width}"}
        yield CorpusKernel(
            f"layer_norm_{dtype}_w{warps}",
            layer_norm,
            {"x": row["x"], **scale, "out": row["out"], "width": width - 5, "epsilon": 1e-5},
            {"BLOCK": width},
            warps,
        )
    for warps, size in ((1, 128), (4, 1024), (8, 2048)):
        pair: dict[str, str | int | float] = {"x": f"random f32 {size}", "out": f"out f32 {size}"}
        yield CorpusKernel(f"scan_w{warps}", scan, pair, {"BLOCK": size}, warps)
        yield CorpusKernel(f"sort_w{warps}", sort, pair, {"BLOCK": min(size, 256)}, warps)
        maximum: dict[str, str | int | float] = {"x": f"random f32 {size}", "out": "out i32 1", "width": size - 5}
        yield CorpusKernel(f"argmax_w{warps}", argmax, maximum, {"BLOCK": size}, warps)
    yield CorpusKernel(
        "histogram_w4", histogram, {"x": "random i32 512", "out": "out i32 64"}, {"BLOCK": 512, "BINS": 64}
    )
    yield CorpusKernel(
        "atomics_w4", atomics, {"x": "random i32 512", "out": "zeros i32 32", "n": 500}, {"BINS": 16, "BLOCK": 512}
    )
    locked: dict[str, str | int | float] = {"x": "random f32 256", "total": "zeros f32 1", "lock": "zeros i32 1"}
    yield CorpusKernel("cas_lock_w4", cas_lock, locked, {"BLOCK": 256})
    yield CorpusKernel(
        "matvec_q4_w4",
        matvec_q4,
        {"x": "random f32 256", "weights": "random u8 2048", "scales": "random f32 128", "out": "out f32 16"},
        {"K": 256, "ROWS": 16},
    )


def _products() -> Iterator[CorpusKernel]:
    tilings = [
        ("f16", 16, 16, 16, 1, 1), ("f16", 32, 32, 32, 4, 1), ("f16", 64, 64, 32, 4, 2), ("f16", 64, 64, 32, 4, 3),
        ("f16", 128, 64, 32, 8, 2), ("f16", 128, 128, 32, 8, 2), ("bf16", 32, 32, 32, 4, 2),
        ("bf16", 64, 64, 32, 4, 2), ("i8", 32, 32, 32, 4, 2), ("i8", 64, 64, 64, 4, 2), ("fp8", 32, 32, 32, 4, 2),
        ("fp8", 64, 64, 64, 8, 2), ("f32", 32, 32, 16, 4, 2), ("bf16", 128, 64, 32, 8, 3),
        ("i8", 128, 64, 64, 8, 2), ("fp8", 64, 64, 32, 4, 3),
    ]  # fmt: skip
    for dtype, m, n, k, warps, stages in tilings:
        out = "i32" if dtype == "i8" else "f32"
        yield _product(dtype, out, m, n, k, warps, stages)
    for m, n, k, warps, stages in ((32, 32, 32, 4, 1), (64, 64, 32, 4, 2), (128, 64, 32, 8, 3)):
        yield _product("f16", "f16", m, n, k, warps, stages)


def _product(dtype: str, out: str, m: int, n: int, k: int, warps: int, stages: int) -> CorpusKernel:
    length = 2 * k
    args: dict[str, str | int | float] = {
        "a": f"random {dtype} {m * length}", "b": f"random {dtype} {length * n}", "c": f"out {out} {m * n}",
        "k": length, "stride_a": length, "stride_b": n, "stride_c": n,
    }  # fmt: skip
    kind = {"i32": tl.int32, "f32": tl.float32, "f16": tl.float16}[out]
    name = f"matmul_{dtype}_{out}_{m}x{n}x{k}_s{stages}_w{warps}"
    return CorpusKernel(name, matmul, args, {"M": m, "N": n, "K": k, "OUT": kind}, warps, stages)


def _attention() -> Iterator[CorpusKernel]:
    for m, n, d, warps in ((16, 16, 32, 1), (32, 32, 64, 4), (64, 32, 64, 4), (128, 32, 64, 8)):
        arrays: dict[str, str | int | float] = dict.fromkeys("qkv", f"random f16 {m * d}")
        args = {**arrays, "out": f"out f16 {m * d}", "length": m - 3, "scale": 0.18}
        yield CorpusKernel(f"attention_{m}x{n}x{d}_w{warps}", attention, args, {"M": m, "N": n, "D": d}, warps)


def cases() -> list[CorpusKernel]:
    return [*_element_wise(), *_rows(), *_products(), *_attention()]


def _signature(case: CorpusKernel) -> dict[str, str]:
    """Return Triton's type of each argument."""

    def of(value: str | int | float) -> str:
        if isinstance(value, str):
            return _POINTERS[value.split()[1]]
        return "i32" if isinstance(value, int) else "fp32"

    return {key: of(value) for key, value in case.args.items()} | dict.fromkeys(case.constants, "constexpr")


def compile_case(case: CorpusKernel, folder: Path) -> None:
    """Compile one kernel and write its three files. Arrays are aligned to 16 bytes, as PyTorch's are."""
    signature = _signature(case)
    pointers = [index for index, value in enumerate(case.args.values()) if isinstance(value, str)]
    source = ASTSource(
        case.kernel, signature, case.constants, {(pointer,): [["tt.divisibility", 16]] for pointer in pointers}
    )
    options = {"num_warps": case.warps, "num_stages": case.stages}
    result = triton.compile(source, target=GPUTarget("hip", ARCH, 32), options=options)
    (folder / f"{case.name}.json").write_text(json.dumps(result.metadata._asdict(), default=str))
    (folder / f"{case.name}.args.json").write_text(json.dumps(case.args))
    (folder / f"{case.name}.hsaco").write_bytes(result.asm["hsaco"])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        if not (folder / f"{case.name}.hsaco").exists():
            compile_case(case, folder)


if __name__ == "__main__":
    main()
