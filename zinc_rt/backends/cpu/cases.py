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


ROWS: tuple[Row, ...] = (
    Row(Op.ADD, {"T": 3, "N": 37}),
    Row(Op.EMBED, {"T": 3, "V": 5, "D": 512}, types=tuple(sorted(DTYPES))),
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


def _position(shape: tuple[int, ...], names: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    return random.permutation(names["ctx"])[: shape[0]]


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
}
