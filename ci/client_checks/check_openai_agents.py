"""Check OpenAI's Agents SDK, over the Responses API and over chat completions: an answer, a stream, a tool."""

from __future__ import annotations

import asyncio
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from check_kit import MESSAGES, MODEL, URL, check, print_result
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
CALLED: list[int] = []


class City(BaseModel):
    """An answer that random weights can complete."""

    city: Literal["Bonn"]


@function_tool
def add_one(number: bool) -> str:
    """Add one to a number."""
    CALLED.append(int(number))
    return str(int(number) + 1)


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    question, greedy = MESSAGES[0]["content"], ModelSettings(temperature=0, max_tokens=400)
    for model in (OpenAIResponsesModel(MODEL, client), OpenAIChatCompletionsModel(MODEL, client)):
        name = type(model).__name__
        plain = Agent(name="plain", model=model, model_settings=greedy, output_type=City)
        result = await Runner.run(plain, question)
        check(f"{name}: an answer of a type", result.final_output == City(city="Bonn"), result.final_output)
        streamed = Runner.run_streamed(plain, question)
        events = [event async for event in streamed.stream_events()]
        check(f"{name}: stream", streamed.final_output == City(city="Bonn") and len(events) > 3, streamed)
        CALLED.clear()
        forced = Agent(
            name="forced",
            model=model,
            tools=[add_one],
            model_settings=ModelSettings(temperature=0, max_tokens=400, tool_choice="required"),
            tool_use_behavior="stop_on_first_tool",
        )
        result = await Runner.run(forced, question)
        check(f"{name}: a tool is called", len(CALLED) >= 1 and result.final_output in ("1", "2"), result)


asyncio.run(main())
print_result("openai-agents")
