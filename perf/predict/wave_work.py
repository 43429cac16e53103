"""What the waves of a dispatch execute, from the kernel's code and the step's data, without running it.

A sample of waves, spread evenly over the grid, is interpreted (zinc_rt/isa/wave_counts.py) and scaled to all.
Kernel arguments and the step block have their actual contents, and the tiles of experts those of one even random
routing; other memory reads as 0.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.isa.target import target_of
from zinc_rt.isa.wave_counts import ARGUMENTS_AT, WaveCounter, WaveCounts
from zinc_rt.kernels.launch import COUNTS, Launch, Operand, Ref
from zinc_rt.kernels.rows.matmul_wmma import EXPERTS, SORT, list_tiles
from zinc_rt.kernels.rsrc import count_user_sgprs
from zinc_rt.kernels.sets import BinaryKernelSet, find_code_chip, find_kernel_set

SAMPLES = 48  # waves of a dispatch that are interpreted, at least; more where there are many tokens
MOST_TILES = 128
_BUFFERS_AT, _BUFFER_BYTES = 1 << 44, 1 << 36
_STEPS = (0.8191725133961645, 0.6710436067037893, 0.5497004779019703)  # of the R3 sequence


@dataclass(frozen=True, slots=True)
class StepTokens:
    """The `tokens` of a step, divided equally among `sequences`, each of which ends at `position`. `rows`: of
    logits, after the last token of each sequence, or after the last tokens of a single one."""

    tokens: int
    sequences: int
    position: int
    rows: int

    def count(self, symbol: str) -> int:
        return {"tokens": self.tokens, "sequences": self.sequences, "rows": self.rows}.get(symbol, 0)

    def read_dword(self, name: str, index: int) -> int:
        """Return a dword of a step buffer; 0 for every other buffer."""
        part = max(1, self.tokens // self.sequences)
        if name == COUNTS:
            return self.count(SYMBOLS[index]) if index < len(SYMBOLS) else 0
        if name.endswith(".position"):
            return max(0, self.position - part + 1 + index % part)
        if name.endswith((".slot", ".sequence")):
            return min(index // part, self.sequences - 1)
        if name.endswith(".logit_row"):
            return (
                self.tokens - self.rows + index
                if self.sequences == 1
                else min(part * (index + 1), self.tokens) - 1
            )
        return 0


@dataclass(frozen=True, slots=True)
class WaveTotals:
    """Sums over all waves of a dispatch; the fields are those of WaveCounts."""

    waves: int
    units: Mapping[str, float]
    load_bytes: float
    store_bytes: float
    lds_bytes: float
    vector_flops: float
    matrix_ops: Mapping[str, float]

    @property
    def instructions(self) -> float:
        return sum(self.units.values())

    @property
    def issued(self) -> float:
        """Return the number of instructions that fill an issue slot; waits and delays do not."""
        return self.instructions - self.units.get("wait", 0) - self.units.get("other", 0)


class WaveWork:
    """Counts the dispatches of one step; equal dispatches are interpreted once."""

    def __init__(self, arch: str, step: StepTokens) -> None:
        self.arch, self.step = arch, step
        self._known: dict[object, WaveTotals] = {}
        self._tiles: dict[Operand | None, tuple[int, ...]] = {}  # by the buffer of the last sort of experts

    def compute_totals(self, launch: Launch, grid: tuple[int, int, int], waves_a_workgroup: int) -> WaveTotals:
        operands = tuple(_name(buffer) for buffer in launch.buffers)
        if launch.kernel == SORT:
            choices, slots, experts = map(int, launch.constants)
            self._tiles[launch.buffers[1]] = _draw_tiles(self.step.tokens, choices, experts, slots)
        tiles = {
            index: self._tiles[buffer]
            for index, buffer in enumerate(launch.buffers)
            if launch.kernel.startswith(EXPERTS) and buffer in self._tiles
        }
        key = launch.kernel, launch.constants, grid, operands, *tiles.values()
        if key not in self._known:
            self._known[key] = self._count(launch, grid, waves_a_workgroup, tiles)
        return self._known[key]

    def _count(
        self,
        launch: Launch,
        grid: tuple[int, int, int],
        waves_a_workgroup: int,
        tiles: Mapping[int, tuple[int, ...]],
    ) -> WaveTotals:
        memory = _Memory(launch, self.step, tiles)
        counter = _make_counter(self.arch, launch.kernel)
        sizes = (*grid, waves_a_workgroup)
        samples = [
            counter.count((x, y, z), wave, memory.read_dword)
            for x, y, z, wave in _sample(sizes, grid[0] if tiles else MOST_TILES)
        ]
        return _scale_totals(samples, prod(sizes))


@cache
def _draw_tiles(tokens: int, choices: int, experts: int, slots: int) -> tuple[int, ...]:
    """Return the dwords of the tiles of a step whose tokens choose independently and evenly."""
    scores = np.random.default_rng(0).random((tokens, experts))
    chosen = np.argpartition(scores, choices - 1, axis=1)[:, :choices]
    return tuple(list_tiles(np.bincount(chosen.reshape(-1), minlength=experts), slots).reshape(-1).tolist())


def _name(operand: Operand | None) -> str:
    """Return an operand's name if the interpreted values depend on it."""
    if operand is None:
        return ""
    return operand.name if isinstance(operand, Ref) and operand.name.startswith(("step.", "request[")) else "*"


class _Memory:
    def __init__(self, launch: Launch, step: StepTokens, tiles: Mapping[int, tuple[int, ...]]) -> None:
        self._operands = [buffer for buffer in launch.buffers if buffer is not None]
        self._tiles = {id(launch.buffers[index]): dwords for index, dwords in tiles.items()}
        self._step = step
        places = {id(item): _BUFFERS_AT + _BUFFER_BYTES * index for index, item in enumerate(self._operands)}

        def operand_address(operand: Operand) -> int:
            return places[id(operand)] + (operand.offset_bytes if isinstance(operand, Ref) else 0)

        kernarg = launch.pack_kernarg(operand_address)
        self._arguments = struct.unpack(f"<{len(kernarg) // 4}I", kernarg)

    def read_dword(self, address: int) -> int | None:
        if address >= _BUFFERS_AT:
            position, offset = divmod(address - _BUFFERS_AT, _BUFFER_BYTES)
            operand = self._operands[position] if position < len(self._operands) else None
            if dwords := self._tiles.get(id(operand)):
                return dwords[offset // 4] if offset // 4 < len(dwords) else 0
            return self._step.read_dword(operand.name, offset // 4) if isinstance(operand, Ref) else 0
        index = (address - ARGUMENTS_AT) // 4
        return self._arguments[index] if 0 <= index < len(self._arguments) else 0


@cache
def _make_counter(arch: str, kernel: str) -> WaveCounter:
    rows = find_kernel_set(find_code_chip(arch))
    assert isinstance(rows, BinaryKernelSet)
    zrt = rows.load(kernel)
    return WaveCounter(zrt.code, target_of(arch, zrt.wave), zrt.entry_offset, count_user_sgprs(zrt.rules))


def _sample(sizes: tuple[int, int, int, int], most_tiles: int) -> Iterable[tuple[int, ...]]:
    """Yield every index if there are few. Otherwise yield at least SAMPLES: the first dimension (the tokens of a
    step, or its tiles) in equal steps, all of them up to `most_tiles`, the others by a Kronecker sequence.
    """
    first = sizes[0]
    if prod(sizes) <= SAMPLES:
        for index in range(prod(sizes)):
            rest = index // first
            yield index % first, rest % sizes[1], rest // sizes[1] % sizes[2], rest // sizes[1] // sizes[2]
        return
    count = first * -(-SAMPLES // first) if first <= most_tiles else most_tiles
    for number in range(count):
        points = ((0.5 + step * number) % 1 for step in _STEPS)
        others = (int(size * point) for size, point in zip(sizes[1:], points, strict=True))
        yield (2 * number + 1) * first // (2 * count), *others


def _scale_totals(samples: list[WaveCounts], waves: int) -> WaveTotals:
    factor = waves / len(samples)
    units: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    for item in samples:
        units.update(item.units)
        matrix.update(item.matrix_ops)

    def sum_field(field: str) -> float:
        return float(factor * sum(getattr(item, field) for item in samples))

    return WaveTotals(
        waves=waves,
        units={unit: factor * count for unit, count in units.items()},
        load_bytes=sum_field("load_bytes"),
        store_bytes=sum_field("store_bytes"),
        lds_bytes=sum_field("lds_bytes"),
        vector_flops=sum_field("vector_flops"),
        matrix_ops={kind: factor * count for kind, count in matrix.items()},
    )
