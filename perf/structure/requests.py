"""Requests through the product's scheduler and prefix cache: what a warm prompt and an idle device cost."""

from __future__ import annotations

from zinc_rt.engine.answering import Answering, SubmittedPrompt
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, LabEngine, Measurement, make_prompt
from zinc_rt.sched.sampling import Sampling

SLOTS = 2  # an engine of its own: the scheduler keeps pages


def _answer(front: Answering, prompt: list[int], tokens: int = 1) -> SubmittedPrompt:
    asked = front.submit(prompt, Sampling(max_tokens=tokens, ignore_eos=True))
    while not asked.done:
        front.step()
    return asked


def _open_front(lab: Lab, tier: str) -> tuple[LabEngine, Answering]:
    bench = lab.open_engine(tier, slots=SLOTS)
    return bench, Answering(bench.engine)


def tokens_computed_warm(lab: Lab, tier: str, tokens: int) -> Measurement:
    """Count the tokens that are computed for a prompt that is in the prefix cache."""
    _, front = _open_front(lab, tier)
    prompt = make_prompt(front.engine.model.vocab, tokens)
    cold, warm = _answer(front, prompt), _answer(front, prompt)
    if cold.cached_tokens:
        raise CannotMeasure(f"the first prompt already had {cold.cached_tokens} tokens in the cache")
    if cold.answers[0].token_ids != warm.answers[0].token_ids:
        raise CannotMeasure("the warm prompt gave a different token")
    computed = tokens - warm.cached_tokens
    return Measurement(computed, f"{warm.cached_tokens} of {tokens} tokens came from the prefix cache on {tier}")


def submissions_to_first_token(lab: Lab, tier: str) -> Measurement:
    """Count the submissions from an idle device to the first token of a request of one token."""
    bench, front = _open_front(lab, tier)
    _answer(front, [1], 2)  # which builds the variants
    before = bench.submissions
    _answer(front, [2])
    count = bench.submissions - before
    return Measurement(count, f"{count} on {tier}, through the scheduler")
