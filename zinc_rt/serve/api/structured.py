"""Convert the structured-output fields of a body to the grammar that constrains the tokens."""

from __future__ import annotations

import asyncio

from zinc_rt.host.errors import UsageError
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.api.schema import STRUCTURE, SamplingBody
from zinc_rt.serve.api.tool_use import ToolUse
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.table import required_calls, strict_calls
from zinc_rt.serve.grammars.grammar import Grammar, GrammarCompiler
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec, find_requested_grammar


async def make_text_grammar(body: SamplingBody, model: ServedModel, tenant: str) -> Grammar | None:
    """Return the grammar of a completion in its initial state, or None if the output is unconstrained. Raises
    ServeError 400."""
    spec = find_requested_grammar(body.model_dump(include=set(STRUCTURE), exclude_none=True))
    return None if spec is None else await _find_compiler(model, spec).compile_for_tenant(spec, tenant=tenant)


async def make_chat_grammar(
    body: SamplingBody, model: ServedModel, tools: ToolUse, prompt: str, tenant: str
) -> Grammar | None:
    """Return the grammar of a chat: its response format, or its required tool calls.

    The grammar starts after reasoning text if the prompt and the model's format allow reasoning. Raises
    ServeError 400.
    """
    spec = find_requested_grammar(body.model_dump(include=set(STRUCTURE), exclude_none=True))
    format = model.format
    if spec is not None and tools.must:
        raise ServeError(
            400, f"{spec.param} and tool_choice: an answer can follow only one of them", param="tool_choice"
        )
    if spec is None:
        spec = await asyncio.to_thread(_make_call_grammar, format, tools, model.core.require_tokenizer("a chat"))
    if spec is None:
        return None
    compiler = _find_compiler(model, spec)
    if format.headers is None:
        after, opens = _find_reasoning_tokens(format, compiler.tokenizer, prompt)
    else:  # forced calls include their headers, and a continued message has one already
        written = spec.param == "tools" or format.headers.find_open_header(prompt)[1]
        after, opens = "" if written else format.headers.answer, ""
    return await compiler.compile_for_tenant(spec, tenant=tenant, after=after, opens=opens)


def _make_call_grammar(format: Format, tools: ToolUse, tokenizer: Tokenizer) -> GrammarSpec | None:
    if tools.must:
        chosen = {name: tools.schemas[name] for name in tools.must}
        return required_calls(format, tokenizer, chosen, many=tools.many)
    return strict_calls(format, tokenizer, tools.schemas) if tools.strict else None


def _find_reasoning_tokens(format: Format, tokenizer: Tokenizer, prompt: str) -> tuple[str, str]:
    """Return the tokens that end the reasoning that the grammar waits for, and the tokens that may begin it."""
    if format.reasoning is None:
        return "", ""
    opening, closing = format.reasoning
    if format.opens_reasoning(prompt):
        return closing, ""
    switched_off = prompt.rstrip().endswith(closing)  # the prompt has it behind it
    may_open = not switched_off and tokenizer.added_id(opening) is not None
    return (closing, opening) if may_open else ("", "")


def _find_compiler(model: ServedModel, spec: GrammarSpec) -> GrammarCompiler:
    try:
        return model.grammars
    except UsageError as error:
        raise ServeError(400, error.message, param=spec.param) from error
