"""OpenAI's embeddings, and ranking of documents by a reranker's scores or by the similarity of embeddings.

Each text is a request without a decode, under the tenant's limits and in its ledger. Up to `PENDING` texts of an
HTTP request are submitted at a time, so that a large batch does not fill its tenant's queue.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Sequence

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from zinc_rt.engine.embedding import Embedding, list_scores, shorten
from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.sched.sampling import Sampling
from zinc_rt.serve.api.asking import RequestOrigin, find_model
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.openai import REFUSALS, AskedBy, find_server, make_ignored_header
from zinc_rt.serve.api.prompts import check_length, check_token_count, find_tokenizer
from zinc_rt.serve.api.replies import EmbeddingItem, EmbeddingList, RankedDocument, Ranking
from zinc_rt.serve.api.schema import EmbeddingsBody, RerankBody
from zinc_rt.serve.api.sse import cancel_on_disconnect, make_receiver
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError, make_not_offered_error

MAX_INPUTS = 2048  # of one request, as OpenAI has it
PENDING = 32
router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


@router.post("/v1/embeddings", response_model=None, responses={200: {"model": EmbeddingList}})
async def create_embeddings(request: Request, body: EmbeddingsBody, by: AskedBy) -> JSONResponse:
    """Return the embedding of each text or list of token ids, with L2 norm 1."""
    server = find_server(request)
    model = find_embedding_model(server, body.model)
    width = model.core.engine.model.width
    if body.dimensions is not None and body.dimensions > width:
        message = f"dimensions: {model.id} has embeddings of {width} elements, not {body.dimensions}"
        raise ServeError(400, message, param="dimensions")
    single = isinstance(body.input, str) or bool(body.input and isinstance(body.input[0], int))
    inputs: Sequence[str | list[int]] = [body.input] if single else body.input  # type: ignore[assignment,list-item]
    tokens = await tokenize_inputs(model, inputs, "input")
    embeddings = await cancel_on_disconnect(make_receiver(request), embed_all(server, model, tokens, by))
    items: list[EmbeddingItem] = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _encode(
                shorten(item.values, body.dimensions), as_base64=body.encoding_format == "base64"
            ),
        }
        for index, item in enumerate(embeddings)
    ]
    count = sum(item.prompt_tokens for item in embeddings)
    reply: EmbeddingList = {
        "object": "list",
        "data": items,
        "model": model.id,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return JSONResponse(reply, headers=make_ignored_header(body))


@router.post("/v1/rerank", response_model=None, responses={200: {"model": Ranking}})
async def rank_documents(request: Request, body: RerankBody, by: AskedBy) -> JSONResponse:
    """Rank documents by their relevance to the query, the most relevant first: by the scores of a reranker, or by
    the cosine similarity of embeddings."""
    server = find_server(request)
    model = find_ranking_model(server, body.model)
    texts = [item if isinstance(item, str) else item.text for item in body.documents]
    if model.core.ranks_pairs:
        tokens = await tokenize_pairs(model, body.query, texts)
    else:
        tokens = [
            *await tokenize_inputs(model, [body.query], "query"),
            *await tokenize_inputs(model, texts, "documents"),
        ]
    embeddings = await cancel_on_disconnect(make_receiver(request), embed_all(server, model, tokens, by))
    scores = list_scores(embeddings, by_head=model.core.ranks_pairs)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[RankedDocument] = []
    for index in order[: body.top_n]:
        item: RankedDocument = {"index": index, "relevance_score": scores[index]}
        if body.return_documents is not False:
            item["document"] = {"text": texts[index]}
        results.append(item)
    count = sum(item.prompt_tokens for item in embeddings)
    reply: Ranking = {
        "id": f"rerank-{secrets.token_hex(12)}",
        "model": model.id,
        "results": results,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return JSONResponse(reply, headers=make_ignored_header(body))


def find_embedding_model(server: InferenceServer, name: str | None) -> ServedModel:
    """Return the named model, or the first resident one. Raises ServeError 404, 501 if it has no embedding of a
    whole text."""
    model = find_model(server, name)
    try:
        model.core.require_pooling()
    except UsageError as error:
        raise make_not_offered_error(f"embeddings of {model.id}", error.message) from error
    return model


def find_ranking_model(server: InferenceServer, name: str | None) -> ServedModel:
    """Return the named model, or the first resident one. Raises ServeError 404, 501 if it ranks no documents."""
    model = find_model(server, name)
    try:
        model.core.require_ranking()
    except UsageError as error:
        raise make_not_offered_error(f"ranking by {model.id}", error.message) from error
    return model


async def tokenize_pairs(model: ServedModel, query: str, documents: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the prompt tokens of the query with each document. Raises ServeError 400 as `tokenize_inputs`."""
    find_tokenizer(model)
    _check_count(documents, "documents")
    for document in documents:
        check_length(model, len(query) + len(document), 0, "documents")
    try:
        prompts = await asyncio.to_thread(model.core.make_rank_prompts, query, documents)
    except ZincError as error:
        raise ServeError(400, error.message, param="documents") from error
    return await tokenize_inputs(model, prompts, "documents")


async def tokenize_inputs(
    model: ServedModel, inputs: Sequence[str | list[int]], param: str
) -> list[tuple[int, ...]]:
    """Return the token ids of texts; lists of ids are checked. Raises ServeError 400 for no or too many inputs, an
    empty one, one that exceeds the context, or ids outside the vocabulary."""
    _check_count(inputs, param)
    tokenizer = find_tokenizer(model) if any(isinstance(item, str) for item in inputs) else None
    for item in inputs:
        if isinstance(item, str):
            check_length(model, len(item), 0, param)

    def encode_inputs() -> list[list[int]]:
        return [tokenizer.encode(item) if tokenizer and isinstance(item, str) else list(item) for item in inputs]  # type: ignore[arg-type]

    try:
        encoded = await asyncio.to_thread(encode_inputs)
    except ZincError as error:
        raise ServeError(400, error.message, param=param) from error
    vocab = model.core.engine.model.vocab
    for index, tokens in enumerate(encoded):
        at = f"{param}[{index}]" if len(encoded) > 1 else param
        if not tokens:
            raise ServeError(400, f"{at}: has no tokens", param=param)
        check_token_count(model, len(tokens), at)
        if (largest := max(tokens)) >= vocab:
            raise ServeError(400, f"{at}: token id {largest} is outside the vocabulary of {vocab}", param=param)
    return [tuple(tokens) for tokens in encoded]


def _check_count(inputs: Sequence[object], param: str) -> None:
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise ServeError(400, f"{param}: expected 1 to {MAX_INPUTS} texts, not {len(inputs)}", param=param)


async def embed_all(
    server: InferenceServer, model: ServedModel, inputs: Sequence[tuple[int, ...]], by: RequestOrigin
) -> list[Embedding]:
    """Return the embeddings of all inputs, not normalised. Raises ServeError if one fails, and cancels the
    others."""
    turn = asyncio.Semaphore(PENDING)

    async def embed_one(tokens: tuple[int, ...]) -> Embedding:
        async with turn:
            return await embed_tokens(server, make_embedding_request(model, tokens, by))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(embed_one(tokens)) for tokens in inputs]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def make_embedding_request(model: ServedModel, tokens: tuple[int, ...], by: RequestOrigin) -> EngineRequest:
    return EngineRequest(
        model.id,
        tokens,
        Sampling(max_tokens=1, ignore_eos=True, seed=0),
        tenant=by.caller.tenant,
        session=by.session,
        deadline_seconds=None if by.timeout_ms is None else by.timeout_ms / 1000,
        request_id=by.request_id,
    )


async def embed_tokens(server: InferenceServer, ask: EngineRequest) -> Embedding:
    """Return the embedding of one request, not normalised. Raises ServeError if it fails."""
    values = None
    async with await server.submit(ask) as stream:
        async for deliveries in stream:
            for delivered in deliveries:
                values = delivered.embedding if delivered.embedding is not None else values
    if values is None or not np.isfinite(values).all():
        raise ServeError(500, "the embedding is not finite", "server_error", code="logits_not_finite")
    return Embedding(values, len(ask.tokens), stream.cached_tokens)


def _encode(values: np.ndarray, *, as_base64: bool) -> str | list[float]:
    if as_base64:
        return base64.b64encode(values.astype("<f4").tobytes()).decode()
    result: list[float] = values.tolist()
    return result
