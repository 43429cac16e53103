"""Model files of a real model's shape with random weights: what speed is measured on without a real file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from zinc_rt.ir.dtypes import block_of

SEED = 20260


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense Qwen 3: sizes and the type of each kind of matrix."""

    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    vocab: int = 151_936
    dtype: str = "Q8_0"
    wide_dtype: str = "Q8_0"  # attn_v, ffn_down and the output matrix, as the _M mixtures have them
    tied: bool = True


SHAPES = {
    "qwen3-0.6b-q8_0": Shape(28, 1024, 3072, 16, 8),
    "qwen3-8b-q4_k_m": Shape(36, 4096, 12288, 32, 8, dtype="Q4_K", wide_dtype="Q6_K", tied=False),
}
# Where a block's float16 scales lie, and the RMS of the values it holds at scale 1 with random quants.
SCALES = {"Q8_0": ((0,), 74.0), "Q4_K": ((0, 2), 330.0), "Q6_K": ((208,), 1370.0)}


def random_blocks(rng: np.random.Generator, rows: int, columns: int, dtype: str) -> np.ndarray:
    """Random rows of a ggml type, uint8 [rows, row bytes]: any quants, values around 1 / sqrt(columns)."""
    elements, size_bytes = block_of(dtype.lower())
    blocks = rng.integers(0, 256, (rows, columns // elements, size_bytes), dtype=np.uint8)
    places, spread = SCALES[dtype]
    scale = np.frombuffer(np.float16(columns**-0.5 / spread).tobytes(), np.uint8)
    for place in places:
        blocks[..., place : place + 2] = scale
    return blocks.reshape(rows, -1)


def write_synthetic(path: Path, shape: Shape) -> Path:
    """A Qwen 3 file of this shape with random weights; a finished file that exists is kept."""
    if path.exists():
        return path
    rng = np.random.default_rng(SEED)
    unfinished = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(unfinished, "qwen3", use_temp_file=True)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)

    def matrix(name: str, out: int, inner: int, dtype: str) -> None:
        rows = random_blocks(rng, out, inner, dtype)
        writer.add_tensor(name, rows, raw_dtype=gguf.GGMLQuantizationType[dtype])

    def ones(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    width, heads, kv_heads = shape.width, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrix("token_embd.weight", shape.vocab, width, shape.dtype)
    if not shape.tied:
        matrix("output.weight", shape.vocab, width, shape.wide_dtype)
    ones("output_norm.weight", width)
    for layer in range(shape.layers):
        at = f"blk.{layer}"
        ones(f"{at}.attn_norm.weight", width)
        ones(f"{at}.ffn_norm.weight", width)
        ones(f"{at}.attn_q_norm.weight", shape.head_dim)
        ones(f"{at}.attn_k_norm.weight", shape.head_dim)
        matrix(f"{at}.attn_q.weight", heads, width, shape.dtype)
        matrix(f"{at}.attn_k.weight", kv_heads, width, shape.dtype)
        matrix(f"{at}.attn_v.weight", kv_heads, width, shape.wide_dtype)
        matrix(f"{at}.attn_output.weight", width, heads, shape.dtype)
        matrix(f"{at}.ffn_gate.weight", shape.ffn, width, shape.dtype)
        matrix(f"{at}.ffn_up.weight", shape.ffn, width, shape.dtype)
        matrix(f"{at}.ffn_down.weight", width, shape.ffn, shape.wide_dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)
    return path


def main() -> None:
    """`python -m zinc_rt.perf.synthetic NAME FILE`: write one of SHAPES."""
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        raise SystemExit(f"usage: python -m zinc_rt.perf.synthetic {'|'.join(SHAPES)} FILE")
    write_synthetic(Path(sys.argv[2]), SHAPES[sys.argv[1]])


if __name__ == "__main__":
    main()
