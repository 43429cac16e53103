"""OpenAI's own API, cut to the paths that are served here: what its clients may send, what they read of answers.

Written after OpenAI's published OpenAPI document: names, types and ranges of the parameters that are taken here,
and of answers the fields that its client libraries declare as required. Ranges that are narrower here are those.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}


def one_of_schema(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def number_schema(minimum: float, maximum: float) -> Schema:
    return one_of_schema({"type": "number", "minimum": minimum, "maximum": maximum}, {"type": "null"})


def object_schema(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), **more}


def answer_schema(schema: Schema, *, is_streamed: bool = False) -> Schema:
    content: Schema = {"application/json": {"schema": schema}}
    if is_streamed:
        content["text/event-stream"] = {"schema": object_schema({"data": STRING})}
    return {"200": {"description": "the answer", "content": content}, "4XX": REFUSAL}


ERROR = object_schema({
    "error": object_schema({
        "message": STRING,
        "type": STRING,
        "param": one_of_schema(STRING, {"type": "null"}),
        "code": one_of_schema(STRING, {"type": "null"}),
    })
})  # fmt: skip
REFUSAL: Schema = {"description": "refused", "content": {"application/json": {"schema": ERROR}}}
USAGE = object_schema(dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), INTEGER))
FINISH = {"enum": ["stop", "length", "tool_calls", "content_filter", "function_call"]}

SAMPLING: Schema = {
    "temperature": number_schema(0, 2),
    "top_p": number_schema(0.01, 1),
    "presence_penalty": number_schema(-2, 2),
    "frequency_penalty": number_schema(-2, 2),
    "n": one_of_schema({"type": "integer", "minimum": 1, "maximum": 2}, {"type": "null"}),
    "seed": one_of_schema({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, {"type": "null"}),
    "stop": one_of_schema(
        {"type": "string", "minLength": 1, "maxLength": 16},
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 16}, "maxItems": 4},
        {"type": "null"},
    ),
    "logit_bias": one_of_schema(
        {"type": "object", "propertyNames": {"pattern": "^[1-9][0-9]?$"},
         "additionalProperties": {"type": "integer", "minimum": -100, "maximum": 100}, "maxProperties": 8},
        {"type": "null"},
    ),
    "stream": one_of_schema({"type": "boolean"}, {"type": "null"}),
    "user": STRING,
}  # fmt: skip
TEXT_PART = object_schema({"type": {"const": "text"}, "text": {"type": "string", "maxLength": 16}})
CONTENT = one_of_schema(
    {"type": "string", "maxLength": 16}, {"type": "array", "items": TEXT_PART, "minItems": 1, "maxItems": 2}
)
MESSAGE = one_of_schema(
    *(
        object_schema({"role": {"const": role}, "content": CONTENT})
        for role in ("system", "developer", "user", "assistant")
    ),
    object_schema(
        {"role": {"const": "tool"}, "content": CONTENT, "tool_call_id": {"type": "string", "maxLength": 8}}
    ),
)
TOOL = object_schema({
    "type": {"const": "function"},
    "function": object_schema({"name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,16}$"}},
    {"description": STRING}),
})  # fmt: skip
CHAT = object_schema(
    {
        "model": {"const": "qwen3-q"},
        "messages": {"type": "array", "items": MESSAGE, "minItems": 1, "maxItems": 3},
        "max_completion_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
    },
    {
        **SAMPLING,
        "logprobs": {"const": True},
        "top_logprobs": {"const": 2},
        "tools": {"type": "array", "items": TOOL, "maxItems": 1},
        "parallel_tool_calls": {"type": "boolean"},
        "response_format": one_of_schema(
            object_schema({"type": {"const": "text"}}), object_schema({"type": {"const": "json_object"}})
        ),
        "store": one_of_schema({"type": "boolean"}, {"type": "null"}),
        "metadata": one_of_schema(
            {"type": "object", "additionalProperties": STRING, "maxProperties": 4}, {"type": "null"}
        ),
    },
    dependentRequired={"top_logprobs": ["logprobs"]},
    additionalProperties=False,
)
TOKEN = object_schema(
    {"token": STRING, "logprob": {"type": "number"}, "bytes": {"type": "array", "items": INTEGER}}
)
CHAT_ANSWER = object_schema({
    "id": STRING,
    "object": {"const": "chat.completion"},
    "created": INTEGER,
    "model": STRING,
    "choices": {"type": "array", "minItems": 1, "items": object_schema({
        "index": INTEGER,
        "finish_reason": FINISH,
        "message": object_schema({
            "role": {"const": "assistant"},
            "content": one_of_schema(STRING, {"type": "null"}),
            "refusal": {"type": "null"},
        }),
        "logprobs": one_of_schema(object_schema({"content": {"type": "array", "items": TOKEN}}), {"type": "null"}),
    })},
    "usage": USAGE,
})  # fmt: skip
PROMPT = one_of_schema(
    {"type": "string", "minLength": 1, "maxLength": 4},
    {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 4}, "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 200}, "minItems": 1, "maxItems": 8},
)
COMPLETION = object_schema(
    {
        "model": {"const": "qwen3-q"},
        "prompt": PROMPT,
        "max_tokens": {"type": "integer", "minimum": 0, "maximum": 4},
    },
    {**SAMPLING, "echo": {"type": "boolean"}, "logprobs": {"type": "integer", "minimum": 0, "maximum": 5}},
    additionalProperties=False,
)
COMPLETION_ANSWER = object_schema({
    "id": STRING,
    "object": {"const": "text_completion"},
    "created": INTEGER,
    "model": STRING,
    "choices": {"type": "array", "minItems": 1, "items": object_schema({
        "index": INTEGER,
        "text": STRING,
        "finish_reason": FINISH,
        "logprobs": one_of_schema({"type": "object"}, {"type": "null"}),
    })},
    "usage": USAGE,
})  # fmt: skip
MODEL = object_schema({"id": STRING, "object": {"const": "model"}, "created": INTEGER, "owned_by": STRING})
MODELS = object_schema({"object": {"const": "list"}, "data": {"type": "array", "items": MODEL, "minItems": 1}})


def post_operation(body: Schema, schema: Schema) -> Schema:
    content = {"application/json": {"schema": body}}
    return {
        "post": {
            "requestBody": {"required": True, "content": content},
            "responses": answer_schema(schema, is_streamed=True),
        }
    }


ID: Schema = {"name": "model", "in": "path", "required": True, "schema": {"enum": ["qwen3-q", "gpt-9"]}}
DOCUMENT: Schema = {
    "openapi": "3.1.0",
    "info": {"title": "OpenAI's API, cut", "version": "2.3.0"},
    "paths": {
        "/v1/chat/completions": post_operation(CHAT, CHAT_ANSWER),
        "/v1/completions": post_operation(COMPLETION, COMPLETION_ANSWER),
        "/v1/models": {"get": {"responses": answer_schema(MODELS)}},
        "/v1/models/{model}": {"get": {"parameters": [ID], "responses": answer_schema(MODEL)}},
    },
}
