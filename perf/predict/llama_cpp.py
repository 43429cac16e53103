"""Predict what llama-bench reports for llama.cpp on a device, from the device's specification and a model's shape.

The time of a decoded token is that of its weights at a share of the memory's bandwidth, plus the instructions that
dequantise them, plus its keys and values, plus a fixed time for each kernel. The time of a prompt's batch is its
operations at a share of the f16 matrix rate, reduced for experts that get fewer tokens than a tile, plus its
attention at another share, plus the same fixed times; it is at least the time of reading the weights.

Each backend has eight constants (BackendConstants) in perf/predict/llama_constants.yaml; backtest.py fits them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from zinc_rt.host.devices import SIMDS_A_CU, DeviceRow
from zinc_rt.host.errors import InputError
from zinc_rt.host.files import load_yaml

FOLDER = Path(__file__).resolve().parent
SHAPES, CONSTANTS = FOLDER / "llama_shapes.yaml", FOLDER / "llama_constants.yaml"
GIB = 1 << 30
LANES = 32
BATCH = 512  # llama-bench's default n_ubatch: tokens of a prompt computed together
CACHE_BYTES = 2  # of a key's or value's element: f16, llama-bench's default
KERNELS, EXPERT_KERNELS = 17, 12  # of a layer, and more if it has experts; counted in llama.cpp's fused graphs
PLAIN = ("F32", "F16", "BF16")  # types without dequantisation
TEST = re.compile(r"(?P<kind>pp|tg)(?P<tokens>\d+)(?: *@ *d(?P<depth>\d+))?")
NAME = re.compile(r"(?P<family>\S+) (?P<size>\?B|[\d.]+B?\S*)(?: (?P<type>.+))?")
ACTIVE = re.compile(r"([\d.]+)B\.A([\d.]+)B")


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """A model's shape. `experts`: number of experts, selected experts, width of an expert, shared experts.
    One of every `full_every` layers attends to all keys, the others to `window` keys; with window 0 they have no
    keys. `more_kernels`: kernels of a layer beyond KERNELS. `matrices`: of an expert. `expert_layers`: 0 for all.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocab: int
    tied: bool = False
    experts: tuple[int, int, int, int] = (0, 0, 0, 0)
    full_every: int = 1
    window: int = 0
    more_kernels: int = 0
    matrices: int = 3
    expert_layers: int = 0

    @property
    def expert_share(self) -> float:
        """Return the share of experts that a token reads."""
        return self.experts[1] / self.experts[0] if self.experts[0] else 1.0

    @property
    def layers_with_experts(self) -> int:
        return (self.expert_layers or self.layers) if self.experts[0] else 0

    @property
    def expert_weights(self) -> int:
        return self.matrices * self.width * self.experts[2] * self.experts[0] * self.layers_with_experts

    def keys(self, context: float) -> float:
        """Return the keys that a query sees, summed over layers."""
        full = -(-self.layers // self.full_every) if self.full_every == 1 else self.layers // self.full_every
        return full * context + (self.layers - full) * min(self.window, context)


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A row of llama-bench. `size` in bytes; `depth` is the context before the test."""

    chip: str
    model: str
    size: float
    params: float
    backend: str
    kind: str
    tokens: int
    depth: int
    speed: float
    source: str

    @property
    def test(self) -> str:
        return f"{self.kind}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def type(self) -> str:
        match = NAME.fullmatch(self.model)
        return (match and match["type"]) or ""

    @property
    def mixture(self) -> bool:
        return bool(find_shape(self).experts[0]) or bool(ACTIVE.search(self.model))


@dataclass(frozen=True, slots=True)
class BackendConstants:
    """The constants of a backend of llama.cpp.

    `read_efficiency`: share of the memory bandwidth while reading weights. `instructions_a_weight`: lane
    instructions to dequantise a weight and multiply it, not hidden by memory. `kernel_us`: the time of a kernel
    beyond its work. `cache_efficiency`: share of the bandwidth while reading keys and values; `repeated_keys`: how
    often the query heads of a key head read it, 0 for once, 1 for each of them. `matrix_share` and
    `attention_share`: shares of the f16 matrix rate in projections and in attention. `tile`: tokens of a tile in a
    projection.
    """

    read_efficiency: float
    instructions_a_weight: float
    kernel_us: float
    cache_efficiency: float
    repeated_keys: float
    matrix_share: float
    attention_share: float
    tile: float


def predict_seconds(row: BenchRow, device: DeviceRow, constants: BackendConstants) -> float:
    """Return the predicted seconds of a decoded token, or of a prompt of the row's tokens."""
    shape = find_shape(row)
    if row.kind == "tg":
        return _predict_token_seconds(row, shape, row.depth + row.tokens / 2, device, constants)
    batches = [min(BATCH, row.tokens - index) for index in range(0, row.tokens, BATCH)]
    return sum(
        _predict_batch_seconds(row, shape, tokens, row.depth + BATCH * index, device, constants)
        for index, tokens in enumerate(batches)
    )


def predict_speed(row: BenchRow, device: DeviceRow, constants: BackendConstants) -> float:
    """Return the predicted tok/s, never above the bounds by bytes and by operations."""
    seconds = predict_seconds(row, device, constants)
    return (1 if row.kind == "tg" else row.tokens) / seconds


def _count_weights(row: BenchRow, shape: LlamaShape, tokens: int) -> tuple[float, float]:
    """Return the number of weights that a step of `tokens` tokens multiplies for each token, and the bytes that
    it reads.
    """
    embedding = 0 if shape.tied else shape.vocab * shape.width
    if shape.experts[0] or not ACTIVE.search(row.model):
        experts = min(shape.expert_weights, row.params - embedding)
        chosen = experts * shape.expert_share
    else:  # a mixture of unknown shape: its name has the active weights
        total, active = (float(group) for group in ACTIVE.search(row.model).groups())  # type: ignore[union-attr]
        chosen = row.params * active / total - embedding
        experts = row.params - embedding
    missed = (1 - chosen / experts) ** tokens if experts else 0.0
    dense = row.params - embedding - experts
    return dense + chosen, (dense + experts * (1 - missed)) * row.size / row.params


def _predict_token_seconds(
    row: BenchRow, shape: LlamaShape, context: float, device: DeviceRow, constants: BackendConstants
) -> float:
    weights, read = _count_weights(row, shape, 1)
    bandwidth = device.memory_gbps * 1e9
    lanes = device.compute_units * SIMDS_A_CU * LANES * device.clock_mhz * 1e6
    dequantise = 0.0 if row.type in PLAIN else weights * constants.instructions_a_weight / lanes
    cache = 2 * CACHE_BYTES * shape.kv_heads * shape.head_size * shape.keys(context)
    repeats = (shape.heads / shape.kv_heads) ** constants.repeated_keys
    return (
        read / (bandwidth * constants.read_efficiency)
        + dequantise
        + cache * repeats / (bandwidth * constants.cache_efficiency)
        + _count_kernels(shape) * constants.kernel_us * 1e-6
    )


def _predict_batch_seconds(
    row: BenchRow, shape: LlamaShape, tokens: int, depth: int, device: DeviceRow, constants: BackendConstants
) -> float:
    weights, read = _count_weights(row, shape, tokens)
    peak = device.tera_ops("f16") * 1e12
    in_experts = 0.0
    if shape.experts[0]:
        in_experts = min(weights, shape.expert_weights * shape.expert_share)
    products = sum(
        2 * part * (count + constants.tile / 2) * tokens / count
        for part, count in ((weights - in_experts, tokens), (in_experts, tokens * shape.expert_share))
    )
    attention = 4 * shape.heads * shape.head_size * shape.keys(depth + tokens / 2) * tokens
    computing = products / (peak * constants.matrix_share) + attention / (peak * constants.attention_share)
    reading = read / (device.memory_gbps * 1e9 * constants.read_efficiency)
    return max(computing, reading) + _count_kernels(shape) * constants.kernel_us * 1e-6


def _count_kernels(shape: LlamaShape) -> int:
    return shape.layers * (KERNELS + shape.more_kernels) + shape.layers_with_experts * EXPERT_KERNELS


# --- shapes


def find_shape(row: BenchRow) -> LlamaShape:
    """Return the shape of a row's model by its name, else one estimated from its size."""
    return _find_shape(row.model, row.params)


@cache
def _find_shape(model: str, params: float) -> LlamaShape:
    match = NAME.fullmatch(model)
    if match is None:
        raise InputError(f"model {model!r}: expected a name as llama-bench prints it, llama 7B Q4_0")
    return load_shapes().get(f"{match['family']} {match['size']}") or _estimate_shape(model, params)


@cache
def load_shapes() -> Mapping[str, LlamaShape]:
    document = load_yaml(SHAPES.read_text(encoding="utf-8"))
    return {name: _parse_shape(item) for name, item in document["models"].items()}


def _parse_shape(row: dict[str, Any]) -> LlamaShape:
    row = dict(row)
    if "experts" in row:
        row["experts"] = tuple(row["experts"])
    return LlamaShape(*row.pop("shape"), **row)


def _estimate_shape(model: str, params: float) -> LlamaShape:
    """Return the known shape with the nearest number of weights, of the same kind (dense or mixture)."""
    mixture = ACTIVE.search(model) is not None
    rows = {name: item for name, item in load_shapes().items() if bool(item.experts[0]) == mixture}
    sizes = {name: float(re.search(r" ([\d.]+)", name)[1]) * 1e9 for name in rows}  # type: ignore[index]
    nearest = min(rows, key=lambda name: max(sizes[name] / params, params / sizes[name]))
    return replace(rows[nearest], experts=(0, 0, 0, 0)) if mixture else rows[nearest]


@cache
def load_constants() -> Mapping[str, BackendConstants]:
    """Return the constants by backend, as llama-bench names it."""
    document = load_yaml(CONSTANTS.read_text(encoding="utf-8"))
    names = [field.name for field in fields(BackendConstants)]
    return {
        backend: BackendConstants(**{name: float(values[name]) for name in names})
        for backend, values in document["backends"].items()
    }
