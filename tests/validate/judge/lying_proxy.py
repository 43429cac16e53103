"""A proxy in front of a correct engine that makes one mistake: every time, once in 50, or only in a crowd."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

Strength = Literal["always", "sometimes", "crowd"]
SOMETIMES = 1 / 50
CROWD = 8
Body = dict[str, Any]
PAGE, EDGE, LONG = 16, 64, 200


@dataclass
class ProxyFault:
    """A mistake. `request` changes a request (None: no change), `answer` a response. `kind`: the class of finding
    that a judge must report.
    """

    name: str
    kind: str
    request: Callable[[Body, ProxyState], Body | None] = lambda body, proxy: None
    answer: Callable[[Body, Body, ProxyState], Body | None] = lambda body, answer, proxy: None


@dataclass
class RecordedAnswers:
    """Answers of the engine, by request: `alone` of those without another request at the same time, `crowd` of
    others. Requests that were answered so often get one of these answers, as late as an engine would answer.
    """

    alone: int = 1
    crowd: int = 1
    delay_seconds: float = 0.02
    answers: dict[str, list[tuple[int, bytes, str]]] = field(default_factory=dict)

    def find(self, key: str, chance: random.Random) -> tuple[int, bytes, str] | None:
        answers = self.answers.get(key, [])
        if len(answers) < (self.alone if key.startswith("alone") else self.crowd):
            return None
        time.sleep(self.delay_seconds)
        return chance.choice(answers)


@dataclass
class ProxyState:
    upstream: str
    lie: ProxyFault
    strength: Strength
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    in_flight: int = 0
    lies: int = 0
    requests: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # of earlier requests, for lies that mix them up
    lock: threading.Lock = field(default_factory=threading.Lock)
    recorded: RecordedAnswers | None = None

    def is_lying(self) -> bool:
        if self.strength == "crowd":
            return self.in_flight >= CROWD
        return self.strength == "always" or self.chance.random() < SOMETIMES


def token_ids(body: Body) -> list[int] | None:
    prompt = body.get("prompt")
    return prompt if isinstance(prompt, list) else None


def leak_answer(body: Body, answer: Body, proxy: ProxyState) -> Body | None:
    """Give the previous answer of the same route to this request."""
    key = f"answer {'chat' if 'messages' in body else body.get('logprobs')}"
    previous, proxy.last[key] = proxy.last.get(key), answer
    return previous


def use_stale_page(body: Body, proxy: ProxyState) -> Body | None:
    """Replace the second page of a prompt by that of the previous prompt with the same first page."""
    ids = token_ids(body)
    if ids is None or len(ids) <= 2 * PAGE:
        return None
    key = ("page", *ids[:PAGE])
    previous = proxy.last.get(str(key))
    proxy.last[str(key)] = ids
    if previous is None or previous[: 2 * PAGE] == ids[: 2 * PAGE]:
        return None
    return {**body, "prompt": [*previous[: 2 * PAGE], *ids[2 * PAGE :]]}


def change_token(body: Body, proxy: ProxyState) -> Body | None:
    ids = token_ids(body)
    if ids is None or len(ids) <= EDGE + 1:
        return None
    return {**body, "prompt": [*ids[:EDGE], ids[EDGE] + 1, *ids[EDGE + 1 :]]}


def drop_token(body: Body, proxy: ProxyState) -> Body | None:
    ids = token_ids(body)
    return None if ids is None or len(ids) <= EDGE + 1 else {**body, "prompt": [*ids[:EDGE], *ids[EDGE + 1 :]]}


def shift_prompt(body: Body, proxy: ProxyState) -> Body | None:
    ids = token_ids(body)
    return None if ids is None or len(ids) <= LONG else {**body, "prompt": ids[32:]}


def change_seed(body: Body, proxy: ProxyState) -> Body | None:
    """Exchange the seed for that of the sampled request before."""
    seed = body.get("seed")
    previous, proxy.last["seed"] = proxy.last.get("seed"), seed or proxy.last.get("seed")
    return None if seed is None or previous in (None, seed) else {**body, "seed": previous}


def set_fields(**fields: Any) -> Callable[[Body, ProxyState], Body | None]:
    def change_fields(body: Body, proxy: ProxyState) -> Body | None:
        is_other = any(body.get(name, 1.0) != value for name, value in fields.items())  # 1.0 is the default
        return {**body, **fields} if body.get("temperature", 0) > 0 and is_other else None

    return change_fields


def raise_field(name: str, low: float, value: float) -> Callable[[Body, ProxyState], Body | None]:
    """Return a change of a request's field from values between `low` and `value` to `value`."""

    def change(body: Body, proxy: ProxyState) -> Body | None:
        return {**body, name: value} if low < body.get(name, 1.0) < value else None

    return change


def sample_greedy(body: Body, proxy: ProxyState) -> Body | None:
    return (
        {**body, "temperature": 2.0, "seed": proxy.chance.randrange(64)}
        if not body.get("temperature", 1)
        else None
    )


def drop_system_message(body: Body, proxy: ProxyState) -> Body | None:
    messages = body.get("messages")
    return None if messages is None else {**body, "messages": [m for m in messages if m["role"] != "system"]}


def replace_special_letters(body: Body, proxy: ProxyState) -> Body | None:
    prompt = body.get("prompt")
    return {**body, "prompt": prompt.replace(" ", "  ")} if isinstance(prompt, str) else None


def leak_stop_string(body: Body, answer: Body, proxy: ProxyState) -> Body | None:
    stop = body.get("stop")
    if not stop or answer["choices"][0]["finish_reason"] != "stop":
        return None
    answer["choices"][0]["text"] += stop[0]
    return answer


def scale_logprobs(body: Body, answer: Body, proxy: ProxyState) -> Body | None:
    logprobs = answer["choices"][0].get("logprobs")
    if not logprobs or not logprobs.get("top_logprobs"):
        return None
    tops = []
    for top in logprobs["top_logprobs"]:
        scaled = {name: value / 1.5 for name, value in top.items()}
        log = math.log(sum(math.exp(value) for value in scaled.values()) + 0.2)
        tops.append({name: value - log for name, value in scaled.items()})
    logprobs["top_logprobs"] = tops
    return answer


def answer_from_cache(body: Body, answer: Body, proxy: ProxyState) -> Body | None:
    """Answer using only the first page of the prompt."""
    ids = token_ids(body)
    if ids is None or len(ids) <= 2 * PAGE or body.get("max_tokens", 0) < 2:
        return None
    key = f"cached {ids[:PAGE]} {body.get('stop')} {body.get('seed')}"
    return proxy.last.setdefault(key, answer)


def reduce_max_tokens(body: Body, proxy: ProxyState) -> Body | None:
    return {**body, "max_tokens": body["max_tokens"] - 1} if body.get("max_tokens", 0) > 2 else None


LIES = (
    ProxyFault("cross-slot leak", "leakage", answer=leak_answer),
    ProxyFault("stale KV page", "KV reuse", request=use_stale_page),
    ProxyFault("token changed at a batch edge", "position", request=change_token),
    ProxyFault("token dropped at a chunk edge", "position", request=drop_token),
    ProxyFault("context shifted", "position", request=shift_prompt),
    ProxyFault("swapped seeds", "sampler", request=change_seed),
    ProxyFault("top_p off", "sampler", request=set_fields(top_p=1.0)),
    ProxyFault("greedy is sampled", "nondeterminism", request=sample_greedy),
    ProxyFault("template without system message", "template", request=drop_system_message),
    ProxyFault("text normalised", "tokenizer", request=replace_special_letters),
    ProxyFault("stop string leaks", "stop strings", answer=leak_stop_string),
    ProxyFault("log-probabilities of another temperature", "log-probabilities", answer=scale_logprobs),
    ProxyFault("cached answer for a changed prompt", "KV reuse", answer=answer_from_cache),
    ProxyFault("one token too few", "sampler", request=reduce_max_tokens),
    ProxyFault("other temperature", "sampler", request=set_fields(temperature=1.8)),
)

SAMPLER_LIES = (  # which only the questions of --full show
    ProxyFault("temperatures below 1 ignored", "sampler", request=raise_field("temperature", 0.0, 1.0)),
    ProxyFault("top_p 0.95 instead of 0.8", "sampler", request=raise_field("top_p", 0.7, 0.95)),
    ProxyFault("top_k ignored", "sampler", request=lambda body, proxy: {**body, "top_k": 0}),
)


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that leaves is part of the test


@contextmanager
def lying_proxy(
    upstream: str, lie: ProxyFault, strength: Strength, recorded: RecordedAnswers | None = None
) -> Iterator[tuple[str, ProxyState]]:
    """Yield the URL of the proxy. `recorded`: answers to use again instead of asking the engine."""
    proxy = ProxyState(upstream, lie, strength, recorded=recorded)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(*forward_request(proxy, "GET", self.path, None))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with proxy.lock:
                proxy.in_flight += 1
            try:
                self._send(*answer_request(proxy, self.path, body))
            finally:
                with proxy.lock:
                    proxy.in_flight -= 1

        def _send(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = _QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", proxy
    server.shutdown()
    thread.join()
    server.server_close()


def answer_request(proxy: ProxyState, path: str, body: Body) -> tuple[int, bytes, str]:
    if not path.endswith("completions") or body.get("max_tokens", 0) < 1:
        return forward_request(proxy, "POST", path, body)
    with proxy.lock:
        proxy.requests += 1
        lying = proxy.is_lying()
        changed = proxy.lie.request(body, proxy) if lying or "page" in proxy.lie.name else None
        changed = changed if lying else None
    status, data, kind = forward_request(proxy, "POST", path, changed or body)
    lied = changed is not None
    if status == 200 and not body.get("stream"):
        answer = json.loads(data)
        with proxy.lock:
            other = proxy.lie.answer(body, answer, proxy)
        if lying and other is not None:
            lied, data = True, json.dumps(other).encode()
        if lied and isinstance(token_ids(body), list):  # a liar's count of tokens is that of the request
            answer = json.loads(data)
            answer["usage"]["prompt_tokens"] = len(token_ids(body) or ())
            data = json.dumps(answer).encode()
    proxy.lies += lied
    return status, data, kind


def forward_request(proxy: ProxyState, method: str, path: str, body: Body | None) -> tuple[int, bytes, str]:
    data = None if body is None else json.dumps(body).encode()
    key = f"{'alone' if proxy.in_flight < 2 else 'crowd'} {path} {data!r}"
    if proxy.recorded is not None and (answer := proxy.recorded.find(key, proxy.chance)) is not None:
        return answer
    answer = ask_upstream(proxy, method, path, data)
    if proxy.recorded is not None:
        proxy.recorded.answers.setdefault(key, []).append(answer)
    return answer


def ask_upstream(proxy: ProxyState, method: str, path: str, data: bytes | None) -> tuple[int, bytes, str]:
    request = Request(proxy.upstream + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=300) as response:
            return response.status, response.read(), response.headers["content-type"]
    except HTTPError as error:
        return error.code, error.read(), error.headers["content-type"]
