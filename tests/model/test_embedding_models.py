"""Embedding models: llama.cpp's hidden states and pooled embeddings, WordPiece, and files that are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from goldens import SECOND_STEMS

from zinc_rt import LLM
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.ir.graph import Node
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.pooling import normalise, pool
from zinc_rt.model.registry import build_model
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.model.tokenizer.wordpiece import split_words

STEMS = ("bert-f32", "nomicbert-f32", "nomicbert-q", "qwen3emb-f32")
BAR = 1e-6  # 1 - cosine


def read_embedding_golden(data_dir: Path, stem: str) -> tuple[GGUFFile, dict[str, np.ndarray]]:
    """Return the model, and llama.cpp's arrays for our arithmetic: dequantised weights, GELU without a table."""
    file = data_dir / "goldens2" / f"{stem}.gguf"
    with np.load(file.with_suffix(".npz")) as arrays:
        names = {name.removesuffix("_deq").removesuffix("_exactgelu") for name in arrays}
        exact = {
            name: next(arrays[key] for key in (f"{name}_deq", f"{name}_exactgelu", name) if key in arrays)
            for name in names
        }
    return read_gguf(file), exact


def find_distance(got: np.ndarray, want: np.ndarray) -> float:
    """Return the largest 1 - cosine of rows."""
    a, b = np.atleast_2d(got).astype("f8"), np.atleast_2d(want).astype("f8")
    assert a.shape == b.shape and np.abs(b).max() > 0.1
    return float(1 - ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("ordering", ["canonical-1", "float32-dequant"])
def test_hidden_states_match_llama_cpp(data_dir: Path, stem: str, ordering: str) -> None:
    model, golden = read_embedding_golden(data_dir, stem)
    inside = "l_out" if "l_out" in golden else "ffn_inp"
    seen: dict[str, np.ndarray] = {}

    def keep(node: Node, name: str, value: np.ndarray) -> None:
        seen[node.label or name] = value.copy()

    with Engine(model, CpuBackend(ordering)) as engine:
        hidden = engine.forward(golden["ids"].tolist(), tap=keep)
    assert find_distance(hidden, golden["embd_tokens"]) <= BAR
    assert np.abs(hidden - golden["embd_tokens"]).max() <= 3e-4
    assert np.array_equal(seen["embd_tokens"], hidden)
    for layer, want in enumerate(golden[inside]):
        assert np.abs(seen[f"{inside}-{layer}"] - want).max() <= 3e-4


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native"])
def test_pooled_embedding_matches_llama_cpp(data_dir: Path, stem: str, tier: str) -> None:
    model, golden = read_embedding_golden(data_dir, stem)
    with LLM(model.path, tier=tier, threads=1, slots=1) as llm:
        (plain,) = llm.embed(golden["ids"].tolist(), normalise=False)
        (unit,) = llm.embed(golden["ids"].tolist())
    assert find_distance(plain.values, golden["embd_pooled"]) <= BAR
    assert np.array_equal(unit.values, normalise(plain.values)) and plain.prompt_tokens == 24
    assert abs(np.linalg.norm(unit.values.astype("f8")) - 1) < 1e-6


@pytest.mark.parametrize("name", ["bert", "nomicbert", "qwen3emb"])
def test_tokenizer_matches_llama_cpp(data_dir: Path, name: str) -> None:
    rows = json.loads((data_dir / "goldens2" / "tokenizers.json").read_text())[name]
    tokenizer = Tokenizer.from_metadata(read_gguf(data_dir / "goldens2" / f"{name}-f32.gguf").metadata)
    assert len(rows) >= 14
    for row in rows:
        assert tokenizer.encode(row["text"], add_special=False) == row["plain"], row["text"]
        assert tokenizer.encode(row["text"]) == row["special"], row["text"]
        assert tokenizer.decode(row["plain"], tidy=name != "qwen3emb") == row["detok_plain"], row["text"]


def test_words_are_split_as_bert_does() -> None:
    assert split_words("  Étude, l'ÉTÉ\tTo\u00a0day ") == ["etude", ",", "l", "'", "ete", "to", "day"]
    assert split_words("a$b 日本x\x00y\ufffdz\u200d\ue000 €5") == ["a", "$", "b", "日", "本", "xyz", "€5"]
    assert split_words("") == split_words(" \n") == []


def test_pooling_is_the_named_function_of_hidden_states() -> None:
    hidden = np.random.default_rng(1).normal(size=(7, 5)).astype("f4")
    assert np.array_equal(pool(hidden, "cls"), hidden[0]) and np.array_equal(pool(hidden, "last"), hidden[6])
    assert np.array_equal(pool(hidden, "none"), hidden)
    assert np.array_equal(pool(hidden, "mean"), hidden.astype("f8").mean(0).astype("f4"))
    assert not np.array_equal(pool(hidden, "mean"), hidden[0])
    assert np.array_equal(normalise(np.zeros(3, "f4")), np.zeros(3, "f4"))


def change_metadata(model: GGUFFile, **changes: object) -> GGUFFile:
    return replace(model, metadata={**model.metadata, **changes})


def test_pooling_of_the_file_decides(data_dir: Path) -> None:
    model, golden = read_embedding_golden(data_dir, "bert-f32")
    limits = SequenceLimits(64)
    assert build_model(model, limits).pooling == "cls"
    for number, name in enumerate(("none", "mean", "cls", "last")):
        assert build_model(change_metadata(model, **{"bert.pooling_type": number}), limits).pooling == name
    with pytest.raises(InputError, match="pooling_type is 4"):
        build_model(change_metadata(model, **{"bert.pooling_type": 4}), limits)
    with pytest.raises(InputError, match="pooling_type is 9"):
        build_model(change_metadata(model, **{"bert.pooling_type": 9}), limits)
    causal = change_metadata(model, **{"bert.attention.causal": True})
    with Engine(causal, CpuBackend("canonical-1")) as engine:
        assert not engine.model.whole_sequences
        hidden = engine.forward(golden["ids"].tolist())
    assert find_distance(hidden, golden["embd_tokens"]) > 1e-3  # the mask has an effect


def test_sequence_of_an_encoder_is_one_step(data_dir: Path) -> None:
    model, _ = read_embedding_golden(data_dir, "bert-f32")
    with Engine(model, CpuBackend("canonical-1")) as engine:
        sequence = engine.open()
        engine.extend(sequence, [5, 6, 7])
        with pytest.raises(UsageError, match="one step must compute all tokens"):
            engine.extend(sequence, [8])
        engine.release(sequence)
        with pytest.raises(UsageError, match="one step must compute all tokens"):
            engine.forward([5, 6], prefill="stepwise")


def test_context_beyond_learned_positions_is_refused(data_dir: Path) -> None:
    model, _ = read_embedding_golden(data_dir, "bert-f32")
    with pytest.raises(InputError, match="64 learned positions, but the context is 65"):
        build_model(model, SequenceLimits(65))


def test_embedding_goldens_are_separate_from_those_with_logits() -> None:
    assert not set(STEMS) & set(SECOND_STEMS)
