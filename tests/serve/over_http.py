"""Requests over HTTP as the engine's, and answers as LLM's: to compare the two, and to leave at any point."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from asking import ReceivedAnswer

from zinc_rt.serve.engine.requests import EngineRequest


def request_body(ask: EngineRequest, *, stream: bool) -> dict[str, Any]:
    """A plain completion's. Fields with other names in the API are renamed."""
    sampling = ask.sampling
    return {
        "model": ask.model,
        "prompt": list(ask.tokens),
        "stream": stream,
        "return_token_ids": True,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": sampling.seed,
        "n": sampling.n,
        "ignore_eos": sampling.ignore_eos,
    }


class RequestFailed(Exception):
    """`status` of an answer that is none; of a stream that failed in its middle 200. `error`: what it says."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(status, error)
        self.status, self.error = status, error


async def send_request(
    client: httpx.AsyncClient, ask: EngineRequest, *, stream: bool, leave_after: int | None = None
) -> list[ReceivedAnswer]:
    """Return every choice completely; `leave_after`: number of stream events after which the connection is closed.
    Raises RequestFailed."""
    answers = [ReceivedAnswer() for _ in range(ask.sampling.n)]
    body = request_body(ask, stream=stream)
    if not stream:
        answer = await client.post("/v1/completions", json=body)
        if answer.status_code != 200:
            raise RequestFailed(answer.status_code, answer.json()["error"])
        add_chunk(answers, answer.json())
        return answers
    events = 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RequestFailed(answer.status_code, json.loads(await answer.aread())["error"])
        async for line in answer.aiter_lines():
            if events == leave_after:
                return answers
            if line == "data: [DONE]":
                return answers
            if line.startswith("data: "):
                events += 1
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    raise RequestFailed(200, chunk["error"])
                add_chunk(answers, chunk)
    raise AssertionError("the stream ended without [DONE]")


def add_chunk(answers: list[ReceivedAnswer], reply: dict[str, Any]) -> None:
    for choice in reply["choices"]:
        one = answers[choice["index"]]
        assert not one.finish_reason
        one.tokens += choice["token_ids"]
        one.finish_reason = choice["finish_reason"] or ""


def make_client(url: str, key: str = "") -> httpx.AsyncClient:
    """Use one connection per request."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60)


async def send_and_drop(url: str, content: bytes, *, wait_seconds: float = 0.0, read: int = 0) -> None:
    """Open a connection, send this, read at least that many bytes, and close it."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(content)
        await writer.drain()
        if read:
            await reader.read(read)
        await asyncio.sleep(wait_seconds)
    finally:
        writer.transport.abort()  # no goodbye: a reset


def post_bytes(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """Return the complete request as sent on the wire."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
