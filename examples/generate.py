"""Three concurrent prompts, each with the same answer as in a solo run.

python examples/generate.py
"""

from zinc_rt import LLM, Sampling

PROMPTS = ["The capital of France is", "Water boils at", "Once upon a time"]

with LLM("qwen3-q") as llm:  # or the path of a GGUF file
    for completion in llm.generate(PROMPTS, Sampling(max_tokens=12, temperature=0.8, seed=7)):
        print(f"{completion.finish_reason:<8}{completion.text!r}")
