"""Sweeps that generate many cases: the shapes of one opcode, combined with types, attributes and kinds of values.

A sweep is data. Sizes may be expressions over the other sizes and the integer attributes, as shape patterns are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from zinc_rt.ir.op import Op
from zinc_rt.ir.shapes import evaluate
from zinc_rt.kernels.cases import VALUES, Case

PLAIN = ("f32", "f16", "bf16")
BLOCKS_OF_32 = ("q8_0", "q4_0")
BLOCKS_OF_256 = ("q4_k", "q5_k", "q6_k")
# Read by dequantised pieces where they are read at all.
OTHERS = (
    "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "nvfp4", "q2_k", "q3_k", "iq4_xs", "tq1_0", "tq2_0",
    "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m",
)  # fmt: skip
TYPES = (*PLAIN, *BLOCKS_OF_32, *BLOCKS_OF_256, *OTHERS)
# "rising" is for what looks for the largest, "infinite" for what pads what it multiplies.
ALL = tuple(name for name in VALUES if name not in ("rising", "infinite"))

Size = int | str
Sizes = Mapping[str, Size]
Rooms = tuple[Mapping[str, int], ...]
Attrs = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Generate a case for each of `shapes` x `attrs` x `types` x `values`. `without`, `rooms` and `vectors` (types
    of biases and scales) rotate over the cases.
    """

    op: Op
    shapes: tuple[Sizes, ...]
    attrs: tuple[Attrs, ...] = ({},)
    types: tuple[str, ...] = ("f32",)
    values: tuple[str, ...] = ALL
    without: tuple[tuple[str, ...], ...] = ((),)
    rooms: Rooms = ({},)
    vectors: tuple[str, ...] = ("f32",)
    more: Sizes = field(default_factory=dict)  # sizes of every shape, after its own
    kv: str = "f32"  # type of caches

    def cases(self) -> Iterator[Case]:
        """Return the cases. Every call returns the same ones; each has a separate seed."""
        axes = product(self.shapes, self.attrs, self.types, self.values)
        for number, (shape, attrs, dtype, values) in enumerate(axes):
            turn, kind = divmod(number, len(self.values))
            without = self.without[(turn + kind) % len(self.without)]
            turn //= len(self.without)
            room = self.rooms[(turn + kind) % len(self.rooms)]
            turn //= len(self.rooms)
            vector = self.vectors[(turn + kind) % len(self.vectors)]
            dims = evaluate_sizes({**shape, **self.more}, attrs)
            yield Case(self.op, dims, attrs, dtype, vector, without, values, room, seed=number, kv=self.kv)


def evaluate_sizes(named: Mapping[str, Size], attrs: Mapping[str, Any]) -> dict[str, int]:
    """Evaluate the size expressions in order; each may use the names before it."""
    known = {name: value for name, value in attrs.items() if type(value) is int}
    drawn: dict[str, int] = {}
    for name, size in named.items():
        value = evaluate(size, {**known, **drawn}) if isinstance(size, str) else size
        assert isinstance(value, int), f"{name}={size}"
        drawn[name] = value
    return drawn


def combine_shapes(**axes: tuple[Size, ...] | Size) -> tuple[dict[str, Size], ...]:
    """Return every combination."""
    lists = [value if isinstance(value, tuple) else (value,) for value in axes.values()]
    return tuple(dict(zip(axes, combination, strict=True)) for combination in product(*lists))


def pair_shapes(**axes: tuple[Size, ...]) -> tuple[dict[str, Size], ...]:
    """Pair the first elements, then the second elements, and so on; shorter lists are repeated."""
    longest = max(len(values) for values in axes.values())
    return tuple({name: values[i % len(values)] for name, values in axes.items()} for i in range(longest))
