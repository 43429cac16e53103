"""A proxy in front of a correct engine that makes one mistake: every time, once in 50, or only in a crowd."""

from __future__ import annotations

import json
import math
import random
import threading
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
class Lie:
    """A mistake. `request` changes a request (None: no change), `answer` a response. `kind`: the class of finding
    that a judge must report.
    """

    name: str
    kind: str
    request: Callable[[Body, Proxy], Body | None] = lambda body, proxy: None
    answer: Callable[[Body, Body, Proxy], Body | None] = lambda body, answer, proxy: None


@dataclass
class Proxy:
    upstream: str
    lie: Lie
    strength: Strength
    chance: random.Random = field(default_factory=lambda: random.Random(3))
    in_flight: int = 0
    lies: int = 0
    requests: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # of earlier requests, for lies that mix them up
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lying(self) -> bool:
        if self.strength == "crowd":
            return self.in_flight >= CROWD
        return self.strength == "always" or self.chance.random() < SOMETIMES


def _ids(body: Body) -> list[int] | None:
    prompt = body.get("prompt")
    return prompt if isinstance(prompt, list) else None


def _leak(body: Body, answer: Body, proxy: Proxy) -> Body | None:
    """Give the previous answer of the same route to this request."""
    key = f"answer {'chat' if 'messages' in body else body.get('logprobs')}"
    previous, proxy.last[key] = proxy.last.get(key), answer
    return previous


def _stale_page(body: Body, proxy: Proxy) -> Body | None:
    """Replace the second page of a prompt by that of the previous prompt with the same first page."""
    ids = _ids(body)
    if ids is None or len(ids) <= 2 * PAGE:
        return None
    key = ("page", *ids[:PAGE])
    previous = proxy.last.get(str(key))
    proxy.last[str(key)] = ids
    if previous is None or previous[: 2 * PAGE] == ids[: 2 * PAGE]:
        return None
    return {**body, "prompt": [*previous[: 2 * PAGE], *ids[2 * PAGE :]]}


def _changed_token(body: Body, proxy: Proxy) -> Body | None:
    ids = _ids(body)
    if ids is None or len(ids) <= EDGE + 1:
        return None
    return {**body, "prompt": [*ids[:EDGE], ids[EDGE] + 1, *ids[EDGE + 1 :]]}


def _dropped_token(body: Body, proxy: Proxy) -> Body | None:
    ids = _ids(body)
    return None if ids is None or len(ids) <= EDGE + 1 else {**body, "prompt": [*ids[:EDGE], *ids[EDGE + 1 :]]}


def _shifted(body: Body, proxy: Proxy) -> Body | None:
    ids = _ids(body)
    return None if ids is None or len(ids) <= LONG else {**body, "prompt": ids[32:]}


def _seed(body: Body, proxy: Proxy) -> Body | None:
    """Exchange the seed for that of the sampled request before."""
    seed = body.get("seed")
    previous, proxy.last["seed"] = proxy.last.get("seed"), seed or proxy.last.get("seed")
    return None if seed is None or previous in (None, seed) else {**body, "seed": previous}


def _set(**fields: Any) -> Callable[[Body, Proxy], Body | None]:
    def change(body: Body, proxy: Proxy) -> Body | None:
        return {**body, **fields} if body.get("temperature", 0) > 0 else None

    return change


def _sampled(body: Body, proxy: Proxy) -> Body | None:
    return (
        {**body, "temperature": 2.0, "seed": proxy.chance.randrange(1 << 30)}
        if not body.get("temperature", 1)
        else None
    )


def _no_system(body: Body, proxy: Proxy) -> Body | None:
    messages = body.get("messages")
    return None if messages is None else {**body, "messages": [m for m in messages if m["role"] != "system"]}


def _plain_letters(body: Body, proxy: Proxy) -> Body | None:
    prompt = body.get("prompt")
    return {**body, "prompt": prompt.replace(" ", "  ")} if isinstance(prompt, str) else None


def _stop_leak(body: Body, answer: Body, proxy: Proxy) -> Body | None:
    stop = body.get("stop")
    if not stop or answer["choices"][0]["finish_reason"] != "stop":
        return None
    answer["choices"][0]["text"] += stop[0]
    return answer


def _scaled(body: Body, answer: Body, proxy: Proxy) -> Body | None:
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


def _cached(body: Body, answer: Body, proxy: Proxy) -> Body | None:
    """Answer using only the first page of the prompt."""
    ids = _ids(body)
    if ids is None or len(ids) <= 2 * PAGE or body.get("max_tokens", 0) < 2:
        return None
    key = f"cached {ids[:PAGE]} {body.get('stop')} {body.get('seed')}"
    return proxy.last.setdefault(key, answer)


def _fewer(body: Body, proxy: Proxy) -> Body | None:
    return {**body, "max_tokens": body["max_tokens"] - 1} if body.get("max_tokens", 0) > 2 else None


LIES = (
    Lie("cross-slot leak", "leakage", answer=_leak),
    Lie("stale KV page", "KV reuse", request=_stale_page),
    Lie("token changed at a batch edge", "position", request=_changed_token),
    Lie("token dropped at a chunk edge", "position", request=_dropped_token),
    Lie("context shifted", "position", request=_shifted),
    Lie("swapped seeds", "sampler", request=_seed),
    Lie("top_p off", "sampler", request=_set(top_p=1.0)),
    Lie("greedy is sampled", "nondeterminism", request=_sampled),
    Lie("template without system message", "template", request=_no_system),
    Lie("text normalised", "tokenizer", request=_plain_letters),
    Lie("stop string leaks", "stop strings", answer=_stop_leak),
    Lie("log-probabilities of another temperature", "log-probabilities", answer=_scaled),
    Lie("cached answer for a changed prompt", "KV reuse", answer=_cached),
    Lie("one token too few", "sampler", request=_fewer),
    Lie("other temperature", "sampler", request=_set(temperature=1.8)),
)


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that leaves is part of the test


@contextmanager
def lying_proxy(upstream: str, lie: Lie, strength: Strength) -> Iterator[tuple[str, Proxy]]:
    """Yield the URL of the proxy."""
    proxy = Proxy(upstream, lie, strength)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(*_forward(proxy, "GET", self.path, None))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with proxy.lock:
                proxy.in_flight += 1
            try:
                self._send(*_answer(proxy, self.path, body))
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


def _answer(proxy: Proxy, path: str, body: Body) -> tuple[int, bytes, str]:
    if not path.endswith("completions") or body.get("max_tokens", 0) < 1:
        return _forward(proxy, "POST", path, body)
    with proxy.lock:
        proxy.requests += 1
        lying = proxy.lying()
        changed = proxy.lie.request(body, proxy) if lying or "page" in proxy.lie.name else None
        changed = changed if lying else None
    status, data, kind = _forward(proxy, "POST", path, changed or body)
    lied = changed is not None
    if status == 200 and not body.get("stream"):
        answer = json.loads(data)
        with proxy.lock:
            other = proxy.lie.answer(body, answer, proxy)
        if lying and other is not None:
            lied, data = True, json.dumps(other).encode()
        if lied and isinstance(_ids(body), list):  # a liar's count of tokens is that of the request
            answer = json.loads(data)
            answer["usage"]["prompt_tokens"] = len(_ids(body) or ())
            data = json.dumps(answer).encode()
    proxy.lies += lied
    return status, data, kind


def _forward(proxy: Proxy, method: str, path: str, body: Body | None) -> tuple[int, bytes, str]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(proxy.upstream + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=300) as response:
            return response.status, response.read(), response.headers["content-type"]
    except HTTPError as error:
        return error.code, error.read(), error.headers["content-type"]
