"""Kernels of our own in FlyDSL against NumPy: `python flydsl_kernels.py [NAME ...] [--chip C] [--json F]`.

FlyDSL compiles without a GPU and links with the ld.lld of ROCm; here zig's takes its place. The code object is
read from the compiled module. The arguments are the tensors' addresses, because their layouts are static.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from compiled_cases import CompiledCase, CompiledCode, multiply_matrices, run_cases, silu, split_kind

os.environ |= {"COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}

import flydsl.compiler as flyc
import flydsl.expr as fx

TILE = 16  # rows, columns and depth of a matrix instruction
THREADS = 64


@dataclass(frozen=True, kw_only=True)
class FlydslCase(CompiledCase):
    """A kernel whose parameters are the inputs and the output."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...] = (THREADS,)
    lds_bytes: int | None = None


@flyc.kernel
def add(a: fx.Tensor, b: fx.Tensor, y: fx.Tensor):
    i = fx.block_idx.x * THREADS + fx.thread_idx.x
    if i < 1000:
        y[i] = a[i] + b[i]


@flyc.kernel
def activate(a: fx.Tensor, y: fx.Tensor):
    i = fx.block_idx.x * THREADS + fx.thread_idx.x
    y[i] = a[i] / (fx.Float32(1.0) + fx.math.exp(-a[i]))


@flyc.kernel
def scale_rows(a: fx.Tensor, b: fx.Tensor, y: fx.Tensor):
    """Divide each row by the root of the mean of its squares, times a weight."""
    row, lane = fx.block_idx.x, fx.thread_idx.x
    total = fx.Float32(0.0)
    for part in fx.range_constexpr(4):
        total = total + a[row, part * 32 + lane] * a[row, part * 32 + lane]
    total = fx.coop.warp_reduce(total, fx.ReductionOp.ADD, width=32)
    scale = fx.math.rsqrt(total / fx.Float32(128.0) + fx.Float32(1e-6))
    for part in fx.range_constexpr(4):
        y[row, part * 32 + lane] = a[row, part * 32 + lane] * scale * b[part * 32 + lane]


@flyc.kernel
def sum_before(a: fx.Tensor, y: fx.Tensor):
    i = fx.block_idx.x * 32 + fx.thread_idx.x
    y[i] = fx.coop.warp_exclusive_scan(a[i], fx.ReductionOp.ADD, width=32)


@flyc.kernel
def reverse(a: fx.Tensor, y: fx.Tensor):
    thread, first = fx.thread_idx.x, fx.block_idx.x * 256
    shared = fx.get_dyn_shared(fx.Float32)
    fx.ptr_store(a[first + thread], shared + thread)
    fx.gpu.barrier()
    y[first + thread] = fx.ptr_load(shared + (255 - thread))


@flyc.kernel
def transpose(a: fx.Tensor, y: fx.Tensor):
    column, row = fx.thread_idx.x % TILE, fx.thread_idx.x // TILE
    left, top = fx.block_idx.x * TILE, fx.block_idx.y * TILE
    shared = fx.get_dyn_shared(fx.Float32)
    fx.ptr_store(a[top + row, left + column], shared + (row * (TILE + 1) + column))
    fx.gpu.barrier()
    y[left + row, top + column] = fx.ptr_load(shared + (column * (TILE + 1) + row))


def _matrix_product(element: Any, accumulator: Any, depth: int, columns: int, **options: Any) -> Any:
    """Return a kernel for y = a times the transpose of b, a tile of 16 by 16 of y a wave."""

    @flyc.kernel
    def multiply(a: fx.Tensor, b: fx.Tensor, y: fx.Tensor):
        lane = fx.thread_idx.x
        first_a = fx.get_iter(a) + fx.block_idx.y * (TILE * depth)
        first_b = fx.get_iter(b) + fx.block_idx.x * (TILE * depth)
        first_y = fx.get_iter(y) + (fx.block_idx.y * (TILE * columns) + fx.block_idx.x * TILE)
        tile_y = fx.make_view(first_y, fx.make_layout((TILE, TILE), (columns, 1)))
        atom = fx.make_mma_atom(fx.rocdl.WMMA(TILE, TILE, TILE, element, accumulator, **options))
        tiled = fx.make_tiled_mma(atom, fx.make_layout((1, 1, 1), (0, 0, 0)))
        part = tiled.thr_slice(lane)
        load = fx.make_copy_atom(fx.UniversalCopy(element.width), element)
        store = fx.make_copy_atom(fx.UniversalCopy(accumulator.width), accumulator)
        result = part.make_fragment_C(tile_y)
        result.fill(0)
        for step in fx.range_constexpr(depth // TILE):
            tile_a = fx.make_view(first_a + step * TILE, fx.make_layout((TILE, TILE), (depth, 1)))
            tile_b = fx.make_view(first_b + step * TILE, fx.make_layout((TILE, TILE), (depth, 1)))
            copy_a = fx.make_tiled_copy_A(load, tiled).get_slice(lane)
            copy_b = fx.make_tiled_copy_B(load, tiled).get_slice(lane)
            values_a, values_b = part.make_fragment_A(tile_a), part.make_fragment_B(tile_b)
            fx.copy(load, copy_a.partition_S(tile_a), copy_a.retile(values_a))
            fx.copy(load, copy_b.partition_S(tile_b), copy_b.retile(values_b))
            fx.gemm(atom, result, values_a, values_b, result)
        copy_y = fx.make_tiled_copy_C(store, tiled).get_slice(lane)
        fx.copy(store, copy_y.retile(result), copy_y.partition_S(tile_y))

    return multiply


def _product_case(name: str, kind: str, output: str, kernel: Any, tolerance: float = 2e-4) -> FlydslCase:
    return FlydslCase(
        name=name, inputs=(f"48x64x{kind}", f"32x64x{kind}"), output=f"48x32x{output}", kernel=kernel,
        exact=lambda a, b: multiply_matrices(a, b.T), tolerance=tolerance, grid=(2, 3), block=(32,),
    )  # fmt: skip


def _normalise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / np.sqrt((a.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6) * b


def _sum_before(a: np.ndarray) -> np.ndarray:
    return (np.cumsum(a.reshape(-1, 32), axis=1) - a.reshape(-1, 32)).reshape(-1)


CASES = (
    FlydslCase(name="add", inputs=("1000xf32", "1000xf32"), output="1000xf32", kernel=add, exact=np.add,
               grid=(16,)),
    FlydslCase(name="silu", inputs=("256xf32",), output="256xf32", kernel=activate, exact=silu, grid=(4,)),
    FlydslCase(name="rms_norm", inputs=("5x128xf32", "128xf32"), output="5x128xf32", kernel=scale_rows,
               exact=_normalise, grid=(5,), block=(32,)),
    FlydslCase(name="scan", inputs=("96xi32",), output="96xi32", kernel=sum_before, exact=_sum_before, grid=(3,),
               block=(32,)),
    FlydslCase(name="reversal", inputs=("1024xf32",), output="1024xf32", kernel=reverse, grid=(4,), block=(256,),
               exact=lambda a: a.reshape(4, 256)[:, ::-1].reshape(-1), lds_bytes=1024),
    FlydslCase(name="transposition", inputs=("32x48xf32",), output="48x32xf32", kernel=transpose, grid=(3, 2),
               block=(256,), exact=np.transpose, lds_bytes=4 * TILE * (TILE + 1)),
    _product_case("matmul_f16", "f16", "f32", _matrix_product(fx.Float16, fx.Float32, 64, 32)),
    _product_case("matmul_i8", "i8", "i32",
                  _matrix_product(fx.Int8, fx.Int32, 64, 32, sign_a=True, sign_b=True, clamp=False), 0.0),
)  # fmt: skip


@flyc.jit
def launch_two(kernel: fx.Constexpr, block: fx.Constexpr, a: fx.Tensor, y: fx.Tensor):
    kernel(a, y).launch(grid=(1, 1, 1), block=block)


@flyc.jit
def launch_three(kernel: fx.Constexpr, block: fx.Constexpr, a: fx.Tensor, b: fx.Tensor, y: fx.Tensor):
    kernel(a, b, y).launch(grid=(1, 1, 1), block=block)


def _compile_case(case: FlydslCase, chip: str, folder: Path) -> CompiledCode:
    """Compile a case. Raise ValueError with the compiler's reason."""
    linker = folder / "llvm" / "bin" / "ld.lld"
    linker.parent.mkdir(parents=True)
    linker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang ld.lld "$@"\n')
    linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
    os.environ |= {"ROCM_PATH": str(folder), "ARCH": chip, "FLYDSL_GPU_ARCH": chip}
    tensors = [flyc.from_dlpack(np.zeros(*split_kind(kind))) for kind in (*case.inputs, case.output)]
    launcher = {2: launch_two, 3: launch_three}[len(tensors)]
    launcher._mem_cache.clear()
    try:
        launcher(case.kernel, case.block, *tensors)
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    [module] = launcher._mem_cache.values()
    text = module.ir
    [name] = re.findall(r"gpu\.kernel_metadata<\"(\w+)\"", text)
    [binary] = re.findall(r'bin = "((?:[^"\\]|\\.)*)"', text)
    return CompiledCode(_unescape(binary), name, case.grid, case.block, case.lds_bytes)


def _unescape(text: str) -> bytes:
    """Return the bytes of an MLIR string: printable ASCII, and \\XX for others."""
    return re.sub(rb"\\([0-9A-F]{2}|.)", lambda match: _unescape_one(match[1]), text.encode("latin1"))


def _unescape_one(code: bytes) -> bytes:
    return bytes.fromhex(code.decode()) if len(code) == 2 else code


if __name__ == "__main__":
    sys.exit(run_cases(CASES, _compile_case, __doc__ or ""))
