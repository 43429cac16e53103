"""Check Anthropic's SDK: messages, streams, tools, the count of tokens, an error response as its own exception."""

from __future__ import annotations

import anthropic
from check_kit import MESSAGES, MODEL, URL, answer_text, check, print_result

GREEDY = {"temperature": 0}  # no parameter of the SDK from 2.0 on
client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
wanted = answer_text(8)
answer = client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body=GREEDY)
check("a message is the chat's answer", answer.content[0].text == wanted, answer)
check("usage", answer.usage.output_tokens == 8, answer.usage)
with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=8, extra_body=GREEDY) as stream:
    text, final = "".join(stream.text_stream), stream.get_final_message()
check("stream", (text, final.stop_reason) == (wanted, "max_tokens"), final)
count = client.messages.count_tokens(model=MODEL, messages=MESSAGES)
check(
    "count_tokens", count.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
)
schema = {"type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"]}
weather = {"name": "weather", "input_schema": {**schema, "additionalProperties": False}}
for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
    with client.messages.stream(
        model=MODEL, messages=MESSAGES, max_tokens=400, tools=[weather], tool_choice=choice, extra_body=GREEDY
    ) as stream:
        calls = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    check(f"tool choice {choice['type']}", [call.input for call in calls][:1] == [{"city": "Bonn"}], calls)
turn = [
    *MESSAGES,
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bonn"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}]},
]
result = client.messages.create(model=MODEL, messages=turn, tools=[weather], max_tokens=4)
check("a tool's result", result.stop_reason in ("max_tokens", "end_turn"), result)
try:
    client.messages.create(model="nobody", messages=MESSAGES, max_tokens=4)
except anthropic.NotFoundError as error:
    check("an unknown model is its NotFoundError", "no model" in error.message, error.message)
else:
    check("an unknown model is its NotFoundError", False)
print_result("anthropic")
