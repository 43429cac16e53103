"""Request bodies in OpenAI's format, with vLLM's and llama.cpp's names for extensions.

Every value is checked before any computation. An unknown field is rejected, and the error suggests the
nearest known name. `strict_parameters: false` ignores unknown fields instead.
"""

from __future__ import annotations

import difflib
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from zinc_rt.sched.sampling import (
    LEAST_REPETITION,
    MAX_BIASES,
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_STOP_BYTES,
    MAX_STOP_TOKENS,
    MAX_STOPS,
    MAX_TOP_K,
)
from zinc_rt.sched.speculation import MOST_DRAFTS

MAX_TOOLS = 128
IGNORED = "ignored"  # the description of a parameter that is accepted and has no effect


def _to_integer(value: Any) -> Any:
    """Return an integral float as an integer. JSON has one number type: 3.0 is the integer 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_to_integer)]
Text = Annotated[str, StringConstraints(min_length=1)]
Count = Annotated[Integer, Field(ge=0, le=(1 << 31) - 1)]
Tokens = Annotated[list[Count], Field(min_length=1)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=MAX_STOP_BYTES)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Name = Annotated[str, StringConstraints(max_length=256)]


STRICT = ContextVar("strict_parameters", default=True)  # the server's word, where a body has none


class Body(BaseModel):
    """A request body that rejects undeclared fields by name."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        strict = data.get("strict_parameters", STRICT.get()) is not False
        known = {name: value for name, value in data.items() if name in cls.model_fields}
        if strict and len(known) != len(data):
            name = next(name for name in data if name not in cls.model_fields)
            near = difflib.get_close_matches(name, cls.model_fields, 1)
            hint = f"did you mean {near[0]}?" if near else "strict_parameters: false ignores unknown fields"
            printable = name[:64].encode(errors="backslashreplace").decode()
            raise PydanticCustomError(
                "unknown_parameter", "unknown parameter {name}: {hint}", {"name": printable, "hint": hint}
            )
        return known


class StreamOptions(Body):
    """`include_usage`: add a last chunk with the usage. `continuous_usage_stats`: add the usage to every
    chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # OpenAI's; nothing is padded here


class ResponseFormat(BaseModel):
    """OpenAI's response formats; llama.cpp's `schema` is accepted with json_object."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


STRUCTURE = (  # what says how an answer has to look
    "response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
    "grammar", "json_schema",
)  # fmt: skip


class SamplingBody(Body):
    """The parameters that both kinds of completion accept. Without `model`, the first resident model is used."""

    model: Name | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Integer | None = Field(None, ge=-1, le=MAX_TOP_K, description="0 and -1: off")
    min_p: float | None = Field(None, ge=0, le=1)
    seed: Integer | None = Field(None, ge=0, le=(1 << 64) - 1)
    n: Integer | None = Field(None, ge=1, le=MAX_CHOICES)
    min_tokens: Count | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[Count], Field(max_length=MAX_STOP_TOKENS)] | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=LEAST_REPETITION, le=2)
    logit_bias: dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")], Bias] | None = Field(
        None, max_length=MAX_BIASES
    )
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | str | bool | None = Field(None, description="vLLM's: a JSON schema")
    guided_regex: str | None = None
    guided_choice: list[Text] | None = Field(None, min_length=1)
    guided_grammar: str | None = Field(None, description="vLLM's: Lark, or GBNF where it has ::=")
    structured_outputs: dict[str, Any] | None = Field(None, description="vLLM's newer names for guided decoding")
    grammar: str | None = Field(None, description="llama.cpp's: GBNF")
    json_schema: dict[str, Any] | None = Field(None, description="llama.cpp's")
    cache_salt: Name | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = Field(None, description="llama.cpp's: chunks while the prompt is computed")
    return_token_ids: bool | None = Field(None, description="vLLM's: the answer's token ids beside its text")
    session_id: Name | None = None
    priority: Literal["interactive", "standard", "batch"] | None = Field(None, description="at most the tenant's")
    timeout_ms: Integer | None = Field(None, ge=1, le=86_400_000)
    fail_fast: bool | None = None
    draft_tokens: Integer | None = Field(
        None, ge=0, le=MOST_DRAFTS, description="the most draft tokens in a step, at most the model's; 0: none"
    )
    deterministic_required: bool | None = None
    strict_parameters: bool | None = None
    user: Any = Field(None, description=IGNORED)
    store: Any = Field(None, description=IGNORED)
    metadata: Any = Field(None, description=IGNORED)
    service_tier: Any = Field(None, description=IGNORED)
    prompt_cache_key: Any = Field(None, description=IGNORED)
    prompt_cache_retention: Any = Field(None, description=IGNORED)
    safety_identifier: Any = Field(None, description=IGNORED)
    cache_prompt: Any = Field(None, description=IGNORED)


class CompletionBody(SamplingBody):
    """The body of POST /v1/completions. `prompt`: text or token ids, or a list of either."""

    prompt: Text | Annotated[list[Count] | list[Text] | list[Tokens], Field(min_length=1)]
    max_tokens: Count | None = None
    echo: bool | None = None
    parse_special: bool | None = Field(
        None, description="true: the texts of control tokens in a prompt are these tokens; else they are text"
    )
    logprobs: Integer | None = Field(None, ge=0, le=MAX_LOGPROBS)
    best_of: Integer | None = Field(None, ge=1, le=MAX_CHOICES)
    suffix: str | None = Field(None, description="the text after the answer; the model fills the gap between")


class TextPart(BaseModel):
    """A part of a message. Images, audio and files are rejected; the server never fetches a URL."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of a conversation. Other fields are passed to the template."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None


class FunctionDefinition(BaseModel):
    """A function that the model may call. `parameters`: the JSON schema of its arguments."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(BaseModel):
    """An entry of a request's `tools`."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(Body):
    """The function name of a tool choice."""

    name: Name


class NamedToolChoice(Body):
    """A tool choice that requires a call of the named function."""

    type: Literal["function"]
    function: FunctionName


class ChatBody(SamplingBody):
    """The body of POST /v1/chat/completions. `chat_template_kwargs` are passed to the template."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: Integer | None = Field(None, ge=1, le=(1 << 31) - 1)
    max_completion_tokens: Integer | None = Field(None, ge=1, le=(1 << 31) - 1)
    logprobs: bool | None = None
    top_logprobs: Integer | None = Field(None, ge=0, le=MAX_LOGPROBS)
    tools: Annotated[list[ToolDefinition], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = Field(None, description="false: the first call ends the answer")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="for the template; none: no reasoning, if the template can switch it off"
    )
    continue_final_message: bool | None = Field(None, description="vLLM's: go on with the last message")
    modalities: list[Literal["text"]] | None = None
    verbosity: Any = Field(None, description=IGNORED)
    prediction: Any = Field(None, description=IGNORED)
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Body):
    """The body of POST /tokenize: llama.cpp's `content`, or vLLM's `prompt` or `messages`."""

    model: Name | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    strict_parameters: bool | None = None


class DetokenizeBody(Body):
    """The body of POST /detokenize."""

    model: Name | None = None
    tokens: list[Count]
    strict_parameters: bool | None = None


class TemplateBody(Body):
    """The body of POST /apply-template."""

    model: Name | None = None
    messages: list[Message] = Field(min_length=1)
    add_generation_prompt: bool | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    strict_parameters: bool | None = None


class EmbeddingsBody(Body):
    """The body of POST /v1/embeddings."""

    model: Name | None = None
    input: str | list[Count] | list[str] | list[list[Count]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Integer | None = Field(None, ge=1)
    strict_parameters: bool | None = None
    user: Any = Field(None, description=IGNORED)


class DocumentBody(Body):
    """A document with its text in a field."""

    text: str


class RerankBody(Body):
    """The body of POST /v1/rerank, in the format of Jina and vLLM."""

    model: Name | None = None
    query: Text
    documents: list[str | DocumentBody] = Field(min_length=1)
    top_n: Integer | None = Field(None, ge=1)
    return_documents: bool | None = None
    strict_parameters: bool | None = None
    user: Any = Field(None, description=IGNORED)


class LoadBody(Body):
    """The body of POST /v1/models/load: the id of a configured model."""

    model: Name
