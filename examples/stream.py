"""A streamed answer that ends at a stop text.

python examples/stream.py
"""

from zinc_rt import LLM, Sampling

with LLM("gemma4-q") as llm:
    for piece in llm.stream("The cat", Sampling(max_tokens=40, stop="ers")):
        print(piece.text, end="", flush=True)
        if piece.finish_reason:
            print(f"\nended by {piece.finish_reason}")
