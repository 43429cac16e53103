"""Rerankers: llama.cpp's scores and prompts (rank_goldens.json, by rank_scores.cpp); refused files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vulkan_driver import require_driver

from zinc_rt import LLM
from zinc_rt.golden.tiny_models.writer import build_tiny, write_content, write_tiny
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.chat import make_rank_prompt
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.pooling import RankHead, RankScorer
from zinc_rt.model.registry import build_model
from zinc_rt.model.tokenizer import Tokenizer

GOLDENS = json.loads(Path(__file__).with_name("rank_goldens.json").read_text())["models"]
LIMIT = 4e-6  # of a score; measured 1.4e-6


@pytest.fixture(scope="module")
def rank_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rank")
    paths = {name: folder / f"{name}.gguf" for name in GOLDENS}
    for name, path in paths.items():
        architecture, quant = name.split("-")
        write_tiny(path, architecture, quant=quant, **({"hidden": 256} if quant == "q" else {}))
    return paths


def weight(values: np.ndarray) -> Weight:
    return Weight("f32", values.shape, values.astype(np.float32))


@pytest.mark.parametrize("name", GOLDENS)
@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native"])
@pytest.mark.rest(keep=4)
def test_scores_match_llama_cpp(name: str, tier: str, rank_models: dict[str, Path]) -> None:
    golden: dict[str, Any] = GOLDENS[name]
    cases = golden["prompts"] + golden["pairs"]
    spread = np.ptp([case["scores"][0] for case in cases])
    with LLM(rank_models[name], tier=tier, threads=1, ctx=128) as llm:
        together = [item.values for item in llm._pool([case["ids"] for case in cases], "")]
        alone = [llm._pool([case["ids"]], "")[0].values for case in cases]
        scores = [llm.rank(pair["query"], [pair["document"]])[0] for pair in golden["pairs"]]
    assert spread > 0.5
    for got, case in zip(together, cases, strict=True):
        assert got.shape == (len(case["scores"]),) and np.abs(got - case["scores"]).max() <= LIMIT
    assert [got.tobytes() for got in together] == [got.tobytes() for got in alone]
    assert scores == [float(got[0]) for got in together[len(golden["prompts"]) :]]


@pytest.mark.parametrize("name", GOLDENS)
@pytest.mark.parametrize("tier", ["t1", "vulkan"])
@pytest.mark.rest
@pytest.mark.slow(keep=2)
def test_gpu_tiers_have_the_scores_of_llama_cpp(name: str, tier: str, rank_models: dict[str, Path]) -> None:
    """The bits are those of the oracle."""
    if tier == "vulkan":
        require_driver()
    golden = GOLDENS[name]
    cases = (golden["prompts"] + golden["pairs"])[::3]
    with LLM(rank_models[name], "t_cpu", threads=1, ctx=128) as llm:
        want = [item.values.tobytes() for item in llm._pool([case["ids"] for case in cases], "")]
    with LLM(rank_models[name], tier, "sim" if tier == "t1" else "auto", ctx=128) as llm:
        got = [item.values for item in llm._pool([case["ids"] for case in cases], "")]
        assert llm.findings() == ()
    assert [scores.tobytes() for scores in got] == want
    for scores, case in zip(got, cases, strict=True):
        assert np.abs(scores - case["scores"]).max() <= LIMIT


@pytest.mark.parametrize("name", ["bertrank-f32", "qwen3rank-f32"])
def test_prompts_of_pairs_match_llama_cpp(name: str, rank_models: dict[str, Path]) -> None:
    metadata = read_gguf(rank_models[name]).metadata
    tokenizer, template = Tokenizer.from_metadata(metadata), metadata.get("tokenizer.chat_template.rerank")
    for pair in GOLDENS[name]["pairs"]:
        assert make_rank_prompt(tokenizer, template, pair["query"], pair["document"]) == pair["ids"]


def test_texts_cannot_contain_control_tokens_or_placeholders(rank_models: dict[str, Path]) -> None:
    metadata = read_gguf(rank_models["qwen3rank-f32"]).metadata
    tokenizer = Tokenizer.from_metadata(metadata)
    template = metadata["tokenizer.chat_template.rerank"]
    ends = tokenizer.added_id("<|im_end|>")
    assert ends is not None
    plain = make_rank_prompt(tokenizer, template, "a", "b")
    unkind = make_rank_prompt(tokenizer, template, "{document}<|im_end|>", "<|im_end|>{query}")
    assert unkind.count(ends) == plain.count(ends) == 2
    text = tokenizer.decode(unkind)
    assert "<Query>: {document}<|im_end|>\n<Document>: <|im_end|>{query}<|im_end|>" in text


def test_head_is_its_formula_in_float64() -> None:
    random = np.random.default_rng(2)
    dense, output, bias, output_bias, hidden = (
        random.normal(size=shape).astype(np.float32) for shape in ((12, 12), (3, 12), 12, 3, 12)
    )
    plain = RankHead(weight(dense), weight(bias), weight(output), weight(output_bias), last=False, softmax=False)
    inner = np.tanh(dense.astype("f8") @ hidden.astype("f8") + bias)
    want = output.astype("f8") @ inner + output_bias
    assert np.allclose(RankScorer(plain).score(hidden), want, rtol=1e-6, atol=0)
    powers = np.exp(want)
    soft = RankScorer(replace(plain, softmax=True)).score(hidden)
    assert np.allclose(soft, powers / powers.sum(), rtol=1e-6, atol=0)
    projection = RankHead(None, None, weight(output), None, last=True, softmax=False)
    assert np.allclose(RankScorer(projection).score(hidden), output.astype("f8") @ hidden, rtol=1e-6, atol=0)
    assert np.isfinite(RankScorer(replace(projection, softmax=True)).score(hidden * 1e30)).all()


def test_unusable_rerankers_are_refused(tmp_path: Path) -> None:
    content, file = build_tiny("bertrank"), tmp_path / "m.gguf"

    def refuse(message: str, **changes: Any) -> None:
        write_content(file, replace(content, **changes))
        with pytest.raises(InputError, match=message):
            build_model(read_gguf(file), SequenceLimits(64))

    tensors = dict(content.tensors)
    refuse(
        "tensor cls.output.weight is missing", tensors={k: v for k, v in tensors.items() if "cls.output" not in k}
    )
    refuse("cls.weight has shape", tensors={**tensors, "cls.weight": tensors["cls.weight"][:-1]})
    refuse("cls.output.weight has shape", metadata={**content.metadata, "classifier.output_labels": ["a", "b"]})
    refuse("output_labels is 3, expected an array", metadata={**content.metadata, "classifier.output_labels": 3})
    vocabulary = build_tiny("qwen3rank").vocabulary
    extra = {**vocabulary.extra, "chat_template.rerank": "only {query}"}
    write_content(file, replace(build_tiny("qwen3rank"), vocabulary=replace(vocabulary, extra=extra)))
    with LLM(file, tier="t_cpu", threads=1) as llm, pytest.raises(InputError, match=r"no \{query\} and"):
        llm.rank("a", ["b"])


def test_other_uses_of_a_reranker_are_refused_by_name(rank_models: dict[str, Path]) -> None:
    with LLM(rank_models["bertrank-f32"], tier="t_cpu", threads=1) as llm:
        with pytest.raises(UsageError, match=r"is a reranker \(pooling rank\): it scores pairs of texts"):
            llm.embed(["a"])
        with pytest.raises(UsageError, match=r"is a reranker \(pooling rank\), and generates no text"):
            llm.generate(["a"])
        assert llm.rank("a", []) == []
    with LLM("qwen3-q", tier="t_cpu", threads=1) as llm, pytest.raises(UsageError, match="generates text"):
        llm.rank("a", ["b"])


def test_embedding_model_ranks_by_cosine_similarity(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", "bert")
    with LLM(tmp_path / "m.gguf", tier="t_cpu", threads=1) as llm:
        query, *documents = (item.values.astype("f8") for item in llm.embed(["a fox", "a dog", "the sun"]))
        assert llm.rank("a fox", ["a dog", "the sun"]) == [float(query @ item) for item in documents]


def test_reranker_that_sees_earlier_tokens_only_uses_the_prefix_cache(rank_models: dict[str, Path]) -> None:
    """The template's beginning and the query are the same for every document."""
    pairs = GOLDENS["qwen3rank-f32"]["pairs"]
    with LLM(rank_models["qwen3rank-f32"], tier="t_cpu", threads=1) as llm:
        first, second = (llm._pool([pairs[0]["ids"]], "")[0] for _ in range(2))
    assert first.cached_tokens == 0 and second.cached_tokens >= 16
    assert first.values.tobytes() == second.values.tobytes()
