"""The embeddings and rerank endpoints: values of LLM.embed, as OpenAI's and LangChain's clients ask for them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server

from zinc_rt import LLM
from zinc_rt.golden.tiny_models.writer import build_tiny, write_content, write_tiny
from zinc_rt.serve.config.settings import ModelSettings, TenantSettings

TEXTS = ["hello world", "the quick brown fox jumps over the lazy dog", "a", "over the dog the fox jumps"]
EMBEDDER, RERANKER = "embedder", "reranker"


@pytest.fixture(scope="module")
def embedder_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder with mean pooling."""
    file = tmp_path_factory.mktemp("model") / f"{EMBEDDER}.gguf"
    content = build_tiny("qwen3", context=64)
    write_content(file, replace(content, metadata={**content.metadata, "pooling_type": 1}))
    return file


@pytest.fixture(scope="module")
def reranker_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / f"{RERANKER}.gguf"
    write_tiny(file, "bertrank", context=64)
    return file


@pytest.fixture(scope="module")
def embedding_server(embedder_file: Path, reranker_file: Path) -> Iterator[RunningServer]:
    models = (
        ModelSettings(EMBEDDER, str(embedder_file), slots=4),
        ModelSettings(MODEL, MODEL, ctx=64, slots=1),
        ModelSettings(RERANKER, str(reranker_file), slots=4),
    )
    yield from run_server(make_config(models=models, tenants=(TenantSettings(id="one"), TenantSettings(id="two"))))


@pytest.fixture(scope="module")
def expected_embeddings(embedder_file: Path) -> np.ndarray:
    with LLM(embedder_file, tier="t_cpu", threads=1) as llm:
        return np.stack([llm.embed(text)[0].values for text in TEXTS])


def post(server: RunningServer, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


def count_usage(server: RunningServer) -> dict[str, int]:
    return dict(server.server.models[EMBEDDER].core.usage("one"))


def test_openai_client_gets_the_library_embeddings(
    embedding_server: RunningServer, expected_embeddings: np.ndarray
) -> None:
    with openai.OpenAI(base_url=f"{embedding_server.url}/v1", api_key="none") as client:
        result = client.embeddings.create(model=EMBEDDER, input=TEXTS)  # the client asks for base64
        short = client.embeddings.create(model=EMBEDDER, input=TEXTS[0], dimensions=8, encoding_format="float")
    got = np.array([item.embedding for item in result.data], np.float32)
    assert np.array_equal(got, expected_embeddings)
    assert [item.index for item in result.data] == [0, 1, 2, 3] and result.model == EMBEDDER
    assert np.allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)
    assert result.usage.prompt_tokens == result.usage.total_tokens > 20
    assert len(short.data[0].embedding) == 8 and abs(np.linalg.norm(short.data[0].embedding) - 1) < 1e-6


def test_base64_has_the_bits_of_the_numbers(embedding_server: RunningServer) -> None:
    numbers, text = (
        post(embedding_server, "/v1/embeddings", {"input": TEXTS[1], "encoding_format": form}).json()
        for form in ("float", "base64")
    )
    decoded = np.frombuffer(base64.b64decode(text["data"][0]["embedding"]), "<f4")
    assert decoded.tolist() == numbers["data"][0]["embedding"] and len(decoded) == 64


def test_token_ids_and_batches_match_single_texts(
    embedding_server: RunningServer, expected_embeddings: np.ndarray
) -> None:
    tokenizer = embedding_server.server.models[EMBEDDER].core.tokenizer
    assert tokenizer is not None
    ids = [tokenizer.encode(text) for text in TEXTS]
    for inputs, want in ((ids, expected_embeddings), (ids[1], expected_embeddings[1:2])):
        data = post(embedding_server, "/v1/embeddings", {"input": inputs}).json()["data"]
        assert np.array_equal(np.array([item["embedding"] for item in data], np.float32), want)


def test_langchain_transcript_of_many_texts(embedding_server: RunningServer) -> None:
    """What langchain-openai sends with check_embedding_ctx_length=False."""
    body = {"input": [f"text {number}" for number in range(70)], "model": EMBEDDER, "encoding_format": "base64"}
    data = post(embedding_server, "/v1/embeddings", body).json()["data"]
    assert [item["index"] for item in data] == list(range(70))
    assert len({item["embedding"] for item in data}) > 60


def test_rerank_orders_documents_by_cosine_similarity(
    embedding_server: RunningServer, expected_embeddings: np.ndarray
) -> None:
    scores = expected_embeddings[1:].astype("f8") @ expected_embeddings[0].astype("f8")
    documents: list[Any] = [TEXTS[1], {"text": TEXTS[2]}, TEXTS[3]]
    body = {"model": EMBEDDER, "query": TEXTS[0], "documents": documents}
    reply = post(embedding_server, "/v1/rerank", body).json()
    order = np.argsort(-scores).tolist()
    assert [item["index"] for item in reply["results"]] == order
    assert [item["relevance_score"] for item in reply["results"]] == pytest.approx(scores[order], abs=1e-12)
    assert [item["document"]["text"] for item in reply["results"]] == [TEXTS[1:][index] for index in order]
    one = post(embedding_server, "/v1/rerank", {**body, "top_n": 1, "return_documents": False}).json()["results"]
    assert len(one) == 1 and set(one[0]) == {"index", "relevance_score"}


def test_rerank_orders_documents_by_the_score_of_a_rank_head(
    embedding_server: RunningServer, reranker_file: Path
) -> None:
    query, documents = "which fox?", [*TEXTS, "a fox"]
    with LLM(reranker_file, tier="t_cpu", threads=1) as llm:
        scores = llm.rank(query, documents)
    body = {"model": RERANKER, "query": query, "documents": documents, "top_n": 3}
    reply = post(embedding_server, "/v1/rerank", body).json()
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:3]
    assert [(item["index"], item["relevance_score"]) for item in reply["results"]] == [
        (index, scores[index]) for index in order
    ]
    tokenizer = embedding_server.server.models[RERANKER].core.tokenizer
    assert tokenizer is not None
    texts = sum(len(tokenizer.encode(text, add_special=False)) for text in (query,) * len(documents))
    texts += sum(len(tokenizer.encode(text, add_special=False)) for text in documents)
    assert reply["usage"]["prompt_tokens"] == texts + 2 * len(documents)  # [CLS] and [SEP]


def test_ledger_counts_prompts_and_no_generated_token(embedding_server: RunningServer) -> None:
    before = count_usage(embedding_server)
    reply = post(embedding_server, "/v1/embeddings", {"input": TEXTS}).json()
    after = count_usage(embedding_server)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["prompt_tokens_computed"] == reply["usage"]["prompt_tokens"]
    assert grown["prompt_rows"] == len(TEXTS)
    assert not grown.get("tokens_generated") and not grown.get("tokens_delivered")
    assert embedding_server.server.models[EMBEDDER].core.ledger.find_problems() == []


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/embeddings", {"model": MODEL, "input": "a"}, 501, "generates text: its file defines no pooling"),
        ("/v1/rerank", {"model": MODEL, "query": "a", "documents": ["b"]}, 501, "generates text"),
        ("/v1/completions", {"model": EMBEDDER, "prompt": "a"}, 400, r"embedding model \(pooling mean\)"),
        (
            "/v1/chat/completions",
            {"model": EMBEDDER, "messages": [{"role": "user", "content": "a"}]},
            400,
            r"is an embedding model",
        ),
        ("/v1/embeddings", {"model": RERANKER, "input": "a"}, 501, r"is a reranker \(pooling rank\)"),
        ("/v1/completions", {"model": RERANKER, "prompt": "a"}, 400, r"is a reranker"),
        ("/v1/rerank", {"model": RERANKER, "query": "a", "documents": ["b"] * 2049}, 400, "1 to 2048 texts"),
        (
            "/v1/rerank",
            {"model": RERANKER, "query": "a " * 20, "documents": ["b", "b " * 50]},
            400,
            r"documents\[1\].* context of reranker is 64",
        ),
        ("/v1/embeddings", {"input": []}, 400, "expected 1 to 2048 texts"),
        ("/v1/embeddings", {"input": [[]]}, 400, "has no tokens"),
        ("/v1/embeddings", {"input": "a", "dimensions": 65}, 400, "64 elements, not 65"),
        ("/v1/embeddings", {"input": [5, 512]}, 400, "outside the vocabulary of 512"),
        ("/v1/embeddings", {"input": ["a", "word " * 80]}, 400, "context of embedder is 64 tokens"),
        ("/v1/rerank", {"query": "a", "documents": []}, 400, "documents"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, 400, "encoding_format"),
    ],
)
def test_unusable_requests_are_refused_by_name(
    embedding_server: RunningServer, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    reply = post(embedding_server, path, body)
    assert reply.status_code == status
    assert re.search(message, reply.json()["error"]["message"])


def test_models_list_tells_which_model_embeds(embedding_server: RunningServer) -> None:
    models = httpx.get(f"{embedding_server.url}/v1/models").json()["data"]
    told = {model["id"]: model["zinc_rt"]["embedding"] for model in models}
    assert told == {
        EMBEDDER: {"dimensions": 64, "pooling": "mean"},
        MODEL: None,
        RERANKER: {"dimensions": 1, "pooling": "rank"},
    }


def test_disconnected_batch_leaves_nothing_behind(embedding_server: RunningServer) -> None:
    body = json.dumps({"input": [TEXTS[1]] * 200}).encode()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{embedding_server.url}/v1/embeddings",
            content=body,
            headers={"content-type": "application/json"},
            timeout=httpx.Timeout(30, read=0.01),
        )
    assert post(embedding_server, "/v1/embeddings", {"input": "a"}).status_code == 200
    core = embedding_server.server.models[EMBEDDER].core
    assert core.ledger.find_problems() == []
