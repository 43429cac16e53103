"""Model files of a real model's shape with random weights, for speed measurements without a real file.

    python -m zinc_rt.perf.synthetic --list
    python -m zinc_rt.perf.synthetic qwen3-0.6b-q8_0                    into the cache folder
    python -m zinc_rt.perf.synthetic qwen3.6-35b-a3b-q4_k_xl F.gguf --header-only

Tensors are those of golden/tiny_models/architectures.py at a real model's sizes; which type each has is
MIXES below. Quants are random bytes, scales are chosen so that values have the spread that the tiny models give
them. The same name gives the same bytes. llama.cpp loads the files too. --header-only writes a sparse file: the
header, the vectors and the length, and matrices of zeros that take no room on disk; for plans and predictions.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import gguf
import numpy as np

from zinc_rt.cli.command import Command
from zinc_rt.cli.progress import show_progress
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
from zinc_rt.golden.tiny_models.parts import Sizes
from zinc_rt.golden.tiny_models.weights import RandomWeights
from zinc_rt.golden.tiny_models.writer import add_metadata, make_common_metadata
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import OutputError, UsageError
from zinc_rt.host.files import cache_folder
from zinc_rt.ir.dtypes import count_row_bytes, find_block

# Names that stay as they are, whatever the mixture.
KEPT = re.compile(r"_norm\.weight$|ffn_gate_inp|per_layer_model_proj|ssm_conv1d|rope_freqs")
# Replacement types for rows that are not a multiple of the block.
FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


@dataclass(frozen=True, slots=True)
class MatrixUse:
    """`number` of `count` is its index among the matrices of its kind that the rule counts."""

    name: str
    columns: int
    head: bool  # the output matrix, or the embedding where that is both
    number: int
    count: int

    @property
    def kind(self) -> str:
        return self.name.removesuffix(".weight").rpartition(".")[2]


def uses_more_bits(number: int, count: int) -> bool:
    """Return whether the matrix gets more bits: the first and the last eighth, and every third between them."""
    return number < count // 8 or number >= 7 * count // 8 or (number - count // 8) % 3 == 2


def q4_k_m(m: MatrixUse) -> str:
    if m.head:
        return "q6_k"
    if m.kind == "attn_qkv":
        return "q5_k"
    if (m.kind == "attn_v" or m.kind.startswith("ffn_down")) and uses_more_bits(m.number, m.count):
        return "q6_k"
    return "q4_k"


def q4_k_xl(m: MatrixUse) -> str:
    if m.kind == "ffn_down_exps":
        return "q5_k"
    return "q4_k" if m.kind.endswith("_exps") else "q8_0"


MIXES: Mapping[str, Callable[[MatrixUse], str]] = {
    "q8_0": lambda m: "q8_0",
    "q4_0": lambda m: "q6_k" if m.head else "q4_0",
    "q4_k_m": q4_k_m,
    "q4_k_xl": q4_k_xl,
    "mxfp4": lambda m: "mxfp4" if m.kind.endswith("_exps") else "q8_0",  # as gpt-oss is published
}


def choose_types(shapes: Mapping[str, Sequence[int]], mix: str) -> dict[str, str]:
    """Return a type for each tensor, by name. `shapes` are (…, out, in) in file order. Vectors and tensors outside
    the mixture are f32. Raise KeyError for an unknown mixture.
    """
    rule = MIXES[mix]
    tied = "output.weight" not in shapes
    values = [name for name in shapes if re.search(r"attn_(v|qkv|kv_b)\.weight$", name)]
    seen = 0
    layers = 1 + max((_parse_layer(name) for name in shapes), default=0)
    types_by_name = {}
    for name, shape in shapes.items():
        if not is_quantised(name, shape):
            types_by_name[name] = "f32"
            continue
        number, count = _parse_layer(name), layers
        if name.endswith("attn_v.weight"):  # counted among those of its kind, not by layer
            number, count, seen = seen, len(values), seen + 1
        head = name == "output.weight" or (tied and name.endswith("token_embd.weight"))
        dtype = rule(MatrixUse(name, shape[-1], head, number, count))
        if shape[-1] % find_block(dtype)[0]:
            dtype = FALLBACK.get(dtype, dtype)
        types_by_name[name] = dtype if shape[-1] % find_block(dtype)[0] == 0 else "f32"
    return types_by_name


def is_quantised(name: str, shape: Sequence[int]) -> bool:
    """Return whether a mixture quantises the tensor."""
    return len(shape) >= 2 and name.endswith(".weight") and not KEPT.search(name)


def _parse_layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else -1


SEED = 20260
PIECE_BYTES = 64 << 20
VOCAB_QWEN, VOCAB_QWEN35, VOCAB_GEMMA, VOCAB_GPT_OSS = 151_936, 248_320, 262_144, 201_088
CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A row of ARCHITECTURES with these sizes. `instead` is metadata that differs from the tiny model. `mix` is a
    row of MIXES.
    """

    architecture: str
    sizes: Sizes
    mix: str
    tied: bool = False
    instead: Mapping[str, object] = field(default_factory=dict)


QWEN3_SMALL = Sizes(1024, 28, VOCAB_QWEN, 16, 8, 128, 3072, 1, 1, CONTEXT)
QWEN3_8B = Sizes(4096, 36, VOCAB_QWEN, 32, 8, 128, 12288, 1, 1, CONTEXT)
# 3.0 B weights, 0.7 B of them read for a token
MIXTURE_3B = Sizes(1024, 24, VOCAB_QWEN, 8, 2, 256, 512, 128, 8, CONTEXT, delta_heads=16, delta_kv_heads=8)
QWEN36 = Sizes(2048, 40, VOCAB_QWEN35, 16, 2, 256, 1024, 256, 8, CONTEXT, delta_heads=32, delta_kv_heads=16)
QWEN36_DENSE = Sizes(5120, 64, VOCAB_QWEN35, 24, 4, 256, 17408, 1, 1, CONTEXT, delta_heads=48, delta_kv_heads=16)
GPT_OSS_20B = Sizes(2880, 24, VOCAB_GPT_OSS, 64, 8, 64, 5760, 32, 4, CONTEXT, window=128)
GPT_OSS_120B = replace(GPT_OSS_20B, layers=36, experts=128)
GEMMA4 = Sizes(1536, 20, VOCAB_GEMMA, 8, 1, 512, 6144, 1, 1, CONTEXT)
QWEN3 = {"rope.dimension_count": 128}
WINDOW = {"attention.sliding_window": 512}
GPT_OSS = {
    "feed_forward_length": 2880,
    "context_length": 131_072,
    "rope.scaling.factor": 32.0,
    "rope.scaling.original_context_length": 4096,
}

SHAPES = {
    "qwen3-0.6b-q8_0": ModelShape("qwen3", QWEN3_SMALL, "q8_0", True, QWEN3),
    "qwen3-0.6b-q4_0": ModelShape("qwen3", QWEN3_SMALL, "q4_0", True, QWEN3),
    "qwen3-0.6b-q4_k_m": ModelShape("qwen3", QWEN3_SMALL, "q4_k_m", True, QWEN3),
    "qwen3-8b-q4_k_m": ModelShape("qwen3", QWEN3_8B, "q4_k_m", False, QWEN3),
    "qwen3-8b-q8_0": ModelShape("qwen3", QWEN3_8B, "q8_0", False, QWEN3),
    "qwen35moe-3b-q4_k_m": ModelShape("qwen35moe", MIXTURE_3B, "q4_k_m"),
    "qwen35moe-3b-q8_0": ModelShape("qwen35moe", MIXTURE_3B, "q8_0"),
    "qwen3.6-35b-a3b-q4_k_m": ModelShape("qwen35moe", QWEN36, "q4_k_m"),
    "qwen3.6-35b-a3b-q4_k_xl": ModelShape("qwen35moe", QWEN36, "q4_k_xl"),
    "qwen3.6-27b-q4_k_m": ModelShape("qwen35", QWEN36_DENSE, "q4_k_m"),
    "qwen3.6-35b-a3b-mtp-q4_k_xl": ModelShape("qwen35moe", replace(QWEN36, mtp=1), "q4_k_xl"),
    "qwen3.6-27b-mtp-q4_k_m": ModelShape("qwen35", replace(QWEN36_DENSE, mtp=1), "q4_k_m"),
    "gpt-oss-20b-mxfp4": ModelShape("gptoss", GPT_OSS_20B, "mxfp4", instead=GPT_OSS),
    "gpt-oss-20b-1-layer-mxfp4": ModelShape("gptoss", replace(GPT_OSS_20B, layers=1), "mxfp4", instead=GPT_OSS),
    "gpt-oss-120b-mxfp4": ModelShape("gptoss", GPT_OSS_120B, "mxfp4", instead=GPT_OSS),
    "gemma4-3b-q4_k_m": ModelShape("gemma4", GEMMA4, "q4_k_m", True, WINDOW),
}


@dataclass(frozen=True, slots=True)
class BlockScales:
    """The offsets of a block's float16 scales, each with its factor. Minima offset the quants, so the mean is near
    zero. `spread` is the standard deviation of values from random bytes with factors of 1. `exponent`: the scale
    is 2 to the first byte less as much; 0 for float16 scales.
    """

    places: Mapping[int, float]
    spread: float
    exponent: int = 0


SCALES = {
    "q8_0": BlockScales({0: 1.0}, 73.9),
    "q4_0": BlockScales({0: 1.0}, 4.62),
    "q5_0": BlockScales({0: 1.0}, 9.24),
    "q4_k": BlockScales({0: 1.0, 2: 7.5}, 258.0),
    "q5_k": BlockScales({0: 1.0, 2: 15.5}, 527.0),
    "q6_k": BlockScales({208: 1.0}, 1363.0),
    "mxfp4": BlockScales({}, 5.852, exponent=128),
}


@dataclass
class PlannedWeights(RandomWeights):
    """Weights that a mixture quantises are planned by shape and spread instead of by value; the others are as in
    the tiny models.
    """

    spreads: dict[str, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)

    def put(self, name: str, values: np.ndarray) -> None:
        super().put(name, values)
        self.order.append(name)

    def add_normal(self, name: str, shape: tuple[int, ...], *, std: float, mean: float = 0.0) -> None:
        if not is_quantised(name, shape):
            super().add_normal(name, shape, std=std, mean=mean)
            return
        self.spreads[name] = shape, std
        self.order.append(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.spreads[name][0] if name in self.spreads else self.tensors[name].shape


def plan_weights(shape: ModelShape) -> tuple[dict[str, object], PlannedWeights]:
    """Return a shape's metadata and its tensors in file order."""
    row = ARCHITECTURES[shape.architecture]
    shape.sizes.check()
    planned = PlannedWeights(SEED)
    own = row.build(shape.sizes, planned)
    if shape.tied and "output.weight" in planned.spreads:
        planned.order.remove("output.weight")
        table, _ = planned.spreads["token_embd.weight"]
        planned.spreads["token_embd.weight"] = table, 1.2 / shape.sizes.hidden**0.5  # it is the output too
    return make_common_metadata(row, shape.sizes) | own | dict(shape.instead), planned


def make_random_blocks(rng: np.random.Generator, rows: int, columns: int, dtype: str, spread: float) -> np.ndarray:
    """Return random rows of a ggml type, uint8 [rows, row bytes]: arbitrary quants, whose values are around zero
    with that deviation.
    """
    if dtype == "f32":
        return (rng.standard_normal((rows, columns), np.float32) * np.float32(spread)).view(np.uint8)
    elements, size_bytes = find_block(dtype)
    blocks = np.frombuffer(rng.bytes(rows * columns // elements * size_bytes), np.uint8).reshape(-1, size_bytes)
    blocks = blocks.copy()
    if exponent := SCALES[dtype].exponent:  # two neighbouring powers of two, which together have the deviation
        ratio = spread / SCALES[dtype].spread
        power = math.floor(math.log2(ratio))
        blocks[:, 0] = exponent + power + (rng.random(len(blocks)) < ((ratio / 2.0**power) ** 2 - 1) / 3)
    for location, factor in SCALES[dtype].places.items():
        scale = np.float16(factor * spread / SCALES[dtype].spread)
        blocks[:, location : location + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def compute_size(shape: ModelShape) -> int:
    """Return the size of the tensors, without header and padding."""
    _, planned = plan_weights(shape)
    chosen = choose_types({name: planned.shape(name) for name in planned.order}, shape.mix)
    return sum(_tensor_bytes(planned.shape(name), chosen[name]) for name in planned.order)


def write_synthetic(path: Path, shape: ModelShape, *, header_only: bool = False) -> Path:
    """Write a file of this shape. An existing finished file is kept. Raise OutputError if it cannot be written."""
    if path.exists():
        return path
    metadata, planned = plan_weights(shape)
    chosen = choose_types({name: planned.shape(name) for name in planned.order}, shape.mix)
    total = sum(_tensor_bytes(planned.shape(name), chosen[name]) for name in planned.order)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if not header_only and total > free:
            raise OutputError(
                f"{path}: needs {total / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free", next="name a disk"
            )
        _write(unfinished, ARCHITECTURES[shape.architecture].architecture, metadata, planned, chosen, header_only)
        unfinished.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot write the model: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def open_cached(name: str) -> Path:
    """Return a file of SHAPES, generated on first use."""
    return write_synthetic(cache_folder() / "synthetic" / f"{name}.gguf", SHAPES[name])


def _write(
    path: Path,
    architecture: str,
    metadata: Mapping[str, object],
    planned: PlannedWeights,
    chosen: Mapping[str, str],
    header_only: bool,
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.name", "random weights")
    writer.add_uint32("general.quantization_version", 2)
    writer.add_string("tokenizer.ggml.model", "none")  # llama.cpp then asks for vocab_size alone
    for key, value in metadata.items():
        add_metadata(writer, f"{architecture}.{key}", value)
    sizes = {name: _tensor_bytes(planned.shape(name), chosen[name]) for name in planned.order}
    for name in planned.order:
        kind = gguf.GGMLQuantizationType[chosen[name].upper()]
        shape = planned.shape(name)
        if chosen[name] != "f32":  # the package expects the shape in bytes
            shape = (*shape[:-1], count_row_bytes(chosen[name], shape[-1]))
        dtype = np.dtype(np.float32 if chosen[name] == "f32" else np.uint8)
        writer.add_tensor_info(name, shape, dtype, sizes[name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    alignment = writer.data_alignment
    with path.open("r+b") as file, show_progress(sum(sizes.values()), path.name, "B") as advance:
        index = _align_up(file.seek(0, os.SEEK_END), alignment)
        for name in planned.order:
            file.seek(index)
            if not header_only or len(planned.shape(name)) == 1:  # inputs of a plan
                for piece in _iterate_weight_blocks(name, planned, chosen[name]):
                    file.write(piece.data)
                    advance(piece.nbytes)
            index = _align_up(index + sizes[name], alignment)
        file.truncate(index)


def _iterate_weight_blocks(name: str, planned: PlannedWeights, dtype: str) -> Iterator[np.ndarray]:
    if name in planned.tensors:
        yield planned.tensors[name].reshape(-1).view(np.uint8)
        return
    shape, spread = planned.spreads[name]
    rows, columns = prod(shape[:-1]), shape[-1]
    step = max(1, PIECE_BYTES // count_row_bytes(dtype, columns))
    rng = np.random.Generator(np.random.SFC64([SEED, zlib.crc32(name.encode())]))
    for start in range(0, rows, step):
        yield make_random_blocks(rng, min(step, rows - start), columns, dtype, spread).reshape(-1)


def _tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    return prod(shape[:-1]) * count_row_bytes(dtype, shape[-1])


def _align_up(index: int, alignment: int) -> int:
    return -(-index // alignment) * alignment


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        "python -m zinc_rt.perf.synthetic",
        description=__doc__,
    )
    parser.add_argument("name", nargs="?", help="a shape of --list")
    parser.add_argument("file", nargs="?", type=Path, help="file to write (default: in the cache folder)")
    parser.add_argument("--list", action="store_true", help="every shape with its size")
    parser.add_argument("--header-only", action="store_true", help="create a sparse file without weights")
    return parser


def _main(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for name, shape in SHAPES.items():
            print(f"{name:<26}{compute_size(shape) / 1e9:6.2f} GB  {shape.architecture}")
        return 0
    if arguments.name not in SHAPES:
        raise UsageError(f"unknown shape {arguments.name!r}", next=f"one of {', '.join(SHAPES)}")
    suffix = ".header" if arguments.header_only else ""
    path = arguments.file or cache_folder() / "synthetic" / f"{arguments.name}{suffix}.gguf"
    print(write_synthetic(path, SHAPES[arguments.name], header_only=arguments.header_only))
    return 0


main = Command("synthetic", parser, _main)


if __name__ == "__main__":
    sys.exit(main())
