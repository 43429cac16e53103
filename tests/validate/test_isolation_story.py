"""A mix comes from its seed; what befell a request is read off the steps."""

from __future__ import annotations

import numpy as np

from zinc_rt.sched.mixes.mix import TENANTS, RequestKey, draw_request_mix
from zinc_rt.validate.isolation.story import MixTrace


def test_request_mix_is_determined_by_its_seed() -> None:
    one, same, other = (draw_request_mix(seed, 24, vocab=500, ctx=128) for seed in (3, 3, 4))
    assert one == same and one.requests != other.requests
    assert {request.tenant for request in one.requests} == set(range(len(TENANTS)))
    for request in one.requests:
        request.sampling.check()
        assert request.prompt and len(request.prompt) + request.sampling.max_tokens <= 128
    assert any(request.sampling.n > 1 for request in one.requests)
    assert any(request.sampling.penalised for request in one.requests)
    assert {event.kind for event in one.events} == {"park", "evict", "hold", "resume", "cancel"}


def test_constrained_mix_draws_every_constraint() -> None:
    plain, mix = (draw_request_mix(3, 24, vocab=500, ctx=128, constrained=which) for which in (False, True))
    assert [request.prompt for request in mix.requests] == [request.prompt for request in plain.requests]
    for request in mix.requests:
        request.sampling.check()
    drawn = [request.sampling for request in mix.requests]
    assert any(sampling.logit_bias for sampling in drawn) and any(sampling.stop_token_ids for sampling in drawn)
    assert any(sampling.min_tokens for sampling in drawn)
    masks = [mask for request in mix.requests if (mask := request.make_mask(500)) is not None]
    words = np.zeros((2, 16), np.int32)
    masks[0].fill(words[0])
    fork = masks[0].fork()
    masks[0].accept(1)
    masks[0].fill(words[1])
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    assert (bits[0] != bits[1]).any() and not bits[:, 500:].any() and 150 < bits[0].sum() < 350
    again = np.zeros(16, np.int32)
    fork.fill(again)
    assert (again == words[0]).all(), "a fork has its own state"


def read_story(*steps: list[tuple[RequestKey, int, int, int]]) -> MixTrace:
    """For each step: request, slot, first and last token."""
    story = MixTrace()
    for step in steps:
        who: list[RequestKey] = [(0, 0)] * 8
        slot, sequence, position = [], [], []
        for ordinal, (item, index, first, last) in enumerate(step):
            who[index] = item
            count = last - first
            slot += [index] * count
            sequence += [ordinal] * count
            position += range(first, last)
        story.step(who, np.array(slot), np.array(sequence), np.array(position))
    return story


def test_request_trace_is_printed_in_order() -> None:
    a, b, fork = (1, 0), (2, 0), (1, 1)
    message = read_story(
        [(a, 0, 16, 20), (b, 1, 0, 3)],
        [(b, 1, 3, 4), (a, 0, 20, 30)],
        [(fork, 2, 30, 31), (a, 0, 30, 31)],
        [(b, 1, 4, 5)],
        [(a, 3, 31, 32)],
        [(b, 1, 5, 6)],
        [(a, 3, 0, 33)],
    )
    assert list(message.describe_request(a, 30, 7)) == [
        "hit: its first 16 tokens came from the cache, step 1",
        "chunked: its prompt took 2 steps, 1 to 2",
        "paused: parked or held after step 3, went on in step 5, slot 0 to 3",
        "evicted: after step 5, computed again from 0 in step 7, slot 3 again",
    ]
    assert list(message.describe_request(fork, 30, 7)) == [
        "forked: its first 30 tokens came from the cache, step 3"
    ]
    assert list(message.describe_request(b, 3, 7)) == [
        "paused: parked or held after step 2, went on in step 4, slot 1 again",
        "paused: parked or held after step 4, went on in step 6, slot 1 again",
    ]
    assert message.find_neighbours(a, 1) == [b] and message.find_neighbours(a, 7) == []
    assert message.counts() == {"hits": 1, "forks": 1, "chunks": 1, "pauses": 3, "evictions": 1}
