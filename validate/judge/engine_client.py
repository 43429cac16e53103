"""A client for servers with the OpenAI API: /v1/completions, /v1/chat/completions, and optional routes.

Servers report log-probabilities in two layouts, both read here: that of completions (`tokens`, `token_logprobs`,
`top_logprobs`; OpenAI, vLLM) and that of conversations (`content`; llama-server uses it for completions too). The
client of the standard library lets a caller close a connection in the middle of a stream.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from zinc_rt.host.errors import InputError, UsageError

TOP = 5  # alternatives requested with each token: the most that OpenAI's completions allow
TOKEN_ID = "token_id:"  # so vLLM names tokens on request
# Fields that make servers identify tokens, or report log-probabilities at all; the first accepted one is used.
EXTRA_FIELDS: tuple[dict[str, Any], ...] = (
    {"return_tokens_as_token_ids": True},  # vLLM
    {"return_token_ids": True},  # this runtime
    {},
    {"n_probs": TOP},  # llama-server
)
ALL_TOKENS = {"top_k": 0, "min_p": 0.0}  # sample from the whole distribution; llama-server's default does not


@dataclass(frozen=True, slots=True)
class ReportedToken:
    """One token of an answer. `token` is None if the server reports only its text and several tokens have that
    text. `top`: natural log-probabilities of the alternatives that could be identified, by token id.
    """

    token: int | None
    text: str
    logprob: float | None
    top: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The first choice of a response. `tokens` is empty without log-probabilities."""

    text: str
    finish_reason: str
    tokens: tuple[ReportedToken, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    events: int = 0  # of a stream


class RequestError(Exception):
    """A response that is not an answer. `status` is 0 if the connection failed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}" if status else message)
        self.status, self.message = status, message


@dataclass(slots=True)
class EngineFeatures:
    """The capabilities of a server, determined by requests. `tokenize`: the request field for text, "" without
    that route. `token_prompts`: a prompt can be a list of ids. `logprobs`: completions report log-probabilities.
    """

    model: str = ""
    software: str = ""
    ctx: int | None = None
    token_prompts: bool = False
    logprobs: bool = False
    tokenize: str = ""
    template: bool = False
    chat: bool = False
    extra: dict[str, Any] = field(
        default_factory=dict
    )  # sent with each completion, e.g. return_tokens_as_token_ids


class EngineClient:
    """A client of one server. May be used from several threads; each thread keeps its own connection."""

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        key: str = "",
        timeout_seconds: float = 120.0,
    ) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url}: expected the address of a server", next="such as http://127.0.0.1:8080")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        self.features = EngineFeatures(model=model)
        self._parts, self._key, self._timeout = parts, key, timeout_seconds
        self._token_of: Callable[[str], int | None] = lambda text: None
        self._base = urlsplit(self.url).path
        self._threads = threading.local()

    def detect_features(self) -> EngineFeatures:
        """Find out what the server accepts. Raise InputError if it does not answer a completion."""
        features = self.features
        try:
            models = self._try_request("GET", "/v1/models") or {}
        except RequestError as error:
            raise InputError(
                f"{self.url}: {error}", next="check the address, and that the engine is running"
            ) from error
        listed = [entry.get("id", "") for entry in models.get("data", []) if isinstance(entry, dict)]
        if not features.model:
            features.model = listed[0] if listed else "default"
        elif listed and features.model not in listed:
            raise UsageError(f"--name {features.model}: the server lists {', '.join(listed)}")
        props = self._try_request("GET", "/props") or {}
        settings = props.get("default_generation_settings", {})
        features.ctx = settings.get("n_ctx") or props.get("n_ctx") or _find_listed_ctx(models)
        features.software = str(props.get("build_info") or _find_owner(models))
        self._detect_completions()
        for name in ("content", "prompt"):
            answer = self._try_request("POST", "/tokenize", {"model": features.model, name: "a"})
            if answer and isinstance(answer.get("tokens"), list):
                features.tokenize = name
                break
        messages = [{"role": "user", "content": "a"}]
        features.template = bool(
            (self._try_request("POST", "/apply-template", self._add_model_name({"messages": messages})) or {}).get(
                "prompt"
            )
        )
        chat = {"messages": messages, "max_tokens": 1, "temperature": 0}
        features.chat = bool(
            (self._try_request("POST", "/v1/chat/completions", self._add_model_name(chat)) or {}).get("choices")
        )
        return features

    def _detect_completions(self) -> None:
        features = self.features
        plain = {"prompt": "a", "max_tokens": 1, "temperature": 0}
        try:
            self.post("/v1/completions", self._add_model_name(plain))
        except RequestError as error:
            raise InputError(
                f"{self.url}/v1/completions: {error}", next="zinc-rt judge needs this route; see docs/judge.md"
            ) from error
        answer = self._try_request("POST", "/v1/completions", self._add_model_name({**plain, "prompt": [1, 2, 3]}))
        count = (answer or {}).get("usage", {}).get("prompt_tokens")
        features.token_prompts = answer is not None and count in (None, 3, 4)  # 4: it adds a first token

    def complete(self, body: Mapping[str, Any]) -> EngineAnswer:
        """Return the answer of /v1/completions, or of /v1/chat/completions for a body with messages. A body with
        `stream` is read to its end. Raise RequestError.
        """
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        whole = self.make_body(body)
        start = time.monotonic()
        if whole.get("stream"):
            return self._read_stream(path, whole, start)
        answer = self.post(path, whole)
        return _parse_choice(answer, self._token_of, time.monotonic() - start)

    def detect_logprobs(self, token_of: Callable[[str], int | None]) -> None:
        """Find out how the server reports log-probabilities. `token_of` identifies tokens from now on."""
        self._token_of = token_of
        for extra in EXTRA_FIELDS:
            body = self._add_model_name(
                {"prompt": "a", "max_tokens": 1, "temperature": 0, "logprobs": TOP, **extra}
            )
            answer = self._try_request("POST", "/v1/completions", body)
            tokens = _parse_choice(answer, token_of, 0.0).tokens if answer else ()
            if tokens and tokens[0].top and tokens[0].token is not None:
                self.features.logprobs, self.features.extra = True, extra
                if self._try_request("POST", "/v1/completions", body | ALL_TOKENS):
                    self.features.extra = extra | ALL_TOKENS
                return

    def make_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body to send: with the model's name and the additional fields that this server needs."""
        whole = self._add_model_name(body)
        needs_more = "logprobs" in whole and "messages" not in whole
        return {**self.features.extra, **whole} if needs_more else whole

    def abandon(self, body: Mapping[str, Any], *, events: int) -> None:
        """Begin a stream and close the connection after this many events. Raise RequestError."""
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        self._read_stream(
            path, self._add_model_name({**body, "stream": True}), time.monotonic(), leave_after=events
        )

    def tokenize(self, text: str, *, special: bool) -> list[int] | None:
        """Return the server's token ids of a text, or None if it has no such route."""
        name = self.features.tokenize
        if not name:
            return None
        flag = {"add_special": special} if name == "content" else {"add_special_tokens": special}
        answer = self._try_request("POST", "/tokenize", {"model": self.features.model, name: text, **flag})
        tokens = (answer or {}).get("tokens")
        return (
            None
            if tokens is None
            else [int(token["id"] if isinstance(token, dict) else token) for token in tokens]
        )

    def apply_template(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """Return the server's prompt text of a conversation, or None if it has no such route."""
        if not self.features.template:
            return None
        answer = self._try_request("POST", "/apply-template", self._add_model_name({"messages": list(messages)}))
        prompt = (answer or {}).get("prompt")
        return prompt if isinstance(prompt, str) else None

    def get(self, path: str) -> dict[str, Any]:
        """Return the object of a GET response. Raise RequestError."""
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the object of its response. Raise RequestError."""
        return self._request("POST", path, body)

    def _try_request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the object, or None if the server refuses the route or its fields. Raise RequestError without a
        connection.
        """
        try:
            return self._request(method, path, body)
        except RequestError as error:
            if error.status == 0:
                raise
            return None

    def _add_model_name(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"model": self.features.model, **body}

    def _make_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _open_connection(self) -> http.client.HTTPConnection:
        connection = getattr(self._threads, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            assert self._parts.hostname is not None
            connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout)
            self._threads.connection = connection
        return connection

    def _drop(self) -> None:
        connection = getattr(self._threads, "connection", None)
        if connection is not None:
            connection.close()
            self._threads.connection = None

    def _open(self, method: str, path: str, body: Mapping[str, Any] | None) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):  # a server may have closed the connection since the last request
            try:
                connection = self._open_connection()
                connection.request(method, self._base + path, data, self._make_headers())
                return connection.getresponse()
            except TimeoutError as error:
                self._drop()
                raise RequestError(0, f"no response within {self._timeout:g} s") from error
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if attempt == 2:
                    raise RequestError(0, f"the connection failed: {error or type(error).__name__}") from error
        raise AssertionError

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        response = self._open(method, path, body)
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise RequestError(0, f"the response ended early: {error or type(error).__name__}") from error
        if response.status != 200:
            raise RequestError(response.status, _parse_error_message(text))
        try:
            answer = json.loads(text)
        except ValueError:
            raise RequestError(response.status, f"the response is not JSON: {text[:80]!r}") from None
        return answer if isinstance(answer, dict) else {"data": answer}

    def _read_stream(
        self, path: str, body: Mapping[str, Any], start: float, *, leave_after: int | None = None
    ) -> EngineAnswer:
        response = self._open("POST", path, body)
        text, reason, events = [], "", 0
        tokens: list[ReportedToken] = []
        is_complete = True  # every text came with its tokens
        try:
            if response.status != 200:
                raise RequestError(response.status, _parse_error_message(response.read()))
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    break
                event = json.loads(data)
                if "error" in event:
                    raise RequestError(200, str(event["error"])[:200])
                for choice in event.get("choices", [])[:1]:
                    text.append(choice.get("text") or (choice.get("delta") or {}).get("content") or "")
                    reason = choice.get("finish_reason") or reason
                    reported = _parse_tokens(choice.get("logprobs"), self._token_of)
                    tokens += _with_ids(reported, choice.get("token_ids"))
                    is_complete &= bool(reported) or not text[-1]
                events += 1
                if leave_after is not None and events >= leave_after:
                    break
            if leave_after is None:
                response.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RequestError(0, f"the stream ended early: {error or type(error).__name__}") from error
        finally:
            self._drop()
        known = tuple(tokens) if is_complete else ()
        return EngineAnswer("".join(text), reason, known, seconds=time.monotonic() - start, events=events)


def _parse_choice(
    answer: Mapping[str, Any], token_of: Callable[[str], int | None], seconds: float
) -> EngineAnswer:
    """Read the first choice of a response. Raise RequestError if there is none."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise RequestError(200, f"the response has no choices: {str(answer)[:80]}")
    choice = choices[0]
    text = choice.get("text")
    if text is None:
        text = (choice.get("message") or {}).get("content") or ""
    usage = answer.get("usage") or {}
    return EngineAnswer(
        str(text),
        str(choice.get("finish_reason") or ""),
        _with_ids(_parse_tokens(choice.get("logprobs"), token_of), choice.get("token_ids")),
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        seconds,
    )


def _with_ids(tokens: tuple[ReportedToken, ...], ids: Any) -> tuple[ReportedToken, ...]:
    """Identify the tokens by a list of their ids, if the response has one. An end token may have no entry."""
    if not isinstance(ids, list) or not len(tokens) <= len(ids) <= len(tokens) + 1:
        return tokens
    return tuple(replace(item, token=int(id)) for item, id in zip(tokens, ids, strict=False))


def _parse_tokens(logprobs: Any, token_of: Callable[[str], int | None]) -> tuple[ReportedToken, ...]:
    if not isinstance(logprobs, dict):
        return ()

    def identify(entry: Mapping[str, Any]) -> int | None:
        return (
            int(entry["id"])
            if isinstance(entry.get("id"), int)
            else _find_named_token(str(entry.get("token", "")), token_of)
        )

    if isinstance(content := logprobs.get("content"), list):
        return tuple(
            ReportedToken(
                identify(entry),
                str(entry.get("token", "")),
                entry.get("logprob"),
                {
                    token: float(other["logprob"])
                    for other in entry.get("top_logprobs") or ()
                    if (token := identify(other)) is not None and other.get("logprob") is not None
                },
            )
            for entry in content
        )
    names, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(names, list) or not isinstance(values, list):
        return ()
    tops = logprobs.get("top_logprobs") or [None] * len(names)
    return tuple(
        ReportedToken(
            _find_named_token(name, token_of),
            name,
            value,
            {
                token: float(item)
                for other, item in (top or {}).items()
                if (token := _find_named_token(other, token_of)) is not None and item is not None
            },
        )
        for name, value, top in zip(names, values, tops, strict=False)
    )


def _find_named_token(name: str, token_of: Callable[[str], int | None]) -> int | None:
    return int(name.removeprefix(TOKEN_ID)) if name.startswith(TOKEN_ID) else token_of(name)


def _parse_error_message(text: bytes) -> str:
    """Return the message of an error response."""
    try:
        error = json.loads(text).get("error", "")
        message = error.get("message", "") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        message = text.decode(errors="replace")
    return " ".join(message.split())[:200]


def _find_listed_ctx(models: Mapping[str, Any]) -> int | None:
    for entry in models.get("data", []):
        for value in (entry.get("max_model_len"), (entry.get("meta") or {}).get("n_ctx")):
            if isinstance(value, int):
                return value
    return None


def _find_owner(models: Mapping[str, Any]) -> str:
    entries = models.get("data") or [{}]
    return str(entries[0].get("owned_by", "")) if isinstance(entries[0], dict) else ""
