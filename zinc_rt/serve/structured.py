"""What an answer has to look like, from a body to the grammar that its tokens are held to."""

from __future__ import annotations

from zinc_rt.errors import UsageError
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.grammar import Grammar
from zinc_rt.serve.grammar_spec import grammar_asked
from zinc_rt.serve.schema import STRUCTURE, SamplingBody
from zinc_rt.serve.served_model import ServedModel


async def grammar_of(
    body: SamplingBody, model: ServedModel, format: Format | None = None, prompt: str = ""
) -> Grammar | None:
    """The grammar that a body asks for, at its beginning; None where anything goes. Of a chat, `format` and
    `prompt` say what reasoning may come before. Raises ServeError 400."""
    spec = grammar_asked(body.model_dump(include=set(STRUCTURE), exclude_none=True))
    if spec is None:
        return None
    try:
        compiler = model.grammars
    except UsageError as error:
        raise ServeError(400, error.message, param=spec.param) from error
    after, opens = "", ""
    if format is not None and format.reasoning is not None:
        opening, closing = format.reasoning
        if format.opens_reasoning(prompt):
            after = closing
        elif compiler.tokenizer.added_id(opening) is not None:
            after, opens = closing, opening
    return await compiler.compile_in_time(spec, after=after, opens=opens)
