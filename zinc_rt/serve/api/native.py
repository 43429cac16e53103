"""Endpoints in llama.cpp's and vLLM's format that OpenAI does not have: tokens, templates, health, slots."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from zinc_rt.host.errors import ZincError
from zinc_rt.serve.api.asking import find_model
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.openai import REFUSALS, find_server
from zinc_rt.serve.api.prompts import check_length, find_tokenizer, make_chat_prompt
from zinc_rt.serve.api.replies import DetokenizeReply, StatusReply, TemplateReply, TokenizeReply
from zinc_rt.serve.api.schema import DetokenizeBody, TemplateBody, TokenizeBody
from zinc_rt.serve.api.token_texts import format_token_text
from zinc_rt.serve.errors import ServeError, make_unavailable_error
from zinc_rt.serve.tenants.auth import Inference

router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


@router.get("/health")
async def get_health(request: Request) -> StatusReply:
    """Return the health of the server. It is degraded, with a reason, if results or the ledger may be wrong."""
    reasons = await asyncio.to_thread(find_server(request).list_faults)
    return {"status": "degraded", "reasons": reasons} if reasons else {"status": "ok"}


@router.get("/ready")
async def check_ready(request: Request) -> StatusReply:
    """Return whether the server accepts new requests.

    The status is 503 while models load or drain, after a model is lost, and after the ledger can no longer
    be written.
    """
    server = find_server(request)
    if server.draining:
        raise make_unavailable_error("the server is shutting down and accepts no new requests", "draining")
    if lost := [model.lost for model in server.models.values() if model.lost]:
        raise make_unavailable_error(lost[0], "device_lost", 10)
    if not server.models:
        raise make_unavailable_error("no model is resident", "loading", 5)
    if server.store is not None and (reason := server.store.refuses()):
        raise make_unavailable_error(reason, "ledger", 10)
    return {"status": "ready", "requests": server.requests}


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeBody, by: Inference) -> TokenizeReply:
    """Return the token ids of a text, or of messages through the chat template."""
    model = find_model(find_server(request), body.model)
    tokenizer = find_tokenizer(model)
    add_special = True if body.add_special_tokens is None else body.add_special_tokens
    if body.messages is not None:
        variables = dict(body.chat_template_kwargs or {})
        if body.add_generation_prompt is not None:
            variables["add_generation_prompt"] = body.add_generation_prompt
        tokens = (await make_chat_prompt(model, body.messages, variables)).tokens
    else:
        text = (body.prompt if body.content is None else body.content) or ""
        check_length(model, len(text), 0, "prompt" if body.content is None else "content")
        if body.content is not None:  # llama.cpp's default
            add_special = bool(body.add_special)
        parse = True if body.parse_special is None else body.parse_special
        try:
            tokens = await asyncio.to_thread(tokenizer.encode, text, add_special=add_special, parse_special=parse)
        except ZincError as error:
            raise ServeError(400, error.message, param="content") from error
    reply: TokenizeReply = {"tokens": tokens, "count": len(tokens), "max_model_len": model.ctx}
    if body.return_token_strs:
        reply["token_strs"] = [format_token_text(tokenizer, id) for id in tokens]
    if body.with_pieces:
        reply["tokens"] = [{"id": id, "piece": _format_piece(tokenizer.piece_bytes(id))} for id in tokens]
    return reply


def _format_piece(piece: bytes) -> str | list[int]:
    """Return a token as llama.cpp does: as text, or as bytes if it is not valid text."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeBody, by: Inference) -> DetokenizeReply:
    """Return the text of token ids."""
    tokenizer = find_tokenizer(find_model(find_server(request), body.model))
    try:
        text = await asyncio.to_thread(tokenizer.decode, body.tokens)
    except ZincError as error:
        raise ServeError(400, error.message, param="tokens") from error
    return {"content": text, "prompt": text}


@router.post("/apply-template")
async def apply_template(request: Request, body: TemplateBody, by: Inference) -> TemplateReply:
    """Return the prompt that the chat template generates from messages."""
    variables: dict[str, Any] = dict(body.chat_template_kwargs or {})
    if body.tools is not None:
        variables["tools"] = body.tools
    if body.add_generation_prompt is not None:
        variables["add_generation_prompt"] = body.add_generation_prompt
    return {
        "prompt": (
            await make_chat_prompt(find_model(find_server(request), body.model), body.messages, variables)
        ).text
    }
