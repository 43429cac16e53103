"""Three answers to one prompt, which is computed once, with the probabilities of their tokens.

python examples/choices.py
"""

from math import exp

from zinc_rt import LLM, Sampling

with LLM("qwen35moe-q") as llm:
    for choice in llm.generate(
        ["The weather is"], Sampling(n=3, max_tokens=4, temperature=1.2, seed=3, logprobs=2)
    ):
        print(f"choice {choice.index}: {choice.text!r}")
        for token in choice.logprobs:
            others = ", ".join(f"{id} {exp(logprob):.1%}" for id, logprob in token.top)
            print(f"    {token.token_id:>4} {exp(token.logprob):6.1%}    likeliest: {others}")
