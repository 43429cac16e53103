"""Tiny models hold what real files of their architecture hold, at any size that goes together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
from zinc_rt.golden.tiny_models.quantize import WRITABLE
from zinc_rt.golden.tiny_models.vocabulary import VOCABULARIES, build_vocabulary
from zinc_rt.golden.tiny_models.writer import build_tiny, write_tiny
from zinc_rt.host.errors import OutputError, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer

PROMPTS = ["The quick brown fox.", "naïve 日本語 🦊\n\n  two  spaces\tand 12345", "", " ", "<|im_start|>user"]

NO_GOLDEN = ["ernie4_5", "exaone", "gemma", "glm4", "granitemoe", "olmoe", "qwen2moe", "seed_oss", "smollm3"]
RANK_HEADS = ["bertrank", "qwen3rank"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiny_model_has_the_tensors_and_keys_of_its_golden(architecture: str, data_dir: Path) -> None:
    file = f"{architecture}-f32.gguf"
    if architecture in NO_GOLDEN:
        pytest.skip("no golden of llama.cpp; tests/model/test_plain_decoders.py has a float64 pass")
    if architecture in RANK_HEADS:
        pytest.skip("its golden has scores only; see tests/model/test_rank_heads.py")
    folder = next(folder for folder in ("goldens", "goldens2") if (data_dir / folder / file).exists())
    golden = read_gguf(data_dir / folder / file)
    ours = build_tiny(architecture)
    assert ours.architecture == golden.architecture
    assert {name: values.ndim for name, values in ours.tensors.items()} == {
        name: len(tensor.shape) for name, tensor in golden.tensors.items()
    }
    keys = {f"{ours.architecture}.{key}" for key in ours.metadata}
    wanted = {key for key in golden.metadata if not key.startswith(("general.", "tokenizer."))}
    assert wanted <= keys


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "sizes", [{"hidden": 96, "heads": 3, "kv_heads": 1, "vocab": 400}, {"hidden": 128, "layers": 9, "experts": 3}]
)
@pytest.mark.slow(keep=12)
def test_same_arguments_make_the_same_file(architecture: str, sizes: dict[str, int], tmp_path: Path) -> None:
    first, second, other = tmp_path / "1.gguf", tmp_path / "2.gguf", tmp_path / "3.gguf"
    write_tiny(first, architecture, seed=1, **sizes)
    write_tiny(second, architecture, seed=1, **sizes)
    write_tiny(other, architecture, seed=2, **sizes)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()
    model = read_gguf(first)
    assert model.architecture == ARCHITECTURES[architecture].architecture
    assert model.tensors["token_embd.weight"].shape == (sizes.get("vocab", 512), sizes["hidden"])
    assert all(np.abs(tensor.data).max() > 0 for tensor in model.tensors.values())


@pytest.mark.rest(keep=4)
@pytest.mark.parametrize("quant", [*WRITABLE, "q"])
def test_quantised_model_uses_types_its_rows_allow(quant: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", "llama", quant=quant, hidden=256, heads=3, kv_heads=3, head_dim=32, layers=1)
    types = {name: tensor.dtype for name, tensor in read_gguf(tmp_path / "m.gguf").tensors.items()}
    assert types["blk.0.attn_norm.weight"] == "f32"
    assert types["rope_freqs.weight"] == "f32"
    if quant == "q":
        assert {"q4_0", "q4_k", "q6_k", "q8_0"} <= set(types.values())
    else:
        assert types["blk.0.ffn_down.weight"] == quant
    rows_of_96 = types["blk.0.attn_output.weight"]
    assert rows_of_96 == {"q": "q4_0"}.get(quant, "q8_0" if quant.endswith("_k") else quant)


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("kind", sorted({*VOCABULARIES} - {"bert"}))  # which keeps neither case nor spaces
def test_text_round_trips_through_a_tiny_vocabulary(kind: str, tmp_path: Path) -> None:
    architecture = next(name for name, row in ARCHITECTURES.items() if row.vocabulary == kind)
    write_tiny(tmp_path / "m.gguf", architecture)
    tokenizer = Tokenizer.from_metadata(read_gguf(tmp_path / "m.gguf").metadata)
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt, add_special=False, parse_special=False)
        assert all(0 <= id < 512 for id in ids)
        assert tokenizer.decode(ids).lstrip(" ") == prompt.lstrip(" ")
    assert len(tokenizer.encode(PROMPTS[0], add_special=False)) < len(PROMPTS[0])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("kind", VOCABULARIES)
def test_vocabulary_has_requested_size_and_unique_tokens(kind: str) -> None:
    for size in (400, 512, 4000):
        vocab = build_vocabulary(kind, size)
        assert len(vocab.tokens) == len(set(vocab.tokens)) == len(vocab.types) == size
        assert len(vocab.scores) in (0, size)
    with pytest.raises(UsageError, match="needs at least"):
        build_vocabulary(kind, 100)


def test_incompatible_sizes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown tiny model 'gpt9'"):
        build_tiny("gpt9")
    with pytest.raises(UsageError, match="4 heads cannot be divided evenly among 3 kv heads"):
        build_tiny("llama", kv_heads=3)
    with pytest.raises(UsageError, match="multiples of 8"):
        build_tiny("llama", hidden=60)
    with pytest.raises(UsageError, match="qwen35 needs at least 4 layers"):
        build_tiny("qwen35", layers=3)
    with pytest.raises(UsageError, match="qwen2 needs head_dim = hidden / heads"):
        build_tiny("qwen2", head_dim=32)
    with pytest.raises(UsageError, match="9 of 8 experts"):
        build_tiny("mixtral", experts_used=9)
    with pytest.raises(UsageError, match="unknown type 'q9'"):
        write_tiny(tmp_path / "m.gguf", "llama", quant="q9")
    with pytest.raises(OutputError, match="cannot write the model"):
        write_tiny(tmp_path / "no folder" / "m.gguf", "llama")
