"""Start the answer to a conversation: the common part of chat completions, messages and responses."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.asking import RequestOrigin, find_model, make_ask, parse_sampling
from zinc_rt.serve.api.prompts import find_tokenizer, make_chat_prompt
from zinc_rt.serve.api.schema import ChatBody
from zinc_rt.serve.api.structured import make_chat_grammar
from zinc_rt.serve.api.text import TokenReader
from zinc_rt.serve.api.tool_use import parse_tool_use
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.formats.answer_text import AnswerText


async def make_chat_answers(
    server: InferenceServer, body: ChatBody, by: RequestOrigin, *, stream_calls: bool
) -> Answers:
    """Return the answers of a chat, not yet begun. `stream_calls`: deliver the arguments of calls while they are
    made. Raises ServeError if the request is rejected."""
    model = find_model(server, body.model)
    core, sampling = model.core, parse_sampling(body, model)
    tools = parse_tool_use(body)
    variables = dict(body.chat_template_kwargs or {})
    if tools.definitions:
        variables["tools"] = tools.definitions
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
        variables.setdefault("enable_thinking", body.reasoning_effort != "none")
    prompt = await make_chat_prompt(model, body.messages, variables, continued=bool(body.continue_final_message))
    tokenizer = find_tokenizer(model)
    grammar = await make_chat_grammar(body, model, tools, prompt.text, by.caller.tenant)

    def make_reader() -> TokenReader:
        return AnswerText(
            tokenizer,
            model.format,
            sampling.stop,
            tools=tools.schemas,
            prompt=prompt.text,
            silent=core.end_ids,
            one_call=not tools.many,
            stream_calls=stream_calls,
        )

    ask = replace(make_ask(body, model, prompt.tokens, sampling, by, "messages"), grammar=grammar)
    return Answers(model, [ask], make_reader)
