"""Bytes a decoded token moves, against sums over the file's tensors and metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.op import OPS
from zinc_rt.mem.traffic import PARTLY_READ, Traffic, list_decode_traffic
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model

F32 = 4


def list_traffic(
    gguf: GGUFFile, position: int, *, ctx: int = 64, slots: int = 1, form: Any = "ids"
) -> list[Traffic]:
    model = build_model(gguf, SequenceLimits(ctx=ctx, slots=slots), "decode", delta_form=form)
    return list(list_decode_traffic(model.graph, position=position))


def sum_bytes(rows: list[Traffic], kind: str) -> tuple[int, int]:
    chosen = [row for row in rows if row.kind == kind]
    return sum(row.read_bytes for row in chosen), sum(row.written_bytes for row in chosen)


def weights_read(gguf: GGUFFile, used: int, experts: int) -> int:
    """Count one row of each embedding, the used part of each expert stack, and everything else completely."""
    total = 0
    for tensor in gguf.tensors.values():
        if tensor.name in ("token_embd.weight", "per_layer_token_embd.weight"):
            total += tensor.nbytes // tensor.shape[0]
        elif "_exps." in tensor.name:
            total += tensor.nbytes * used // experts
        else:
            total += tensor.nbytes
    if "output.weight" not in gguf.tensors:  # the head is the embedding, read whole
        total += gguf.tensors["token_embd.weight"].nbytes
    return total


def test_dense_attention() -> None:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    layers, kv_heads, head = 3, 2, 128
    for position in (0, 9, 63):
        rows = list_traffic(gguf, position)
        assert sum_bytes(rows, "weight") == (weights_read(gguf, 1, 1), 0)
        one = layers * kv_heads * 2 * head * F32
        assert sum_bytes(rows, "kv") == (one * (position + 1), one)
        assert sum_bytes(rows, "state") == (0, 0)
        assert sum_bytes(rows, "constant") == (layers * 2 * 2 * (head // 2) * F32, 0)  # q and k, cos and sin


@pytest.mark.parametrize("slots", [1, 3])
def test_hybrid_reads_its_used_experts_and_its_whole_state(slots: int) -> None:
    gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
    rows = list_traffic(gguf, 9, slots=slots)
    assert sum_bytes(rows, "weight") == (weights_read(gguf, 2, 4), 0)
    one = 1 * 2 * 2 * 64 * F32  # a single attention layer
    assert sum_bytes(rows, "kv") == (one * 10, one)
    convolution, delta = 3 * 512 * F32, 4 * 64 * 64 * F32  # (kernel - 1) x channels, heads x 64 x 64
    assert sum_bytes(rows, "state") == (3 * (convolution + delta), 3 * (convolution + delta))


@pytest.mark.parametrize("form", ["plain", "ids"])
def test_recurrence_form_does_not_change_the_traffic(form: str) -> None:
    gguf = read_gguf(FOLDER / "qwen35moe-q.gguf")
    assert sum_bytes(list_traffic(gguf, 9, form=form), "state") == sum_bytes(list_traffic(gguf, 9), "state")


def test_window_bounds_the_keys_and_shared_caches_are_read_again() -> None:
    gguf = read_gguf(FOLDER / "gemma4-q.gguf")
    # sliding, sliding, sliding, full, sliding, full; the last two read the caches of layers 2 and 3
    local, full = 2 * 2 * 64 * F32, 2 * 2 * 128 * F32
    for position, in_window in ((0, 1), (7, 8), (30, 8)):
        rows = list_traffic(gguf, position)
        read = 4 * local * in_window + 2 * full * (position + 1)
        assert sum_bytes(rows, "kv") == (read, 3 * local + full)


def test_latent_attention_reads_latents(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny(path, "deepseek2")
    gguf = read_gguf(path)
    rank, rope = (
        int(gguf.metadata[f"deepseek2.{key}"]) for key in ("attention.kv_lora_rank", "rope.dimension_count")
    )  # type: ignore[call-overload]
    layers = int(gguf.metadata["deepseek2.block_count"])  # type: ignore[call-overload]
    one = layers * (rank + rope) * F32
    assert sum_bytes(list_traffic(gguf, 9), "kv") == (one * 10, one)


def test_every_rule_names_an_existing_operand() -> None:
    for op, name in PARTLY_READ:
        assert name in [port.name for port in OPS[op].inputs]
