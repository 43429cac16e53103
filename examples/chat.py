"""A conversation of two turns, with the model's own template. The second turn hits the prefix cache of the first.

python examples/chat.py
"""

from zinc_rt import LLM, Sampling

messages = []
with LLM("qwen3-q") as llm:
    for question in ("Name three colours of the rainbow, and say where each of them lies.", "And a fourth?"):
        messages.append({"role": "user", "content": question})
        (answer,) = llm.chat(messages, Sampling(max_tokens=24, min_tokens=8))
        messages.append({"role": "assistant", "content": answer.text})
        print(f"{answer.text!r}: {answer.cached_tokens} of {answer.prompt_tokens} tokens came from the cache")
