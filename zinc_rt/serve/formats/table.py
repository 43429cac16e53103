"""The table of formats, ordered from the most to the least specific template pattern."""

from __future__ import annotations

from zinc_rt.host.errors import UsageError
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Format, Tools
from zinc_rt.serve.formats.gemma4 import GEMMA4
from zinc_rt.serve.formats.harmony import HARMONY
from zinc_rt.serve.formats.json_calls import demand_lines, find_json_arguments, one_json_call
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
    find_arguments=find_json_arguments,
    demand=demand_lines(CALL[1]),
    between="\n",
)
NO_OBJECT = r"/\s*[^{\s](?s:.*)/"  # an answer that does not begin as a call
FORMATS: tuple[Format, ...] = (
    HARMONY,
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
    """Return the format of a chat template; plain if no pattern matches."""
    return next(format for format in FORMATS if format.fits(template or ""))


def format_by_name(name: str) -> Format:
    """Return a format by its configuration name. Raises UsageError."""
    known = next((format for format in FORMATS if format.name == name), None)
    if known is None:
        raise UsageError(f"unknown format {name!r}", next=f"one of {', '.join(f.name for f in FORMATS)}")
    return known


def required_calls(format: Format, tokenizer: Tokenizer, tools: Tools, *, many: bool) -> GrammarSpec:
    """Return a grammar in the family's syntax that forces one or more calls of the tools. Raises ServeError
    400 if the format has no calls."""
    lark = Lark(tokenizer)
    mark, inside = _call(format, lark, tools, many=many)
    call = lark.rule(f"{mark} {inside}")
    several = many and format.between is not None
    start = f"{call} ({lark.text(format.between or '')} {call})*" if several else call
    return GrammarSpec("lark", lark.source(start), "tools")


def strict_calls(format: Format, tokenizer: Tokenizer, tools: Tools) -> GrammarSpec:
    """Return a grammar for any text in which every call names a tool and matches its schema. Raises
    ServeError 400 if the format has no calls."""
    lark = Lark(tokenizer)
    if format.allow is not None:
        return GrammarSpec("lark", lark.source(format.allow(lark, tools)), "tools")
    _, inside = _call(format, lark, tools, many=True)
    assert format.call is not None
    if format.bare:
        return GrammarSpec("lark", lark.source(f"{inside} | {lark.rule(NO_OBJECT)}?"), "tools")
    start = f"({lark.until(format.call[0])} {inside})* {lark.free(without=format.call[0])}"
    return GrammarSpec("lark", lark.source(start), "tools")


def _call(format: Format, lark: Lark, tools: Tools, *, many: bool) -> tuple[str, str]:
    """Return the start marker of a call, and the rule for the text after it."""
    if format.demand is None or format.call is None:
        raise ServeError(
            400, f"tool_choice: this model's format, {format.name}, has no tool calls", param="tool_choice"
        )
    try:
        inside = format.demand(lark, tools, many)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:  # a schema is what its sender wrote
        raise ServeError(400, f"tools: invalid JSON schema of parameters: {error}", param="tools") from None
    return "" if format.bare else lark.mark(format.call[0]), inside
