"""Odd models have the shape classes of their rows, and the float64 derivation agrees with llama.cpp."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.golden.derivation import DerivedModel, derive_golden, derive_texts
from zinc_rt.golden.embedded import Pair, list_embedded_pairs
from zinc_rt.golden.format import Golden, read_golden
from zinc_rt.golden.odd_models import LARGEST_BYTES, OddModel, find_odd_models, generate_odd_pair, load_odd_models
from zinc_rt.golden.tiny_models.quantize import WRITABLE
from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.tokenizer import Tokenizer

ROWS = load_odd_models()
CHUNK, PAGE = 256, 16  # tokens: of attention, of a page


@dataclass(frozen=True)
class Generated:
    """A model, its golden and its metadata under names without the architecture."""

    row: OddModel
    gguf: GGUFFile
    metadata: Mapping[str, Any]
    golden: Golden

    def read(self, key: str, default: int = 0) -> int:
        value = self.metadata.get(f"{self.gguf.architecture}.{key}", default)
        return int(np.max(value))

    @property
    def widths(self) -> set[int]:
        return {tensor.shape[-1] for tensor in self.gguf.tensors.values() if len(tensor.shape) > 1}

    @property
    def chosen(self) -> set[int]:
        return {int(expert) for ids in self.golden.experts.values() for expert in ids.ravel()}

    def has_bytes(self) -> bool:
        texts = self.golden.meta["tokenizer"]
        bytes_ = {i for i, text in enumerate(self.metadata["tokenizer.ggml.tokens"]) if text.startswith("<0x")}
        return any(bytes_ & set(row["plain"]) for row in texts)

    def has_multi_digit_tokens(self) -> bool:
        tokens = self.metadata["tokenizer.ggml.tokens"]
        used = {token for row in self.golden.meta["tokenizer"] for token in row["plain"]}
        return any(tokens[token].isdigit() and len(tokens[token]) > 1 for token in used)

    def has_rare_merges(self) -> bool:
        """Return whether a text needs one of the last merges, which are the rarest of the training text."""
        merges = self.metadata["tokenizer.ggml.merges"]
        tokens = self.metadata["tokenizer.ggml.tokens"]
        rare = {merge.replace(" ", "") for merge in merges[len(merges) * 9 // 10 :]}
        return any(tokens[token] in rare for row in self.golden.meta["tokenizer"] for token in row["plain"])

    def has_deciding_ties(self) -> bool:
        """Return whether equal router rows exist, of which one expert is chosen and another is not."""
        router = self.gguf.tensors["blk.0.ffn_gate_inp.weight"].data.reshape(self.row.sizes["experts"], -1)
        same = [(a, b) for a in range(len(router)) for b in range(a) if (router[a] == router[b]).all()]
        return any((a in ids) != (b in ids) for ids in self.golden.experts[0].tolist() for a, b in same)


@cache
def generate(name: str) -> Generated:
    [row] = find_odd_models([name])
    pair = generate_odd_pair(row)
    gguf = read_gguf(pair.model)
    return Generated(row, gguf, gguf.metadata, read_golden(pair.golden))


HEADS, KV_HEADS = "attention.head_count", "attention.head_count_kv"
CLASSES: dict[str, Callable[[Generated], bool]] = {
    "group differs from kv heads": lambda m: m.read(KV_HEADS) > 1 and m.read(HEADS) != m.read(KV_HEADS) ** 2,
    "one kv head": lambda m: m.read(KV_HEADS) == 1 < m.read(HEADS),
    "odd heads": lambda m: m.read(HEADS) % 2 == 1,
    "width 272": lambda m: 272 in m.widths,
    "width 96": lambda m: 96 in m.widths,
    "odd vocabulary": lambda m: m.golden.logits.shape[1] % 64 != 0,
    "latent attention": lambda m: m.read("attention.kv_lora_rank") > 0,
    "scan": lambda m: m.read("ssm.state_size") > 0,
    "expert ties": Generated.has_deciding_ties,
    "unused experts": lambda m: len(m.chosen) < m.read("expert_count"),
    "window shorter than a page": lambda m: 0 < m.read("attention.sliding_window") < PAGE < len(m.golden.ids),
    "positions across chunks": lambda m: len(m.golden.ids) > 2 * CHUNK and m.read("context_length") >= 1024,
    "every weight type": lambda m: {t.dtype for t in m.gguf.tensors.values()} >= set(WRITABLE),
    "SentencePiece": lambda m: m.metadata["tokenizer.ggml.model"] == "llama",
    "byte fallback": Generated.has_bytes,
    "multi-digit tokens": Generated.has_multi_digit_tokens,
    "rare merges": Generated.has_rare_merges,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_model_has_the_classes_of_its_row(row: OddModel) -> None:
    model = generate(row.name)
    assert [name for name in row.classes if not CLASSES[name](model)] == []
    assert model.gguf.path.stat().st_size <= LARGEST_BYTES
    assert len(set(model.golden.ids.tolist())) == min(row.prompt, row.sizes["vocab"])


def test_every_class_is_claimed_and_two_models_are_quick() -> None:
    assert {name for row in ROWS for name in row.classes} == set(CLASSES)
    assert len(ROWS) <= 8 and sum(row.quick for row in ROWS) == 2
    with pytest.raises(InputError, match="no odd model 'even'"):
        find_odd_models(["even"])


def test_same_row_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = find_odd_models(["odd-latent"])
    pairs = []
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        pairs.append(generate_odd_pair(row))
    assert pairs[0].model.read_bytes() == pairs[1].model.read_bytes()
    assert generate_odd_pair(replace(row, seed=1)).model != pairs[1].model, "another seed is another model"


# --- the derivation -----------------------------------------------------------------------------------------


def test_derivation_uses_no_code_of_the_runtime() -> None:
    code = "import sys, zinc_rt.golden.derivation; print(*[m[8:] for m in sys.modules if m[:8] == 'zinc_rt.'])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert set(found.stdout.split()) == {"_moved", "golden", "golden.derivation", "host", "host.errors"}


@pytest.mark.parametrize("stem", ["qwen3-q"])
def test_derivation_agrees_with_llama_cpp(stem: str) -> None:
    [pair] = [pair for pair in list_embedded_pairs() if pair.model.stem == stem]
    golden = read_golden(pair.golden)
    arrays = derive_golden(pair.model, golden.ids.tolist(), 0)
    assert np.abs(arrays["logits"] - golden.logits).max() < 3e-5
    assert golden.l_out is not None and np.abs(arrays["l_out"] - golden.l_out).max() < 1e-4


@pytest.mark.parametrize("stem", ["gemma2-q", "jamba-q", "llamaodd-q", "qwen3odd-q"])
def test_derivation_agrees_with_llama_cpp_on_other_shapes(stem: str) -> None:
    folder = Path(os.environ.get("ZINC_RT_TEST_DATA", "")) / "goldens2"
    if not (folder / f"{stem}.gguf").exists():
        pytest.skip(f"ZINC_RT_TEST_DATA has no goldens2/{stem}.gguf")
    with np.load(folder / f"{stem}.npz") as golden:
        ids, want = golden["ids"], golden["logits_deq"]
        rows = golden["positions"] if "positions" in golden.files else np.arange(len(ids))
    logits = derive_golden(folder / f"{stem}.gguf", ids.tolist(), 0)["logits"]
    assert np.abs(logits[rows] - want).max() < 2e-4


def test_derivation_of_texts_agrees_with_sentencepiece() -> None:
    from zinc_rt.golden.embedded import VOCABULARY

    tokenizer = Tokenizer.from_metadata(read_gguf(VOCABULARY.model).metadata)
    rows = derive_texts(VOCABULARY.model)
    assert rows and all(tokenizer.encode(str(row["text"]), add_special=False) == row["plain"] for row in rows)


def test_unknown_architecture_is_an_error() -> None:
    pairs: list[Pair] = list_embedded_pairs()
    with pytest.raises(UnsupportedError, match="no float64 derivation of qwen35moe"):
        DerivedModel(pairs[0].model)
