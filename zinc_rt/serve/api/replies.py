"""Response bodies in OpenAI's format. The handlers return them, and the OpenAPI document describes them."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


class ErrorDetail(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(TypedDict):
    error: ErrorDetail


class PromptDetails(TypedDict):
    cached_tokens: int


class UsageReply(TypedDict):
    """Token usage. `completion_tokens` counts all choices, including end tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class FindingsPart(TypedDict):
    """The errors that the simulated device has reported: their number, and the first. The answer may be wrong."""

    count: int
    first: str


class OurPart(TypedDict):
    """Fields that OpenAI does not define. `seed` reproduces the answer; `expired`: the deadline ended it."""

    seed: int
    expired: NotRequired[bool]
    findings: NotRequired[FindingsPart]
    tool_parse_error: NotRequired[str]


class TopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[ChatLogprob]
    refusal: None


class ChatMessage(TypedDict):
    role: str
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    token_ids: NotRequired[list[int]]


class ChatCompletion(TypedDict):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageReply
    zinc_rt: OurPart
    prompt_token_ids: NotRequired[list[int]]


class TextLogprobs(TypedDict):
    """Logprobs of completions: lists over tokens. The first token of an echoed prompt has no logprob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str | None
    token_ids: NotRequired[list[int]]
    prompt_token_ids: NotRequired[list[int]]


class TextCompletion(TypedDict):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: UsageReply
    zinc_rt: OurPart


class EmbeddingUsage(TypedDict):
    """The tokens of all inputs, which are counted once: an embedding has no answer."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingItem(TypedDict):
    """The embedding of input `index`: numbers, or the base64 text of little-endian float32."""

    object: str
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    object: str
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class DocumentText(TypedDict):
    text: str


class RankedDocument(TypedDict):
    """A document by its index in the request. `relevance_score`: -1 to 1, the cosine similarity."""

    index: int
    relevance_score: float
    document: NotRequired[DocumentText]


class Ranking(TypedDict):
    id: str
    model: str
    results: list[RankedDocument]
    usage: EmbeddingUsage


class ModelReply(TypedDict):
    """A model. `zinc_rt`: capabilities and backend of a resident model."""

    id: str
    object: str
    created: int
    owned_by: str
    max_model_len: int
    zinc_rt: dict[str, Any]


class ModelList(TypedDict):
    object: str
    data: list[ModelReply]


class ModelDeleted(TypedDict):
    id: str
    object: str
    deleted: bool


class TokenizeReply(TypedDict):
    """llama.cpp's `tokens`, vLLM's `count`, `max_model_len` and `token_strs`."""

    tokens: list[Any]
    count: int
    max_model_len: int
    token_strs: NotRequired[list[str]]


class DetokenizeReply(TypedDict):
    """The decoded text under llama.cpp's and under vLLM's field name."""

    content: str
    prompt: str


class TemplateReply(TypedDict):
    prompt: str


class StatusReply(TypedDict):
    status: str
    reasons: NotRequired[list[str]]
    requests: NotRequired[int]  # that have not been answered
