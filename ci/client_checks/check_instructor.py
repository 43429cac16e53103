"""Check instructor: a pydantic model as a JSON schema, as a tool, as JSON."""

from __future__ import annotations

import instructor
from check_kit import KEY, MESSAGES, MODEL, URL, check, print_result
from openai import OpenAI
from pydantic import BaseModel, Field


class City(BaseModel):
    name: str = Field(max_length=12)
    big: bool


for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
    client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key=KEY), mode=mode)
    city = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_model=City, max_tokens=400, max_retries=1, temperature=0
    )
    check(mode.name, isinstance(city, City), city)
print_result("instructor")
