"""Check openai: embeddings as base64 and numbers, of texts and token ids, with fewer dimensions, and errors."""

from __future__ import annotations

import math

import openai
from check_kit import EMBEDDER, KEY, MODEL, URL, check, post, print_result

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
texts = ["One.", "Two words.", "Three more words."]
wanted = [item["embedding"] for item in post("/v1/embeddings", model=EMBEDDER, input=texts)["data"]]
answer = client.embeddings.create(model=EMBEDDER, input=texts)  # asks for base64
check("base64", [item.embedding for item in answer.data] == wanted)
check("usage", answer.usage.prompt_tokens == answer.usage.total_tokens > 3, answer.usage)
check("norm", all(abs(math.hypot(*vector) - 1) < 1e-6 for vector in wanted))
numbers = client.embeddings.create(model=EMBEDDER, input=texts[1], encoding_format="float")
check("numbers", numbers.data[0].embedding == wanted[1])
ids = post("/tokenize", model=EMBEDDER, content=texts[2])["tokens"]
check("token ids", client.embeddings.create(model=EMBEDDER, input=ids).data[0].embedding == wanted[2], ids)
short = client.embeddings.create(model=EMBEDDER, input=texts[0], dimensions=16).data[0].embedding
check("dimensions", len(short) == 16 and abs(math.hypot(*short) - 1) < 1e-6, short)
for model, message in ((MODEL, "generates text"), ("none", "no model")):
    try:
        client.embeddings.create(model=model, input="a")
        seen = ""
    except openai.APIStatusError as error:
        seen = error.message
    check(f"error of {model}", message in seen, seen)
print_result("openai")
