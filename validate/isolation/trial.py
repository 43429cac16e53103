"""One model's mix: each request alone on the oracle, then all of them together on a tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from zinc_rt.backends.base import read_findings
from zinc_rt.engine.devices import ORACLE, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.pooling import needs_whole_sequences
from zinc_rt.sched.checks.drafters import KINDS
from zinc_rt.sched.mixes.driver import MixDriver
from zinc_rt.sched.mixes.mix import (
    CTX,
    PAGES_SHARE,
    ROWS_A_SLOT,
    SLOTS,
    STEP_TOKENS,
    TENANTS,
    MixedRequest,
    RequestKey,
    RequestMix,
    draw_from_pool,
    draw_request_mix,
)
from zinc_rt.sched.sampling import Sampling
from zinc_rt.validate.isolation.alone import SoloAnswer, answer_solo, embed_solo
from zinc_rt.validate.isolation.server import DRAFTS, MixDrafts, MixServer
from zinc_rt.validate.isolation.verdict import MixVerdict
from zinc_rt.validate.runner import ValidationJob
from zinc_rt.validate.tiers import TierSpec

POOL = 3
PROMPT_ONLY = Sampling(max_tokens=1, seed=0, ignore_eos=True)  # of an embedding


class MixTrial:
    """A mix for several tiers. The solo runs are computed once, on T-CPU, and used for every tier."""

    def __init__(
        self,
        job: ValidationJob,
        seed: int,
        count: int,
        *,
        slots: int = SLOTS,
        pages_share: float = PAGES_SHARE,
        ctx: int | None = None,
        draft: MixDrafts | None = None,
        mixes: int = 1,
        every_draft: bool = False,
        repro: str = "",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Create `count` requests. `pages_share` is the number of pages relative to what all slots could fill.
        `ctx` is short by default. `draft`: speculate with drafts of this kind; `every_draft`: each mix with the
        next kind. `mixes`: further mixes draw their requests from a pool, whose solo runs are computed once.
        `repro` is the command that reproduces the mix.
        """
        self.job, self.seed, self.count, self.slots, self.say = job, seed, count, slots, say
        self.pages_share, self.draft, self.mixes, self.every_draft = pages_share, draft, mixes, every_draft
        self.ctx = min(job.ctx, CTX) if ctx is None else ctx
        self.repro = (
            repro or f"zinc-rt validate --isolation --model {job.gguf.path} --seed {seed} --requests {count}"
        )
        self._alone: dict[str, dict[RequestKey, SoloAnswer]] = {}

    @property
    def step_tokens(self) -> int:
        whole = self.ctx if needs_whole_sequences(self.job.gguf) else 0
        return max(STEP_TOKENS, 8 * self.slots, whole)

    @property
    def description(self) -> str:
        room = f"{self.slots} slots, {self.pages_share:.0%} of the pages they could fill, ctx {self.ctx}"
        return f"{self.count} requests, seed {self.seed}, of {len(TENANTS)} tenants; {room}"

    @contextmanager
    def open_engine(self, spec: TierSpec, *, alone: bool = False) -> Iterator[Engine]:
        """Open an engine for the mix, or for one request at a time."""
        slots = 1 if alone else self.slots
        self.say(f"{spec.text}: loading")
        backend = open_backend(spec.choice, spec.ordering, threads=self.job.threads)
        with Engine(
            self.job.gguf,
            backend,
            limits=SequenceLimits(
                self.ctx,
                slots,
                state_rows=None if alone else 1 + ROWS_A_SLOT * slots,
                rows=None if alone else slots * (1 + (DRAFTS if self.draft or self.every_draft else 0)),
                step_tokens=self.step_tokens,
                kv_type=self.job.kv_type,
                mtp=self.draft == "mtp" and not alone,
            ),
            options=EngineOptions(
                settings=self.job.settings,
                prefill_ordering=self.job.prefill_ordering,
                timeout_seconds=self.job.timeout_seconds,
                share_arenas=False,
                around=self.job.observer.around_engine,
            ),
        ) as engine:
            yield engine

    def verdicts(self, spec: TierSpec, engine: Engine) -> Iterator[MixVerdict]:
        """Run the mixes on a tier and return their verdicts. The first has the requests of `seed`, each other one
        `count` requests of a pool of POOL times as many."""
        draw = partial(draw_request_mix, self.seed, vocab=engine.model.vocab, ctx=self.ctx, constrained=True)
        pool = draw(self.count * POOL if self.mixes > 1 else self.count).requests
        if engine.model.pooling:
            pool = tuple(replace(request, sampling=PROMPT_ONLY, mask_seed=None) for request in pool)
        answers = self._run_solo_requests(pool, spec.ordering)
        for number in range(self.mixes):
            draft = KINDS[number % len(KINDS)] if self.every_draft else self.draft
            if number == 0:
                mix = replace(draw(self.count), requests=pool[: self.count])
                chosen = tuple(range(1, self.count + 1))
            else:
                mix, chosen = draw_from_pool((self.seed << 32) + number, pool, self.count)
            solo = {
                (request.number, choice): answers[of, choice]
                for request, of in zip(mix.requests, chosen, strict=True)
                for choice in range(request.sampling.n)
            }
            yield self._run_mix(spec, engine, mix, solo, draft, f"mix {number + 1} of {self.mixes}")

    def _run_mix(
        self,
        spec: TierSpec,
        engine: Engine,
        mix: RequestMix,
        solo_answers: Mapping[RequestKey, SoloAnswer],
        draft: MixDrafts | None,
        name: str,
    ) -> MixVerdict:
        server = MixServer(
            engine, solo_answers, name=self.job.name, pages_share=self.pages_share, draft=draft, seed=mix.seed
        )
        self.shortcuts = server.shortcuts
        outcome = MixDriver(mix, server, lambda step: self.say(f"{spec.text}: {name}, step {step}")).run()
        mix_verdict = MixVerdict(
            self.job.name, spec.text, mix, outcome, server.witness, solo_answers, list(server.shadow.findings),
            [finding.text for finding in read_findings(engine.backend)],
            False, self.repro,
        )  # fmt: skip
        first = mix_verdict.first
        return (
            mix_verdict
            if first is None
            else replace(
                mix_verdict,
                differs_in_solo_run=self._has_other_solo_logits(spec, mix, first.who, solo_answers[first.who]),
            )
        )

    def _run_solo_requests(self, requests: Sequence[MixedRequest], ordering: str) -> dict[RequestKey, SoloAnswer]:
        """Compute every choice of every request alone, on T-CPU."""
        if ordering not in self._alone:
            spec = TierSpec(ORACLE.tier, ordering, ORACLE.tier)
            with self.open_engine(spec, alone=True) as engine:
                answers = {}
                for request in requests:
                    self.say(f"alone: request {request.number} of {len(requests)}")
                    for choice in range(request.sampling.n):
                        answers[request.number, choice] = (
                            embed_solo(engine, request)
                            if engine.model.pooling
                            else answer_solo(engine, request, choice)
                        )
            self._alone[ordering] = answers
        return self._alone[ordering]

    def _has_other_solo_logits(self, spec: TierSpec, mix: RequestMix, who: RequestKey, there: SoloAnswer) -> bool:
        """Return whether a solo run of the request on this tier gives other logits than on T-CPU."""
        request = next(request for request in mix.requests if request.number == who[0])
        with self.open_engine(spec, alone=True) as engine:
            if there.embedding is not None:
                here = embed_solo(engine, request)
                assert here.embedding is not None
                return here.embedding.tobytes() != there.embedding.tobytes()
            here = answer_solo(engine, request, who[1])
        return any(a.tobytes() != b.tobytes() for a, b in zip(here.rows, there.rows, strict=True))
