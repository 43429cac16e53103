"""OpenAI's endpoints: completions and chat completions."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.asking import RequestOrigin, find_model, make_ask, parse_header_milliseconds, parse_sampling
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.chat import make_chat_answers
from zinc_rt.serve.api.chat_completions import ChatShape
from zinc_rt.serve.api.completions import Echo, TextShape
from zinc_rt.serve.api.document import EVENTS
from zinc_rt.serve.api.prompts import make_text_prompts
from zinc_rt.serve.api.replies import ChatCompletion, ErrorReply, TextCompletion
from zinc_rt.serve.api.schema import IGNORED, ChatBody, CompletionBody, SamplingBody
from zinc_rt.serve.api.shape import ReplyHead, Shape, iterate_chunks
from zinc_rt.serve.api.sse import EventStream, cancel_on_disconnect, make_receiver
from zinc_rt.serve.api.structured import make_text_grammar
from zinc_rt.serve.api.text import RawText, TokenReader
from zinc_rt.serve.engine.prompt_logprobs import compute_all_prompt_logprobs
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.auth import Inference

REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorReply, "description": "refused"},
    "5XX": {"model": ErrorReply, "description": "failed"},
}
FINDINGS = "x-zinc-rt-findings"  # how many errors the simulated device had reported, if any
router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


def request_origin(request: Request, by: Inference) -> RequestOrigin:
    """Return the client of a request, with its session and timeout headers."""
    headers = request.headers
    return RequestOrigin(
        by,
        request.state.request_id,
        headers.get("x-session-id", "")[:256],
        parse_header_milliseconds(headers, "x-request-timeout-ms"),
    )


AskedBy = Annotated[RequestOrigin, Depends(request_origin)]


def find_server(request: Request) -> InferenceServer:
    server: InferenceServer = request.app.state.server
    return server


@router.post(
    "/v1/chat/completions", response_model=None, responses={200: {"model": ChatCompletion, "content": EVENTS}}
)
async def create_chat_completion(request: Request, body: ChatBody, by: AskedBy) -> Response:
    """Answer a chat. With `stream`, the response is a stream of server-sent events."""
    answers = await make_chat_answers(find_server(request), body, by, stream_calls=bool(body.stream))
    head = _make_head("chatcmpl", answers.model)
    return await _make_reply(request, answers, ChatShape(answers, body, head), body)


@router.post("/v1/completions", response_model=None, responses={200: {"model": TextCompletion, "content": EVENTS}})
async def create_completion(request: Request, body: CompletionBody, by: AskedBy) -> Response:
    """Complete a text or token ids. With `stream`, the response is a stream of server-sent events."""
    model = find_model(find_server(request), body.model)
    core, sampling = model.core, parse_sampling(body, model)
    prompts = await make_text_prompts(model, body)

    def make_reader() -> TokenReader:
        return RawText(core.tokenizer, sampling.stop, core.end_ids)

    grammar = await make_text_grammar(body, model, by.caller.tenant)
    asks = [
        replace(make_ask(body, model, prompt.tokens, sampling, by, "prompt"), grammar=grammar and grammar.fork())
        for prompt in prompts
    ]
    answers = Answers(model, asks, make_reader, shown=body.max_tokens != 0)
    echoes = [Echo(prompt.text) for prompt in prompts] if body.echo else []
    if body.echo and body.logprobs is not None:
        scores = compute_all_prompt_logprobs(find_server(request), asks, body.logprobs)
        scored = await cancel_on_disconnect(make_receiver(request), scores)
        echoes = [replace(echo, logprobs=item) for echo, item in zip(echoes, scored, strict=True)]
    return await _make_reply(request, answers, TextShape(answers, body, _make_head("cmpl", model), echoes), body)


async def _make_reply(request: Request, answers: Answers, shape: Shape, body: SamplingBody) -> Response:
    begin = await answers.begin(find_server(request))
    if body.stream:
        return EventStream(iterate_chunks(begin, shape, body), make_ignored_header(body))
    await cancel_on_disconnect(make_receiver(request), begin.finish())
    return JSONResponse(shape.whole(), headers=make_ignored_header(body) | make_findings_header(begin))


def make_ignored_header(body: BaseModel) -> dict[str, str]:
    """Return the header that names the parameters that the request has and this server ignores."""
    fields = type(body).model_fields
    ignored = [name for name in body.model_fields_set if fields[name].description == IGNORED]
    return {"x-zinc-rt-ignored": ", ".join(sorted(ignored))} if ignored else {}


def make_findings_header(answers: Answers) -> dict[str, str]:
    """Return the header of answers that may be wrong, because the simulated device has reported errors."""
    count = len(answers.findings)
    return {FINDINGS: str(count)} if count else {}


def _make_head(kind: str, model: ServedModel) -> ReplyHead:
    return ReplyHead(f"{kind}-{secrets.token_hex(12)}", int(time.time()), model.id, model.fingerprint)
