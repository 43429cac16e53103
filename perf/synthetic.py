"""Model files of a real model's shape with random weights: what speed is measured on without a real file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

SEED = 20260


def q8_0_blocks(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Random Q8_0 rows, uint8 [rows, columns / 32 * 34]: any quants, values around 1 / sqrt(columns)."""
    blocks = rng.integers(0, 256, (rows, columns // 32, 34), dtype=np.uint8)
    scale = np.float16(columns**-0.5 / 73)  # 73: the RMS of uniform int8
    blocks[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def qwen3_0_6b(
    path: Path, *, layers: int = 28, width: int = 1024, ffn: int = 3072, heads: int = 16, kv_heads: int = 8,
    head_dim: int = 128, vocab: int = 151_936,
) -> Path:  # fmt: skip
    """Qwen 3 0.6 B's shape in Q8_0, embeddings tied. About 640 MB; an existing file is kept."""
    if path.exists():
        return path
    rng = np.random.default_rng(SEED)
    unfinished = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(unfinished, "qwen3")
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    q8 = gguf.GGMLQuantizationType.Q8_0

    def matrix(name: str, out: int, inner: int) -> None:
        writer.add_tensor(name, q8_0_blocks(rng, out, inner), raw_dtype=q8)

    def ones(name: str, size: int) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    matrix("token_embd.weight", vocab, width)
    ones("output_norm.weight", width)
    for layer in range(layers):
        at = f"blk.{layer}"
        ones(f"{at}.attn_norm.weight", width)
        ones(f"{at}.ffn_norm.weight", width)
        ones(f"{at}.attn_q_norm.weight", head_dim)
        ones(f"{at}.attn_k_norm.weight", head_dim)
        matrix(f"{at}.attn_q.weight", heads * head_dim, width)
        matrix(f"{at}.attn_k.weight", kv_heads * head_dim, width)
        matrix(f"{at}.attn_v.weight", kv_heads * head_dim, width)
        matrix(f"{at}.attn_output.weight", width, heads * head_dim)
        matrix(f"{at}.ffn_gate.weight", ffn, width)
        matrix(f"{at}.ffn_up.weight", ffn, width)
        matrix(f"{at}.ffn_down.weight", width, ffn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)
    return path
