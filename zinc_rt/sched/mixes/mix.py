"""A seeded mix of requests and events: lengths, tenants, classes, sampling, arrivals, and preemptions, evictions,
pauses and cancellations at separate steps.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority, Tenant

SLOTS = 4
STEP_TOKENS = 40  # of the longest prompts more than one chunk
PAGES_SHARE = 0.4  # of what all slots could fill: pages run short
CTX = 128
ROWS_A_SLOT = 3  # of recurrent state: its own, one to go on to, a checkpoint
RESERVED = 4  # pages of one tenant: any other's longest request fits beside them
EventKind = Literal["park", "evict", "hold", "resume", "cancel"]
EVENTS: tuple[tuple[EventKind, float], ...] = (  # how often a step has one
    ("park", 0.15),
    ("evict", 0.12),
    ("hold", 0.10),
    ("resume", 0.30),
    ("cancel", 0.05),
)
TENANTS = (
    Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=1),
    Tenant("team", weight=2.0),
    Tenant("night", Priority.BATCH),
)


def make_quotas(pages: int) -> tuple[PageQuota, ...]:
    """Return the quotas of each tenant, in every page group: one has a guarantee, one has a maximum."""
    return PageQuota(reserved=RESERVED), PageQuota(), PageQuota(most=max(12, pages // 2))


RequestKey = tuple[int, int]  # a request's number, and which of its choices


class SeededMask:
    """A TokenMask that permits half of the tokens, others after each token."""

    complete = False
    failure = ""

    def __init__(self, seed: int, vocab: int, accepted: int = 0) -> None:
        self.seed, self.vocab, self.accepted = seed, vocab, accepted

    def fill(self, words: np.ndarray) -> None:
        """Set the bits of the permitted tokens, i32 [ceil(V / 32)]; bits beyond the vocabulary are 0."""
        chance = np.random.default_rng((self.seed, self.accepted))
        bits = chance.integers(0, 2, 32 * words.size, np.uint8)
        bits[self.vocab :] = 0
        words[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, token: int) -> None:
        self.accepted += 1

    def fork(self) -> SeededMask:
        return SeededMask(self.seed, self.vocab, self.accepted)


@dataclass(frozen=True, slots=True)
class MixedRequest:
    """One request. `arrives` is the step before which it is submitted at the latest; it is submitted earlier if
    nothing else is left.
    """

    number: int
    tenant: int
    prompt: tuple[int, ...]
    sampling: Sampling
    arrives: int
    mask_seed: int | None = None
    drafts: int | None = None  # the most draft tokens in a step, None: the scheduler's limit

    def make_mask(self, vocab: int) -> SeededMask | None:
        """Return the mask of the tokens of its answers, None if every token is permitted."""
        return None if self.mask_seed is None else SeededMask(self.mask_seed, vocab)


@dataclass(frozen=True, slots=True)
class MixEvent:
    """An event that affects one running request, selected by `pick` modulo their number."""

    step: int
    kind: EventKind
    pick: int


@dataclass(frozen=True, slots=True)
class RequestMix:
    seed: int
    requests: tuple[MixedRequest, ...]
    events: tuple[MixEvent, ...]


def draw_request_mix(
    seed: int, count: int, *, vocab: int, ctx: int, penalties: bool = True, constrained: bool = False
) -> RequestMix:
    """Generate `count` requests for a model with this vocabulary; prompt and answer of each fit `ctx`.
    `constrained`: some have biases, stop tokens, a minimum length or a mask."""
    chance = random.Random(seed)
    common = _draw_tokens(chance, vocab, 32)  # no tenant may find another's pages by it
    beginnings = [[(*common, *_draw_tokens(chance, vocab, length)) for length in (1, 16)] for _ in TENANTS]
    step, requests = 0, []
    for number in range(1, count + 1):
        tenant = chance.randrange(len(TENANTS))
        begins = chance.choice([(), common, *beginnings[tenant]])
        own = _draw_tokens(chance, vocab, chance.choice((0 if begins else 1, 1, 7, 15, 16, 17, 30)))
        limit = chance.randint(1, 12)
        prompt = (*begins, *own)[: ctx - limit]
        request = MixedRequest(number, tenant, prompt, _draw_sampling(chance, limit, penalties), step)
        requests.append(_constrain(request, random.Random(seed << 20 | number), vocab) if constrained else request)
        step += chance.choice((0, 0, 0, 1, 2))
    return RequestMix(seed, tuple(requests), _draw_events(chance, step + 40 * count))


def draw_from_pool(seed: int, pool: Sequence[MixedRequest], count: int) -> tuple[RequestMix, tuple[int, ...]]:
    """Return a mix of `count` requests of a pool with new numbers, arrivals and events, and their numbers in the
    pool: request n of the mix is number [n - 1]."""
    chance = random.Random(seed)
    chosen = chance.sample(pool, min(count, len(pool)))
    step, requests = 0, []
    for number, request in enumerate(chosen, 1):
        requests.append(replace(request, number=number, tenant=chance.randrange(len(TENANTS)), arrives=step))
        step += chance.choice((0, 0, 0, 1, 2))
    mix = RequestMix(seed, tuple(requests), _draw_events(chance, step + 40 * count))
    return mix, tuple(request.number for request in chosen)


def _draw_events(chance: random.Random, steps: int) -> tuple[MixEvent, ...]:
    return tuple(
        MixEvent(at, kind, chance.randrange(1 << 16))
        for at in range(1, steps)
        for kind, often in EVENTS
        if chance.random() < often
    )


def _draw_tokens(chance: random.Random, vocab: int, count: int) -> tuple[int, ...]:
    return tuple(chance.randrange(vocab) for _ in range(count))


def _constrain(request: MixedRequest, chance: random.Random, vocab: int) -> MixedRequest:
    """Return the request with each kind of constraint at random. The ids are those of a small part of the
    vocabulary, so that they meet."""
    few = chance.sample(range(vocab), min(vocab, 24))
    sampling, mask_seed = request.sampling, None
    if chance.random() < 0.4:
        biases = {
            token: chance.choice((-100.0, -2.5, 0.25, 6.0)) for token in chance.sample(few, chance.randint(1, 8))
        }
        sampling = replace(sampling, logit_bias=biases)
    if chance.random() < 0.4:
        sampling = replace(sampling, stop_token_ids=tuple(chance.sample(few, chance.randint(1, 8))))
    if chance.random() < 0.4:
        sampling = replace(sampling, min_tokens=chance.randint(1, sampling.max_tokens))
    if chance.random() < 0.3:
        mask_seed = chance.getrandbits(32)
    return replace(request, sampling=sampling, mask_seed=mask_seed)


def _draw_sampling(chance: random.Random, limit: int, penalties: bool) -> Sampling:
    seed = chance.getrandbits(64)
    n = chance.choice((1, 1, 2))
    if chance.random() < 0.3:
        return Sampling(max_tokens=limit, seed=seed, n=n, ignore_eos=True)
    penalised = penalties and chance.random() < 0.5
    return Sampling(
        max_tokens=limit,
        temperature=chance.choice((0.5, 1.0, 1.5)),
        top_k=chance.choice((0, 20)),
        top_p=chance.choice((1.0, 0.9)),
        min_p=chance.choice((0.0, 0.02)),
        seed=seed,
        n=n,
        presence_penalty=0.5 if penalised else 0.0,
        frequency_penalty=0.25 if penalised else 0.0,
        repetition_penalty=1.3 if penalised else 1.0,
        ignore_eos=True,
    )
