"""Check langchain-openai: invoke, stream, batch, async, logprobs, tools, structured output, completions,
embeddings."""

from __future__ import annotations

import asyncio

from check_kit import EMBEDDER, KEY, MODEL, URL, answer_text, check, post, print_result
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field


class City(BaseModel):
    """A city."""

    name: str = Field(max_length=12)
    big: bool


base = {"base_url": f"{URL}/v1", "api_key": KEY, "model": MODEL, "temperature": 0}
chat = ChatOpenAI(max_tokens=12, **base)
wanted = answer_text(12)
answer = chat.invoke("Say something.")
check("invoke gives what the server says", answer.content == wanted, answer.content)
check("usage", answer.usage_metadata["output_tokens"] == 12, answer.usage_metadata)
pieces = [piece.content for piece in chat.stream("Say something.")]
check("stream", "".join(map(str, pieces)) == wanted and len(pieces) > 3, pieces)
check("batch", [item.content for item in chat.batch(["Say something."] * 3)] == [wanted] * 3)
check("ainvoke", asyncio.run(chat.ainvoke("Say something.")).content == wanted)
logprobs = chat.bind(logprobs=True, top_logprobs=2).invoke("Say something.").response_metadata["logprobs"]
check("logprobs", len(logprobs["content"]) == 12 and len(logprobs["content"][0]["top_logprobs"]) == 2, logprobs)
check("completions", isinstance(OpenAI(max_tokens=4, **base).invoke("One two"), str))
wide = ChatOpenAI(max_tokens=400, **base)
for method in ("json_schema", "function_calling"):
    city = wide.with_structured_output(City, method=method).invoke("Name a city.")
    check(f"structured output by {method}", isinstance(city, City), city)
calls = wide.bind_tools([City], tool_choice="any").invoke("Name a city.").tool_calls
check("tools", [call["name"] for call in calls] == ["City"], calls)
embedder = OpenAIEmbeddings(
    base_url=f"{URL}/v1", api_key=KEY, model=EMBEDDER, check_embedding_ctx_length=False, chunk_size=3
)
texts = ["One.", "Two words.", "Three more words.", "Four.", "Five."]
vectors = [item["embedding"] for item in post("/v1/embeddings", model=EMBEDDER, input=texts)["data"]]
check("embeddings of documents", embedder.embed_documents(texts) == vectors and len(vectors[0]) == 64)
check("embedding of a query", embedder.embed_query(texts[2]) == vectors[2])
check("aembed", asyncio.run(embedder.aembed_query(texts[1])) == vectors[1])
print_result("langchain-openai")
