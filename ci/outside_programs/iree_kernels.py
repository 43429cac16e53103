"""Kernels that iree-compile makes against NumPy: `python iree_kernels.py [NAME ...] [--chip C] [--json F]`.

Each function is compiled alone, and its grid is read from the compilation phase executable-targets.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from compiled_cases import CompiledCase, CompiledCode, multiply_matrices, run_cases, silu


@dataclass(frozen=True, kw_only=True)
class IreeCase(CompiledCase):
    """A function of one dispatch. `body` computes %result, of type `output`, from %0, %1, ..., of the types
    `inputs`.
    """

    body: str

    def module(self) -> str:
        arguments = ", ".join(f"%{index}: tensor<{item}>" for index, item in enumerate(self.inputs))
        element = self.output.rpartition("x")[2]
        zero = "0.0" if element.startswith("f") else "0"
        return f"""
func.func @{self.name}({arguments}) -> tensor<{self.output}> {{
  %zero = arith.constant {zero} : {element}
  %empty = tensor.empty() : tensor<{self.output}>
  %filled = linalg.fill ins(%zero : {element}) outs(%empty : tensor<{self.output}>) -> tensor<{self.output}>
  {self.body}
  return %result : tensor<{self.output}>
}}
"""


def _elementwise(name: str, shape: str, lines: str, exact: Callable[..., np.ndarray], inputs: int) -> IreeCase:
    """Return a case that computes %r of the scalars %a, %b, ... of float32."""
    letters = "abc"[:inputs]
    dimensions = ", ".join(f"d{index}" for index in range(shape.count("x")))
    order = f"affine_map<({dimensions}) -> ({dimensions})>"
    scalars = ", ".join(f"%{letter}: f32" for letter in letters)
    body = f"""%result = linalg.generic {{
    indexing_maps = [{", ".join([order] * (inputs + 1))}],
    iterator_types = [{", ".join(['"parallel"'] * shape.count("x"))}]}}
    ins({", ".join(f"%{index}" for index in range(inputs))} : {", ".join([f"tensor<{shape}>"] * inputs)})
    outs(%empty : tensor<{shape}>) {{
    ^bb0({scalars}, %o: f32):
      {lines}
      linalg.yield %r : f32
    }} -> tensor<{shape}>"""
    return IreeCase(name=name, inputs=(shape,) * inputs, output=shape, exact=exact, body=body)


def _named(
    name: str, operation: str, inputs: tuple[str, ...], output: str, exact: Callable[..., np.ndarray]
) -> IreeCase:
    """Return a case of a named operation of linalg, added to zeros."""
    operands = ", ".join(f"%{index}" for index in range(len(inputs)))
    types = ", ".join(f"tensor<{item}>" for item in inputs)
    body = f"%result = {operation} ins({operands} : {types}) outs(%filled : tensor<{output}>) -> tensor<{output}>"
    return IreeCase(name=name, inputs=inputs, output=output, exact=exact, body=body)


def _reduction(name: str, step: str, exact: Callable[..., np.ndarray]) -> IreeCase:
    body = f"""%result = linalg.reduce ins(%0 : tensor<37x1500xf32>) outs(%filled : tensor<37xf32>)
    dimensions = [1] (%a: f32, %b: f32) {{ %r = {step} %a, %b : f32  linalg.yield %r : f32 }}"""
    return IreeCase(name=name, inputs=("37x1500xf32",), output="37xf32", exact=exact, body=body)


def _convolve(image: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Convolve NHWC with HWCF."""
    windows = np.lib.stride_tricks.sliding_window_view(image, weight.shape[:2], axis=(1, 2))
    return np.einsum("nhwcij,ijcf->nhwf", windows, weight)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


CASES = (
    _elementwise("add", "1000xf32", "%r = arith.addf %a, %b : f32", lambda a, b: a + b, 2),
    _elementwise("multiply_add", "7x33x5xf32", "%r = math.fma %a, %b, %c : f32", lambda a, b, c: a * b + c, 3),
    _elementwise(
        "silu", "65x130xf32",
        """%n = arith.negf %a : f32
      %e = math.exp %n : f32
      %one = arith.constant 1.0 : f32
      %d = arith.addf %one, %e : f32
      %q = arith.divf %a, %d : f32
      %r = arith.mulf %q, %b : f32""",
        lambda a, b: silu(a) * b, 2,
    ),
    _elementwise("hyperbolic_tangent", "777xf32", "%r = math.tanh %a : f32", np.tanh, 1),
    _named("matmul_f32", "linalg.matmul", ("64x96xf32", "96x80xf32"), "64x80xf32", multiply_matrices),
    _named("matmul_f32_odd", "linalg.matmul", ("33x70xf32", "70x51xf32"), "33x51xf32", multiply_matrices),
    _named("matmul_f16", "linalg.matmul", ("64x128xf16", "128x64xf16"), "64x64xf32", multiply_matrices),
    _named("matmul_f16_odd", "linalg.matmul", ("65x72xf16", "72x49xf16"), "65x49xf32", multiply_matrices),
    _named("matmul_i8", "linalg.matmul", ("64x64xi8", "64x64xi8"), "64x64xi32", multiply_matrices),
    _named("batched_matmul", "linalg.batch_matmul", ("3x32x64xf16", "3x64x48xf16"), "3x32x48xf32",
           multiply_matrices),
    _named("matrix_vector", "linalg.matvec", ("150x300xf32", "300xf32"), "150xf32", multiply_matrices),
    replace(_named("dot_product", "linalg.dot", ("5000xf32", "5000xf32"), "f32", np.dot),
            known="the VGPR offset of its buffer loads is negative, so they read 0"),
    _named("convolution", "linalg.conv_2d_nhwc_hwcf", ("1x14x14x16xf32", "3x3x16x32xf32"), "1x12x12x32xf32",
           _convolve),
    _reduction("row_sum", "arith.addf", lambda x: x.astype(np.float64).sum(1)),
    _reduction("row_maximum", "arith.maximumf", lambda x: np.maximum(x.max(1), 0)),
    IreeCase(name="transposition", inputs=("70x130xf32",), output="130x70xf32", exact=np.transpose,
             body="%result = linalg.transpose ins(%0 : tensor<70x130xf32>) outs(%empty : tensor<130x70xf32>) "
             "permutation = [1, 0]"),
    IreeCase(name="softmax", inputs=("17x250xf32",), output="17x250xf32", exact=_softmax,
             body="%result = linalg.softmax dimension(1) ins(%0 : tensor<17x250xf32>) "
             "outs(%empty : tensor<17x250xf32>) -> tensor<17x250xf32>"),
)  # fmt: skip


def _compile_case(case: IreeCase, chip: str, folder: Path) -> CompiledCode:
    """Compile a case. Raise ValueError if it is not one dispatch."""
    source = folder / f"{case.name}.mlir"
    source.write_text(case.module())
    compiler = Path(sys.executable).with_name("iree-compile")
    options = ["--iree-hal-target-device=hip", f"--iree-rocm-target={chip}"]
    options += [f"--iree-hal-dump-executable-binaries-to={folder}", f"--dump-compilation-phases-to={folder}"]
    command = [str(compiler), str(source), *options, "-o", str(folder / "module.vmfb")]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ValueError(result.stderr.strip().splitlines()[0])
    [phase] = folder.glob("*executable-targets.mlir")
    text = phase.read_text()
    exports = re.findall(
        r"hal\.executable\.export public @(\S+) .*?\n(.*?hal\.return .*?)\n.*?workgroup_size = \[([^]]*)\]",
        text, re.DOTALL,
    )  # fmt: skip
    if len(exports) != 1:
        raise ValueError(f"{len(exports)} dispatches, expected 1")
    [(name, count, block)] = exports
    constants = {key: int(value) for key, value in re.findall(r"(%\w+) = arith\.constant (\d+) : index", count)}
    grid = tuple(constants[key] for key in re.findall(r"%\w+", count.rpartition("hal.return")[2]))
    [binary] = folder.glob("*.hsaco")
    sizes = tuple(int(size) for size in re.findall(r"(\d+) : index", block))
    return CompiledCode(binary.read_bytes(), name, grid, sizes)


if __name__ == "__main__":
    sys.exit(run_cases(CASES, _compile_case, __doc__ or ""))
