"""Check litellm: chat, stream, text completions, an error response as its own exception."""

from __future__ import annotations

import litellm
from check_kit import KEY, MESSAGES, MODEL, URL, answer_text, check, print_result

base = {"api_base": f"{URL}/v1", "api_key": KEY, "temperature": 0}
wanted = answer_text(8)
answer = litellm.completion(model=f"openai/{MODEL}", messages=MESSAGES, max_tokens=8, **base)
check("completion gives what the server says", answer.choices[0].message.content == wanted, answer)
check("usage", answer.usage.completion_tokens == 8, answer.usage)
chunks = list(litellm.completion(model=f"openai/{MODEL}", messages=MESSAGES, max_tokens=8, stream=True, **base))
check("stream", "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == wanted, chunks)
text = litellm.text_completion(model=f"text-completion-openai/{MODEL}", prompt="One two", max_tokens=4, **base)
check("text completion", isinstance(text.choices[0].text, str), text)
try:
    litellm.completion(model="openai/nobody", messages=MESSAGES, **base)
except litellm.NotFoundError:
    check("an unknown model is its NotFoundError", True)
else:
    check("an unknown model is its NotFoundError", False)
print_result("litellm")
