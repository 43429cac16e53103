"""Embeddings under the scheduler: the same bits alone, batched, and on every tier; scarce slots; the ledger."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zinc_rt import LLM, Sampling
from zinc_rt.host.errors import UsageError
from zinc_rt.sched.tenant import Tenant

STEMS = ("bert-f32", "nomicbert-q", "qwen3emb-f32")
TEXTS = [[2, 7, 9, 300, 3], [2, 3], [2, *range(40, 90), 3], [2, 7, 9, 300, 3], list(range(100, 117)), [5]]


def embed_alone(file: Path, tier: str) -> list[bytes]:
    """Return each text's embedding from a fresh model, whose prefix cache is empty."""
    result = []
    for text in TEXTS:
        with LLM(file, tier=tier, threads=1, slots=1) as llm:
            result.append(llm.embed([text], normalise=False)[0].values.tobytes())
    return result


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.rest(keep=3)
def test_batched_embeddings_have_the_bits_of_single_ones(data_dir: Path, stem: str, slots: int) -> None:
    file = data_dir / "goldens2" / f"{stem}.gguf"
    with LLM(file, tier="t_cpu", threads=1, slots=slots) as llm:
        got = llm.embed(TEXTS, normalise=False)
        again = llm.embed(TEXTS[::-1], normalise=False)
        assert not llm.scheduler.check() and not llm.scheduler.live and not llm.ledger.find_problems()
    assert [item.values.tobytes() for item in got] == embed_alone(file, "t_cpu")
    assert [item.values.tobytes() for item in again] == [item.values.tobytes() for item in got[::-1]]
    assert len({item.values.tobytes() for item in got}) == 5
    assert [item.prompt_tokens for item in got] == [len(text) for text in TEXTS]


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("tier", ["t_cpu_native", "t1", "t2"])
@pytest.mark.rest(keep=3)
def test_tiers_compute_the_same_embeddings(data_dir: Path, stem: str, tier: str) -> None:
    file, device = data_dir / "goldens2" / f"{stem}.gguf", "auto" if tier == "t_cpu_native" else "sim"
    with LLM(file, tier="t_cpu", threads=1, slots=2) as llm:
        want = [item.values.tobytes() for item in llm.embed(TEXTS)]
    with LLM(file, tier=tier, device=device, threads=1, slots=2) as llm:
        assert [item.values.tobytes() for item in llm.embed(TEXTS)] == want


def test_prefix_cache_serves_only_last_token_pooling(data_dir: Path) -> None:
    text = list(range(50, 100))
    for stem, expected in (("qwen3emb-f32", 48), ("nomicbert-f32", 0)):
        with LLM(data_dir / "goldens2" / f"{stem}.gguf", tier="t_cpu", threads=1) as llm:
            first, second = llm.embed([text])[0], llm.embed([text])[0]
        assert (first.cached_tokens, second.cached_tokens) == (0, expected)
        assert np.array_equal(first.values, second.values)


def test_prompt_that_does_not_fit_beside_others_waits_for_a_step(data_dir: Path) -> None:
    """A step has 512 tokens: prompts of 200 are computed two at a time, each whole."""
    sizes: list[list[tuple[int, int]]] = []
    with LLM(data_dir / "goldens2" / "nomicbert-f32.gguf", tier="t_cpu", threads=1, slots=8) as llm:
        collect = llm.runner.embeddings.collect  # type: ignore[union-attr]

        def keep(plan, hidden) -> None:  # type: ignore[no-untyped-def]
            sizes.append([(piece.first, piece.last) for piece in plan.prompts])
            collect(plan, hidden)

        llm.runner.embeddings.collect = keep  # type: ignore[union-attr, method-assign]
        llm.embed([[5 + number, *range(200, 399)] for number in range(5)])
    assert sizes == [[(0, 200)] * 2, [(0, 200)] * 2, [(0, 200)]]


def test_rates_and_ledger_count_prompts_only(data_dir: Path) -> None:
    tenants = (Tenant("first"), Tenant("second"))
    with LLM(data_dir / "goldens2" / "bert-f32.gguf", tier="t_cpu", threads=1, tenants=tenants) as llm:
        llm.embed(TEXTS, tenant="second")
        usage, other = llm.usage("second"), llm.usage("first")
        assert not llm.ledger.find_problems()
    assert usage["prompt_tokens_computed"] == sum(map(len, TEXTS)) and usage["prompt_rows"] == len(TEXTS)
    assert usage["tokens_generated"] == usage["tokens_delivered"] == other["prompt_rows"] == 0
    assert usage["requests_finished.length"] == len(TEXTS)


def test_wrong_kind_of_model_is_refused_by_name(data_dir: Path) -> None:
    with LLM(data_dir / "goldens2" / "bert-f32.gguf", tier="t_cpu", threads=1) as llm:
        with pytest.raises(UsageError, match=r"bert-f32 is an embedding model \(pooling cls\)"):
            llm.generate(["a"], Sampling(4))
        with pytest.raises(UsageError, match="dimensions 65: expected 1 to 64"):
            llm.embed(["a"], dimensions=65)
        (short,) = llm.embed(["hello"], dimensions=16)
        assert short.values.shape == (16,) and abs(np.linalg.norm(short.values.astype("f8")) - 1) < 1e-6
    with LLM("qwen3-q", tier="t_cpu", threads=1) as llm, pytest.raises(UsageError, match="defines no pooling"):
        llm.embed(["a"])
