"""Convert a request body to an engine request: model, sampling parameters, deadline and priority class."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.api.prompts import check_token_count
from zinc_rt.serve.api.schema import ChatBody, CompletionBody, SamplingBody
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError, convert_usage_error
from zinc_rt.serve.tenants.keys import Caller

DEFAULT_TOKENS = 16  # of a plain completion, as OpenAI has it; a chat goes on to the end of the context


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The client of a request. `session` and `timeout_ms` come from the headers and apply if the body does
    not set them."""

    caller: Caller
    request_id: str
    session: str = ""
    timeout_ms: int | None = None


def find_model(server: InferenceServer, name: str | None) -> ServedModel:
    """Return the named model, or the first resident model if no name is given. Raises ServeError 404."""
    return server.model(name or next(iter(server.models), ""))


def parse_sampling(body: ChatBody | CompletionBody, model: ServedModel) -> Sampling:
    """Return the sampling parameters of the body. Raises ServeError 400 with the name of the invalid
    parameter, or for an embedding model."""
    try:
        model.core.require_generation()
    except UsageError as error:
        raise ServeError(400, error.message, param="model", code="embedding_model") from error
    if isinstance(body, ChatBody):
        if body.top_logprobs is not None and not body.logprobs:
            raise ServeError(400, "top_logprobs: requires logprobs: true", param="top_logprobs")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        max_tokens = body.max_completion_tokens or body.max_tokens or model.ctx
    else:
        logprobs = body.logprobs
        max_tokens = max(1, DEFAULT_TOKENS if body.max_tokens is None else body.max_tokens)
        if body.best_of is not None and body.best_of != (body.n or 1):
            raise ServeError(400, "best_of: must equal n", param="best_of")
    argument: dict[str, Any] = {
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else max(0, body.top_k),
        "min_p": body.min_p,
        "n": body.n,
        "min_tokens": body.min_tokens,
        "stop": (body.stop,) if isinstance(body.stop, str) else body.stop,
        "stop_token_ids": body.stop_token_ids,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repetition_penalty": body.repetition_penalty,
        "logit_bias": None if body.logit_bias is None else {int(id): bias for id, bias in body.logit_bias.items()},
        "ignore_eos": body.ignore_eos,
    }
    sampling = Sampling(
        max_tokens=max_tokens,
        logprobs=logprobs,
        seed=secrets.randbits(64) if body.seed is None else body.seed,
        **{name: value for name, value in argument.items() if value is not None},
    )
    try:
        sampling.check()
    except UsageError as error:
        raise convert_usage_error(error, list(type(body).model_fields)) from error
    _check_for(sampling, model)
    return sampling


def _check_for(sampling: Sampling, model: ServedModel) -> None:
    vocab, slots = model.core.engine.model.vocab, model.core.engine.limits.slots
    if sampling.n > slots:
        raise ServeError(400, f"n {sampling.n}: each choice needs a slot, and {model.id} has {slots}", param="n")
    for name, ids in (("logit_bias", sampling.logit_bias), ("stop_token_ids", sampling.stop_token_ids)):
        if (wrong := next((id for id in ids if id >= vocab), None)) is not None:
            raise ServeError(400, f"{name}: token id {wrong} is outside the vocabulary of {vocab}", param=name)


def make_ask(
    body: SamplingBody,
    model: ServedModel,
    tokens: Sequence[int],
    sampling: Sampling,
    asker: RequestOrigin,
    param: str,
) -> EngineRequest:
    """Return the engine request. `param` names the body field that the tokens came from.

    Raises ServeError 400 if the prompt is empty or does not fit the context, 501 if the request requires a
    guarantee that this server cannot give.
    """
    vocab = model.core.engine.model.vocab
    if not tokens:
        raise ServeError(400, f"{param}: has no tokens", param=param)
    check_token_count(model, len(tokens), param)
    if (largest := max(tokens)) >= vocab:
        raise ServeError(400, f"{param}: token id {largest} is outside the vocabulary of {vocab}", param=param)
    if body.deterministic_required and not model.deterministic:
        raise ServeError(
            400,
            f"{model.id} uses an execution order without reproducible results (see /props)",
            param="deterministic_required",
        )
    timeout_ms = body.timeout_ms or asker.timeout_ms
    return EngineRequest(
        model.id,
        tuple(tokens),
        sampling,
        tenant=asker.caller.tenant,
        session=body.session_id or asker.session,
        priority=None if body.priority is None else Priority[body.priority.upper()],
        deadline_seconds=None if timeout_ms is None else timeout_ms / 1000,
        cache_salt=body.cache_salt or "",
        fail_fast=bool(body.fail_fast),
        request_id=asker.request_id,
        drafts=body.draft_tokens,
    )


def parse_header_milliseconds(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header's value in milliseconds. Raises ServeError 400 if it is not a valid number."""
    text = headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:10]) >= 1 and len(text) < 10):
        raise ServeError(400, f"{name}: expected milliseconds, 1 or more", param=name)
    return int(text)
