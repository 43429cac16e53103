"""Mixes on a shadow device, which computes nothing and tracks the contents of pages, state rows and records. Each
mix draws the scheduler's limits, page groups, state rows, drafts, masks, stop tokens and a failed step.

    for seed in range(1000): run_shadow_mix(seed).problems
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any, Self
from zlib import crc32

import numpy as np

from zinc_rt.ir.slot_record import free_records
from zinc_rt.sched.checks.drafters import KINDS, DraftKind, ScriptedDrafter
from zinc_rt.sched.checks.shadow import ShadowDevice, draw_token
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.mixes.driver import MixDriver, MixOutcome
from zinc_rt.sched.mixes.mix import (
    CTX,
    PAGES_SHARE,
    RESERVED,
    TENANTS,
    MixedRequest,
    RequestMix,
    draw_request_mix,
)
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import NewRequest
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.speculation import MOST_DRAFTS
from zinc_rt.sched.state import SchedulerLimits
from zinc_rt.sched.usage.ledger import UsageLedger

NEXT_TURNS = 0.5  # of the requests, if prompts and decodes have different orderings
VOCAB = 50  # small, so that end tokens are drawn and prompts share beginnings
MASKED, STOPPED = 0.2, 0.3  # share of requests with a token mask, with a stop token
FAILS = 0.3  # share of mixes with a failed step
CHECKS = ("plans", "invariants", "deliveries")
STEP_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class MixSettings:
    """The scheduler of a mix. `window`: of the second page group, 0: there is none. `adaptive`: the scheduler
    chooses the number of drafts. `fails_at`: the submission that raises an error, -1: none. `roles`: prompts and
    decodes have different orderings."""

    slots: int
    page_tokens: int
    window: int
    state_rows: int
    step_tokens: int
    drafts: int
    kind: DraftKind
    adaptive: bool
    fails_at: int
    roles: bool = False


@dataclass(slots=True)
class ShadowMixRun:
    """The result of a mix. `problems`: kind of check and sentence."""

    seed: int
    settings: MixSettings
    problems: list[tuple[str, str]] = field(default_factory=list)
    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    recomputed: int = 0


class _FailedStep(Exception):
    """The error of the submission that a mix lets fail."""


class RecordingMask:
    """A token mask that permits every token and records those that it accepted. Its words identify them."""

    complete, failure = False, ""

    def __init__(self, tokens: tuple[int, ...] = ()) -> None:
        self.tokens = tokens

    def fill(self, words: np.ndarray) -> None:
        words[:] = hash_tokens(self.tokens)

    def accept(self, token: int) -> None:
        self.tokens += (token,)

    def fork(self) -> Self:
        return type(self)(self.tokens)


def hash_tokens(tokens: Sequence[int] | np.ndarray) -> int:
    return crc32(np.array(tokens, np.int32).tobytes()) >> 1


class _ImmediateExecutor(Executor):
    """Fills masks at once, in the caller's thread, so that a mix does not depend on time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def draw_settings(chance: random.Random) -> MixSettings:
    page = chance.choice((4, 8, 16))
    slots = chance.choice((2, 3, 4, 6))
    return MixSettings(
        slots,
        page,
        chance.choice((0, page // 2 + 1, 2 * page + 1)),
        chance.choice((0, 0, 1 + 2 * slots, 1 + 3 * slots)),
        chance.choice((2 * slots + 2, 24, 48)),
        chance.randint(1, min(MOST_DRAFTS, page)),
        chance.choice(KINDS),
        chance.random() < 0.3,
        chance.randint(1, 40) if chance.random() < FAILS else -1,
    )


def draw_mix_token(seed: int, choice: int, position: int) -> int:
    """Return the token that a request samples at a position."""
    return draw_token(seed, choice, position, VOCAB)


class _MixDevice(ShadowDevice):
    """A shadow device on which one submission fails: `fails_at`, counted from 1. `check`: returns the violated
    invariants of the plan."""

    def __init__(self, fails_at: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fails_at, self.submissions = fails_at, 0
        self.prompts: dict[int, int] = {}  # their lengths by request
        self.check: Callable[[], list[str]] = list

    def submit(self, plan: StepPlan) -> StepPlan:
        self.submissions += 1
        if self.submissions == self.fails_at:
            raise _FailedStep("this submission fails")
        self.findings += [f"step {self.steps + 1}: {text}" for text in self.check()]
        for launch in plan.list_launches():
            self.findings += self._find_wrong_masks(launch.plan)
        return super().submit(plan)

    def _find_wrong_masks(self, plan: StepPlan) -> Iterator[str]:
        """Each masked row needs the words of its request's answer up to that row, drafts included."""
        for row, words in plan.mask_of.items():
            record = self.records[plan.row_slot[row]]
            known = self._known.get((int(record["request"]), int(record["choice"])))
            if known is None:
                continue
            rows = np.flatnonzero(plan.row_slot[: row + 1] == plan.row_slot[row])[1:]  # those after drafts
            drafts = plan.token_id[plan.logit_row[rows]]
            tokens = np.concatenate([known.tokens[: known.count], drafts])[self.prompts[known.number] :]
            if int(words[0]) != hash_tokens(tokens):
                yield f"step {self.steps + 1}: row {row}, {known.name}: its token mask is that of other tokens"


class ShadowServer:
    """A scheduler over a shadow device, with few pages."""

    def __init__(self, settings: MixSettings, seed: int) -> None:
        self.now_ns = self.recomputed = 0
        self.asked: dict[int, MixedRequest] = {}
        slots, page = settings.slots, settings.page_tokens
        per_slot = CTX // page
        pages = max(per_slot + RESERVED, int(PAGES_SHARE * slots * per_slot))
        groups = [PageGroup("full", pages)]
        if settings.window:
            groups.append(PageGroup("window", pages, settings.window))
        quotas = PageQuota(reserved=RESERVED), PageQuota(), PageQuota(most=max(per_slot + 1, pages // 2))
        tenants = [
            replace(tenant, pages=(quota,) * len(groups)) for tenant, quota in zip(TENANTS, quotas, strict=True)
        ]
        self.shadow = _MixDevice(
            settings.fails_at, slots, CTX, page, groups, settings.state_rows, free_records(slots),
            draw=draw_mix_token, roles=settings.roles,
        )  # fmt: skip
        self.scheduler = Scheduler(
            SchedulerLimits(
                slots, CTX, settings.step_tokens, slice_tokens=4, checkpoint_tokens=2 * page,
                drafts=settings.drafts, prefill_ordering="another" if settings.roles else "",
            ),
            tenants,
            KvCache(groups, page, settings.step_tokens, settings.state_rows, CTX),
            self.shadow,
            lambda: self.now_ns,
            ledger=UsageLedger([tenant.name for tenant in tenants], {group.name: pages for group in groups}),
            vocab=VOCAB,
            drafter=ScriptedDrafter(self._find_target, VOCAB, settings.kind, seed=seed),
        )  # fmt: skip
        assert self.scheduler.speculation is not None
        self.scheduler.speculation.adaptive = settings.adaptive
        self.scheduler.fills.pool = lambda threads: _ImmediateExecutor()
        self.shadow.records, self.shadow.check = self.scheduler.records, self.scheduler.check
        self._spaces = [
            make_namespace("mix", "none", "f32", page, secret=bytes([number]) * 32)
            for number in range(len(TENANTS))
        ]

    def _find_target(self, number: int, choice: int, position: int) -> int:
        seed = self.asked[number].sampling.seed
        assert seed is not None
        return draw_mix_token(seed, choice, position)

    def submit(self, request: MixedRequest) -> None:
        self.asked[request.number] = request
        self.shadow.prompts[request.number] = len(request.prompt)
        self.shadow.register_request(
            request.number, request.prompt, start=request.tenant, choices=request.sampling.n
        )
        mask = RecordingMask() if request.mask_seed is not None else None
        self.scheduler.submit(
            NewRequest(
                request.number, request.tenant, request.prompt, self._spaces[request.tenant], request.sampling,
                mask=mask, drafts=request.drafts,
            )
        )  # fmt: skip

    def step(self) -> Batch | None:
        self.now_ns += STEP_NS
        batch = self.scheduler.step()
        self.recomputed += self.scheduler.plan.recomputed if batch is not None else 0
        return batch

    def audit(self) -> list[str]:
        """Return the masks that have not accepted exactly the tokens of their requests, and the checkpoints with
        the state of other tokens than their pages have."""
        slots = self.scheduler.slots
        wrong = [
            f"state row {row} is a checkpoint after page {entry.find_page(0)}, and holds another state"
            for row, entry in self.scheduler.cache.list_checkpoints()
            if not self.shadow.has_state_after(row, entry.find_page(0))
        ]
        return wrong + [
            f"request {request.number}: its token mask has accepted other tokens than it generated"
            for request in self.scheduler.running()
            if isinstance(request.mask, RecordingMask)
            and list(request.mask.tokens) != slots.history[request.slot, request.prompt : request.length].tolist()
        ]


def run_shadow_mix(seed: int, requests: int = 10, *, roles: bool = False) -> ShadowMixRun:
    """Run the mix of a seed. `roles`: see MixSettings."""
    chance = random.Random(seed)
    settings = replace(draw_settings(chance), roles=roles)
    penalties = chance.random() < 0.5
    mix = draw_request_mix(chance.getrandbits(32), requests, vocab=VOCAB, ctx=CTX, penalties=penalties)
    mix = replace(mix, requests=tuple(_add_stop_and_mask(request, chance) for request in mix.requests))
    if roles:
        mix = replace(mix, requests=_add_next_turns(mix.requests, random.Random(seed)))
    server = ShadowServer(settings, seed)
    run = ShadowMixRun(seed, settings)
    outcome = MixDriver(mix, server, audit_every=1).run()
    run.problems += [("plans", text) for text in server.shadow.findings]
    run.problems += [("invariants", f"step {step}: {text}") for step, text in outcome.broken]
    if outcome.stuck:
        run.problems.append(("invariants", outcome.stuck))
    if not run.problems:
        run.problems += [("deliveries", text) for text in find_wrong_deliveries(mix, outcome)]
    speculation, ledger = server.scheduler.speculation, server.scheduler.ledger
    assert speculation is not None and ledger is not None
    usage, _ = ledger.sums()
    accepted = usage.get("draft_inputs", 0) - usage.get("draft_rejected", 0)
    if accepted != speculation.accepted:
        text = f"{speculation.accepted} drafts are reported as accepted, and {accepted} were charged"
        run.problems.append(("deliveries", text))
    run.steps, run.tokens = server.scheduler.counts.steps, server.scheduler.counts.computed
    run.recomputed = server.recomputed
    run.drafted, run.accepted = speculation.drafted, speculation.accepted
    return run


def _add_stop_and_mask(request: MixedRequest, chance: random.Random) -> MixedRequest:
    """Return the request, possibly with a stop token that it will sample, or with a token mask."""
    sampling = request.sampling
    assert sampling.seed is not None
    if chance.random() < STOPPED:
        position = len(request.prompt) + chance.randrange(sampling.max_tokens)
        stop = draw_mix_token(sampling.seed, 0, position)
        sampling = replace(sampling, stop_token_ids=(stop,))
    limit = chance.choice((None, None, None, 0, 1))
    return replace(request, sampling=sampling, mask_seed=0 if chance.random() < MASKED else None, drafts=limit)


def _add_next_turns(requests: Sequence[MixedRequest], chance: random.Random) -> tuple[MixedRequest, ...]:
    """Return the requests, some of which continue the prompt and the answer of an earlier one of their tenant."""
    turns: list[MixedRequest] = []
    for request in requests:
        earlier = [known for known in turns if known.tenant == request.tenant]
        if earlier and chance.random() < NEXT_TURNS:
            known = chance.choice(earlier)
            seed, first = known.sampling.seed, len(known.prompt)
            assert seed is not None
            answer = [draw_mix_token(seed, 0, at) for at in range(first, first + known.sampling.max_tokens)]
            prompt = (*known.prompt, *answer, *request.prompt[-2:])
            if len(prompt) + request.sampling.max_tokens <= CTX:
                request = replace(request, prompt=prompt)
        turns.append(request)
    return tuple(turns)


def find_wrong_deliveries(mix: RequestMix, outcome: MixOutcome) -> Iterator[str]:
    """Return the requests whose tokens or reason of the end differ from those of plain decoding."""
    for request in mix.requests:
        sampling = request.sampling
        assert sampling.seed is not None
        for choice in range(sampling.n):
            expected, reason = list[int](), "length"
            for position in range(len(request.prompt), len(request.prompt) + sampling.max_tokens):
                expected.append(draw_mix_token(sampling.seed, choice, position))
                if expected[-1] in sampling.stop_token_ids:
                    reason = "stop"
                    break
            had = outcome.delivered.get((request.number, choice), [])
            if request.number in outcome.cancelled and had == expected[: len(had)]:
                continue
            if had != expected:
                at = next((i for i, (a, b) in enumerate(zip(had, expected, strict=False)) if a != b), len(had))
                counts = f"{len(had)} tokens of {len(expected)}"
                yield f"request {request.number}, choice {choice}: delivered {counts}, wrong from {at} on"
            elif outcome.ended.get((request.number, choice)) != reason:
                ended = outcome.ended.get((request.number, choice))
                yield f"request {request.number}, choice {choice}: ended with {ended}, expected {reason}"
