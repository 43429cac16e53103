"""Concurrent sequences: each has the bits of its solo run, independent of the others and of the placement of its
pages.
"""

from __future__ import annotations

from collections import abc
from itertools import pairwise

import numpy as np

from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, Measurement, make_prompt


def require_varying(values: np.ndarray) -> None:
    """Require values that vary, because equal constant values prove nothing."""
    if not values.size or not np.isfinite(values).all() or float(np.ptp(values)) == 0.0:
        raise CannotMeasure("the logits are constant or not finite: comparing them would prove nothing")


def count_differing(rows: abc.Sequence[np.ndarray], others: abc.Sequence[np.ndarray]) -> int:
    """Count values with other bits, f32."""
    return sum(int((a.view(np.uint32) != b.view(np.uint32)).sum()) for a, b in zip(rows, others, strict=True))


def values_differing_in_a_batch(lab: Lab, tier: str, slots: int) -> Measurement:
    """Compare sequences of different lengths and positions, advanced together and alone."""
    bench = lab.open_engine(tier, slots=slots)
    engine = bench.engine
    prompts = [make_prompt(engine.model.vocab, 2 + slot)[::-1] for slot in range(slots)]
    alone = [engine.forward([*prompt, 1], rows="last")[-1] for prompt in prompts]
    sequences = [engine.open() for _ in prompts]
    for sequence, prompt in zip(sequences, prompts, strict=True):
        engine.extend(sequence, prompt, rows="last")
    batch = [(sequence, [1]) for sequence in sequences]
    before = bench.submissions
    together = engine.step(batch, list(range(slots)))
    cost = bench.submissions - before
    for sequence in sequences:
        engine.release(sequence)
    require_varying(together)
    if cost != 1:
        raise CannotMeasure(f"{slots} sequences needed {cost} submissions, expected one")
    wrong = count_differing(list(together), alone)
    return Measurement(wrong, f"{slots} sequences in {cost} submission on {tier}, {together.size} logits")


def values_moved_by_neighbours(lab: Lab, tier: str, steps: int) -> Measurement:
    """Compare a sequence that runs alone with one whose neighbours, with other contents, join, run, end and are
    replaced in their slots.
    """
    engine = lab.open_engine(tier, slots=4).engine
    vocab = engine.model.vocab
    prompt = make_prompt(vocab, 5)
    alone = _run(engine, prompt, steps, [])
    beside = _run(engine, prompt, steps, [make_prompt(vocab, 3)[::-1], [2] * 9, make_prompt(vocab, 18)])
    require_varying(np.stack(alone))
    wrong = count_differing(beside, alone)
    how = (
        f"{steps} tokens on {tier} while three neighbours joined and left, {sum(row.size for row in alone)} logits"
    )
    return Measurement(wrong, how)


def _run(engine: Engine, prompt: list[int], steps: int, neighbours: list[list[int]]) -> list[np.ndarray]:
    """Return the logits of one sequence, token by token. A neighbour joins in every step that has one; when there
    are two, the oldest leaves, so that slots are reused.
    """
    sequence = engine.open()
    rows = [engine.extend(sequence, prompt, rows="last")[-1]]
    sequences: list[Sequence] = []
    waiting = list(neighbours)
    try:
        for step in range(steps):
            if len(sequences) == 2:
                engine.release(sequences.pop(0))
            if waiting:
                sequences.append(engine.open())
                engine.extend(sequences[-1], waiting.pop(0), rows="last")
            batch = [(sequence, [1 + step]), *((sequence, [3]) for sequence in sequences)]
            rows.append(engine.step(batch, [0])[0].copy())
        return rows
    finally:
        for item in (sequence, *sequences):
            engine.release(item)


def values_moved_by_paging(lab: Lab, tier: str, tokens: int) -> Measurement:
    """Compare a sequence with contiguous pages with one whose pages are interleaved with another's."""
    engine = lab.open_engine(tier, slots=2).engine
    page = engine.limits.page_tokens
    count = min(tokens, engine.limits.ctx - 1)
    if count <= page:
        raise CannotMeasure(f"{count} tokens fit in one page of {page}, so paging was not tested")
    prompt = make_prompt(engine.model.vocab, count)
    straight = engine.forward(prompt, rows="last")[-1]
    other, sequence = engine.open(), engine.open()
    try:
        for start in range(0, count, page):
            engine.extend(other, prompt[start : start + page][::-1], rows="last")
            scattered = engine.extend(sequence, prompt[start : start + page], rows="last")[-1]
        pages = engine.pages(sequence)
    finally:
        engine.release(sequence)
        engine.release(other)
    require_varying(straight)
    gaps = sum(b != a + 1 for a, b in pairwise(pages))
    if not gaps:
        raise CannotMeasure(f"the pages {pages} are contiguous, so paging was not tested")
    return Measurement(
        count_differing([scattered], [straight]), f"{count} tokens in pages {', '.join(map(str, pages))} on {tier}"
    )
