"""All formats, those first whose sign in a template is the most particular."""

from __future__ import annotations

from zinc_rt.host.errors import UsageError
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Format, Tools
from zinc_rt.serve.formats.gemma4 import GEMMA4
from zinc_rt.serve.formats.json_calls import demand_lines, one_json_call
from zinc_rt.serve.formats.lark import Lark
from zinc_rt.serve.formats.llama3_json import LLAMA3_JSON
from zinc_rt.serve.formats.mistral import MISTRAL, MISTRAL_ARGS
from zinc_rt.serve.formats.qwen3 import CALL, QWEN3, THINK, calls_in_json
from zinc_rt.serve.formats.qwen3_xml import QWEN3_XML
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec

# No reasoning, no calls: the answer is the text that the model wrote.
PLAIN = Format("plain", fits=lambda template: True)
# <think> reasoning </think> and no known calls: DeepSeek R1's distilled models and others.
REASONING_ONLY = Format("think", fits=lambda template: THINK[1] in template, reasoning=THINK)
# Hermes 2 Pro and 3, Qwen 2.5: <tool_call> {"name", "arguments"} </tool_call>, no reasoning, after
# https://github.com/NousResearch/Hermes-Function-Calling.
HERMES = Format(
    "hermes",
    fits=calls_in_json,
    call=CALL,
    read=one_json_call,
    demand=demand_lines(CALL[1]),
    between="\n",
)
NO_OBJECT = r"/\s*[^{\s](?s:.*)/"  # an answer that does not begin as a call
FORMATS: tuple[Format, ...] = (
    GEMMA4,
    QWEN3_XML,
    QWEN3,
    MISTRAL_ARGS,
    MISTRAL,
    LLAMA3_JSON,
    HERMES,
    REASONING_ONLY,
    PLAIN,
)


def choose(template: str | None) -> Format:
    """The format of a chat template's text; plain where nothing in it is known."""
    return next(format for format in FORMATS if format.fits(template or ""))


def named(name: str) -> Format:
    """The format of a configuration. Raises UsageError."""
    found = next((format for format in FORMATS if format.name == name), None)
    if found is None:
        raise UsageError(f"no format is called {name!r}", next=f"one of {', '.join(f.name for f in FORMATS)}")
    return found


def demanded_calls(format: Format, tokenizer: Tokenizer, tools: Tools, *, many: bool) -> GrammarSpec:
    """A grammar in the family's own syntax for an answer that is a call of one of the tools, or several. Raises
    ServeError 400 where the format has no calls."""
    lark = Lark(tokenizer)
    mark, inside = _call(format, lark, tools, many=many)
    call = lark.rule(f"{mark} {inside}")
    several = many and format.between is not None
    start = f"{call} ({lark.text(format.between or '')} {call})*" if several else call
    return GrammarSpec("lark", lark.source(start), "tools")


def strict_calls(format: Format, tokenizer: Tokenizer, tools: Tools) -> GrammarSpec:
    """A grammar for any text in which every call is one of the tools, as its schema has it. Raises ServeError 400
    where the format has no calls."""
    lark = Lark(tokenizer)
    _, inside = _call(format, lark, tools, many=True)
    assert format.call is not None
    if format.bare:
        return GrammarSpec("lark", lark.source(f"{inside} | {lark.rule(NO_OBJECT)}?"), "tools")
    start = f"({lark.until(format.call[0])} {inside})* {lark.free(without=format.call[0])}"
    return GrammarSpec("lark", lark.source(start), "tools")


def _call(format: Format, lark: Lark, tools: Tools, *, many: bool) -> tuple[str, str]:
    """The mark in front of a call, and what stands behind it."""
    if format.demand is None or format.call is None:
        raise ServeError(
            400, f"tool_choice: this model's format, {format.name}, has no tool calls", param="tool_choice"
        )
    try:
        inside = format.demand(lark, tools, many)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:  # a schema is what its sender wrote
        raise ServeError(400, f"tools: a schema of parameters is malformed: {error}", param="tools") from None
    return "" if format.bare else lark.mark(format.call[0]), inside
