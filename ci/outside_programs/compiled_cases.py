"""Kernels that a compiler makes from sources of our own, launched on a simulated chip and compared with NumPy.

`run_cases` prints a line `right NAME`, `wrong NAME; ...`, `known NAME: ...` or `refused NAME: ...` for each case.
The report that `--json` writes has the form of a report of `zinc-rt sanitize`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

import zinc_rt
from zinc_rt.host.errors import ZincError
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.launching.values import out

ELEMENT_TYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i8": np.int8}


@dataclass(frozen=True, kw_only=True)
class CompiledCase:
    """A kernel's inputs and output as texts such as `64x96xf16`, and what it computes. `exact`: NumPy, of the
    inputs. `tolerance`: absolute, and relative to the largest value. `known`: why the result is wrong.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    exact: Callable[..., np.ndarray]
    tolerance: float = 2e-4
    known: str = ""


Case = TypeVar("Case", bound=CompiledCase)


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """A code object and how its kernel is launched."""

    code: bytes
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    lds_bytes: int | None = None


def multiply_matrices(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def split_kind(kind: str) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the type of a text such as `64x96xf16`."""
    *shape, element = kind.split("x")
    return tuple(map(int, shape)), np.dtype(ELEMENT_TYPES[element])


def make_array(kind: str, seed: int) -> np.ndarray:
    shape, dtype = split_kind(kind)
    generator = np.random.default_rng(seed)
    if dtype.kind == "i":
        return generator.integers(-100, 100, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def run_cases(
    cases: Sequence[Case], compile_case: Callable[[Case, str, Path], CompiledCode], description: str
) -> int:
    """Compile and launch the cases that the command line selects. `compile_case` gets a case, a chip and an empty
    folder; it raises ValueError with the reason if it cannot compile the case.
    """
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases (default: all)")
    parser.add_argument("--chip", default=DEFAULT_ARCH, help=f"chip to compile for (default {DEFAULT_ARCH})")
    parser.add_argument("--json", type=Path, metavar="F", help="write a report in the form of zinc-rt sanitize")
    options = parser.parse_args()
    kernels, findings = [], []
    for case in cases:
        if options.names and case.name not in options.names:
            continue
        inputs = [make_array(kind, 7 + index) for index, kind in enumerate(case.inputs)]
        exact = np.asarray(case.exact(*inputs))
        output = out(exact.shape or (1,), split_kind(case.output)[1])
        arguments = {f"a{index}": item for index, item in enumerate(inputs)} | {"result": output}
        try:
            with tempfile.TemporaryDirectory() as folder:
                kernel = compile_case(case, options.chip, Path(folder))
            result = zinc_rt.launch(
                kernel.code, kernel.name, grid=kernel.grid, block=kernel.block, args=arguments,
                device="sim", lds_bytes=kernel.lds_bytes,
            )  # fmt: skip
        except (ValueError, ZincError) as error:
            print(f"refused {case.name}: {str(error).splitlines()[0]}", flush=True)
            continue
        findings += [asdict(finding) for finding in result.findings]
        kernels.append({"kernel": kernel.name, "launches": 1, "code_objects": 1})
        limit = case.tolerance * max(1.0, float(np.abs(exact).max()))
        difference = float(np.abs(result.outputs["result"].reshape(exact.shape) - exact).max())
        if difference <= limit:
            print(f"right {case.name}", flush=True)
        else:
            verdict = f"known {case.name}: {case.known}" if case.known else f"wrong {case.name}"
            print(f"{verdict}; differs by {difference:.3g}", flush=True)
    if options.json:
        measure = {"launches": len(kernels), "kernels": kernels, "suppressed": [], "findings": findings}
        options.json.write_text(json.dumps({"results": [{"measure": {**measure, "exit_code": 0}}]}))
    return 0
