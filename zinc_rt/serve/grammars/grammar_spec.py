"""The grammar parameters of a request under OpenAI's, vLLM's and llama.cpp's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zinc_rt.serve.errors import ServeError

MAX_SAID = 500  # characters of a reason: some quote the whole grammar

Kind = Literal["json_schema", "regex", "choice", "lark", "gbnf"]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """The source of a grammar. `kind` json_schema: the schema as JSON; choice: a JSON list of texts. `param`:
    the request's name for it."""

    kind: Kind
    text: str
    param: str = "grammar"

    def to_error(self, cause: str) -> ServeError:
        """Return a 400 error for an unusable grammar."""
        reason = cause if len(cause) <= MAX_SAID else f"{cause[:MAX_SAID]} ..."
        reason = reason.encode(errors="replace").decode()  # a grammar may quote half a surrogate pair
        return ServeError(400, f"{self.param}: {reason}", param=self.param, code="invalid_grammar")


def find_requested_grammar(body: Mapping[str, Any]) -> GrammarSpec | None:
    """Return the grammar that a body specifies: response_format, vLLM's guided_* and structured_outputs,
    llama.cpp's grammar and json_schema. None: unconstrained.

    Raises ServeError 400 if it is malformed or specified twice.
    """
    specs = [
        spec
        for spec in (_parse_response_format(body.get("response_format")), *_find_named_grammars(body))
        if spec is not None
    ]
    if len(specs) > 1:
        names = " and ".join(spec.param for spec in specs)
        raise ServeError(400, f"{names}: an answer can follow only one of them", param=specs[1].param)
    return specs[0] if specs else None


def _parse_response_format(value: Any) -> GrammarSpec | None:
    if value is None:
        return None
    param = "response_format"
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return _make_schema_spec(value.get("schema", {"type": "object"}), param)  # llama.cpp allows a schema here
    if kind == "json_schema":
        inner = value.get("json_schema")
        if isinstance(inner, Mapping) and isinstance(schema := inner.get("schema"), Mapping | bool):
            return _make_schema_spec(schema, param)
        raise ServeError(400, f"{param}: json_schema: expected an object with a schema", param=param)
    raise ServeError(
        400, f"{param}: type {kind!r:.40}: expected 'text', 'json_object' or 'json_schema'", param=param
    )


def _find_named_grammars(body: Mapping[str, Any]) -> list[GrammarSpec]:
    own = (("guided_json", "json"), ("guided_regex", "regex"), ("guided_choice", "choice"))
    argument = [(name, kind, body[name]) for name, kind in own if body.get(name) is not None]
    for name in ("guided_grammar", "grammar"):
        if body.get(name):
            argument.append((name, "grammar", body[name]))
    if body.get("json_schema") is not None:
        argument.append(("json_schema", "json", body["json_schema"]))
    structured = body.get("structured_outputs")
    if structured is not None and not isinstance(structured, Mapping):
        raise ServeError(400, "structured_outputs: expected an object", param="structured_outputs")
    for kind in ("json", "regex", "choice", "grammar"):
        if structured and structured.get(kind) is not None:
            argument.append((f"structured_outputs.{kind}", kind, structured[kind]))
    return [_make_spec(param, kind, value) for param, kind, value in argument]


def _make_spec(param: str, kind: str, value: Any) -> GrammarSpec:
    if kind == "json":
        return _make_schema_spec(value, param)
    if kind == "choice":
        if isinstance(value, list) and value and all(isinstance(text, str) and text for text in value):
            return GrammarSpec("choice", json.dumps(value, ensure_ascii=False), param)
        raise ServeError(400, f"{param}: expected a list of non-empty strings", param=param)
    if not isinstance(value, str):
        raise ServeError(400, f"{param}: expected a string", param=param)
    if kind == "regex":
        return GrammarSpec("regex", value, param)
    return GrammarSpec("gbnf" if "::=" in value else "lark", value, param)


def _make_schema_spec(value: Any, param: str) -> GrammarSpec:
    if isinstance(value, str):
        return GrammarSpec("json_schema", value, param)
    if isinstance(value, Mapping | bool):
        return GrammarSpec("json_schema", json.dumps(value), param)
    raise ServeError(400, f"{param}: expected a JSON schema", param=param)
