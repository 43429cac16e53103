"""What a token, a page and a state row take, against sums over the file's metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.mem.context_bytes import PageGroupSpec, count_state_row_bytes, groups_of
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.groups import has_recurrent_state, list_page_groups
from zinc_rt.model.registry import build_model

F32 = 4


def tiny_model(folder: Path, architecture: str) -> GGUFFile:
    path = folder / f"{architecture}.gguf"
    write_tiny(path, architecture)
    return read_gguf(path)


def metadata_value(gguf: GGUFFile, name: str) -> int:
    value = gguf.metadata[f"{gguf.architecture}.{name}"]
    assert isinstance(value, int)
    return value


def test_plain_attention_is_one_group(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, "qwen3")
    width = metadata_value(gguf, "attention.head_count_kv") * metadata_value(gguf, "attention.key_length")
    layers = metadata_value(gguf, "block_count")
    assert list_page_groups(gguf) == (PageGroupSpec("full", 0, layers, layers * 2 * width * F32),)
    assert not has_recurrent_state(gguf)


def test_windowed_layers_form_a_group_and_cache_sharing_layers_do_not(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, "gemma4")
    owners = metadata_value(gguf, "block_count") - metadata_value(gguf, "attention.shared_kv_layers")
    sliding = [bool(flag) for flag in gguf.metadata["gemma4.attention.sliding_window_pattern"]][:owners]  # type: ignore[union-attr]
    full, near = list_page_groups(gguf)
    assert (full.name, full.window, full.layers) == ("full", 0, sliding.count(False))
    assert (near.name, near.window, near.layers) == ("window-8", 8, sliding.count(True))
    assert 0 < owners < metadata_value(gguf, "block_count")


@pytest.mark.parametrize(
    ("architecture", "layers", "values_per_layer"),
    [("deepseek2", 3, "latent and rope"), ("deepseek2lite", 3, "keys and values")],
)
def test_latents_are_a_separate_and_far_smaller_group(
    architecture: str, layers: int, values_per_layer: str, tmp_path: Path
) -> None:
    gguf = tiny_model(tmp_path, architecture)
    rope = metadata_value(gguf, "rope.dimension_count")
    if values_per_layer == "latent and rope":
        item = metadata_value(gguf, "attention.kv_lora_rank") + rope
    else:
        heads = metadata_value(gguf, "attention.head_count")
        item = heads * (
            metadata_value(gguf, "attention.key_length") + metadata_value(gguf, "attention.value_length")
        )
    assert list_page_groups(gguf) == (PageGroupSpec("full", 0, layers, layers * item * F32),)


def test_state_row_holds_every_recurrent_layer_of_one_sequence(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, "qwen35moe")
    d, heads = metadata_value(gguf, "ssm.state_size"), metadata_value(gguf, "ssm.time_step_rank")
    channels = 2 * metadata_value(gguf, "ssm.group_count") * d + heads * d
    recurrent = metadata_value(gguf, "block_count") - list_page_groups(gguf)[0].layers
    row = recurrent * (heads * d * d + (metadata_value(gguf, "ssm.conv_kernel") - 1) * channels) * F32
    for slots, rows in ((1, None), (3, None), (3, 9)):
        graph = build_model(gguf, SequenceLimits(ctx=64, slots=slots, state_rows=rows), "decode").graph
        assert count_state_row_bytes(graph) == row
        states = {spec.shape[0] for spec in graph.by_role("state") if spec.name.startswith("state.ssm_")}
        assert states == {rows or slots + 1}
    assert has_recurrent_state(gguf)


def test_model_without_attention_has_no_group(tmp_path: Path) -> None:
    gguf = tiny_model(tmp_path, "mamba")
    assert list_page_groups(gguf) == () and has_recurrent_state(gguf)


def test_pools_have_the_requested_size(tmp_path: Path) -> None:
    limits = SequenceLimits(ctx=64, slots=2, pages=(7, 3))
    graph = build_model(tiny_model(tmp_path, "gemma4"), limits, "decode").graph
    rows = {spec.shape[0] for spec in graph.by_role("state")}
    assert rows == {7 * 16, 3 * 16}
    default = build_model(tiny_model(tmp_path, "gemma4"), SequenceLimits(ctx=1024, slots=2), "decode").graph
    # a window of 8 and a step of 512 lie on 34 pages at most
    assert {spec.shape[0] for spec in default.by_role("state")} == {2 * 1024, 2 * 34 * 16}
    assert [group.bytes_per_token for group in groups_of(graph)] == [
        group.bytes_per_token for group in groups_of(default)
    ]


def test_window_pages_cover_window_and_step_for_any_context() -> None:
    near = PageGroupSpec("window-512", 512, 20, 80 * 1024)  # Gemma 4 E4B's
    assert near.count_page_bytes(16) == 1280 * 1024
    limits = SequenceLimits(ctx=32768, step_tokens=128)
    assert limits.group_pages(0, 0) == 2048 and limits.group_pages(1, 512) == 41
    assert SequenceLimits(ctx=100, slots=3, step_tokens=128).group_pages(1, 512) == 3 * 7
