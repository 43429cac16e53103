"""A scheduler over an engine with few pages, with all checks enabled, that runs a mix."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent import futures
from dataclasses import replace
from typing import Literal

from zinc_rt.engine.engine import Engine, make_page_pools
from zinc_rt.engine.engine_core import create_scheduler
from zinc_rt.engine.kv_audit import audit_kv
from zinc_rt.engine.model_runner import ModelRunner
from zinc_rt.engine.speculating import MtpDrafter
from zinc_rt.sched.checks.drafters import DraftKind, ScriptedDrafter
from zinc_rt.sched.checks.shadow import ShadowDevice
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.mixes.mix import PAGES_SHARE, RESERVED, TENANTS, MixedRequest, RequestKey, make_quotas
from zinc_rt.sched.plan import Batch
from zinc_rt.sched.request import NewRequest
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.speculation import Drafter
from zinc_rt.sched.state import describe_limit_changes
from zinc_rt.validate.isolation.alone import SoloAnswer
from zinc_rt.validate.isolation.witness import StepWitness

STEP_NS = 10_000_000
DRAFTS = 3  # tokens of a request in a step, with a drafter
MixDrafts = DraftKind | Literal["mtp"]
SLICE_TOKENS = 4  # so that answers of a few tokens take turns too


class MixServer:
    """`alone` are the solo runs to compare rows and tokens with; requests without one are not compared. `draft`:
    speculate with drafts of this kind, chosen by `seed`, or by the model's MTP layer."""

    def __init__(
        self,
        engine: Engine,
        alone: Mapping[RequestKey, SoloAnswer],
        *,
        name: str,
        pages_share: float = PAGES_SHARE,
        draft: MixDrafts | None = None,
        seed: int = 0,
    ) -> None:
        self._draft, self._seed, self._alone, self._vocab = draft, seed, alone, engine.model.vocab
        limits, self._caches_prompts = engine.limits, engine.model.caches_prompts
        self.now_ns = 0
        self.model = ModelRunner(engine.runner)
        self.scheduler = self._create_scheduler(engine, pages_share)
        self.model.attach(self.scheduler.records)
        cache = self.scheduler.cache
        self.shadow = ShadowDevice(
            limits.slots,
            limits.ctx,
            limits.page_tokens,
            cache.groups,
            cache.state_rows,
            self.scheduler.records,
            roles=bool(engine.variants.prefill_ordering),
        )
        self.witness = StepWitness(self.model, self.scheduler.records, alone, self.shadow, self.model.embeddings)
        self.model.watch = self.witness.compare_step
        self.scheduler.runner = self.witness
        self._spaces = [make_namespace(name, engine.ordering, limits.kv_type, limits.page_tokens) for _ in TENANTS]

    def _create_scheduler(self, engine: Engine, pages_share: float) -> Scheduler:
        """Create a scheduler with fewer pages than the device has, so that pages become scarce and evictions are
        forced.
        """
        limits = engine.limits
        pages = max(limits.pages_per_slot + RESERVED, int(pages_share * limits.slots * limits.pages_per_slot))
        groups = len(make_page_pools(engine))
        tenants = [
            replace(tenant, pages=(quota,) * groups)
            for tenant, quota in zip(TENANTS, make_quotas(pages), strict=True)
        ]
        drafter: Drafter | None = None
        if self._draft == "mtp":
            drafter = MtpDrafter()
            self.model.collected = drafter.keep_states
        elif self._draft is not None:
            drafter = ScriptedDrafter(self._find_target, self._vocab, self._draft, seed=self._seed)
        scheduler = create_scheduler(
            engine, self.model, tenants, clock_ns=lambda: self.now_ns, pages=pages, slice_tokens=SLICE_TOKENS,
            drafter=drafter, drafts=0 if drafter is None else DRAFTS,
        )  # fmt: skip
        if scheduler.speculation is not None:
            scheduler.speculation.adaptive = False
        scheduler.fills.wait = lambda pending, seconds: futures.wait(pending)  # however long a mask takes
        return scheduler

    def _find_target(self, number: int, choice: int, position: int) -> int | None:
        """Return the token at a position by the solo run."""
        answer = self._alone.get((number, choice))
        known = answer is not None and 0 <= position - answer.first < len(answer.tokens)
        return answer.tokens[position - answer.first] if answer is not None and known else None

    @property
    def shortcuts(self) -> list[str]:
        """Return how this scheduler differs from the product's, for a report."""
        pages = self.scheduler.cache.groups[0].pages
        return [
            *describe_limit_changes(self.scheduler.limits),
            f"scheduler: {pages} pages in each group, so that they run short",
            "scheduler: waits for every mask, so that a mix is the same at any load",
            "engine: variants share no activation memory, so that a stale value cannot look right",
            *([f"drafts: {self._draft}, {DRAFTS} a request in each step"] if self._draft is not None else []),
        ]

    def submit(self, request: MixedRequest) -> None:
        choices = request.sampling.n
        self.shadow.register_request(request.number, request.prompt, start=request.tenant, choices=choices)
        space = self._spaces[request.tenant]
        if not self._caches_prompts:  # as EngineCore.submit
            space = make_namespace(str(request.number), "", "", 0)
        mask = request.make_mask(self._vocab)
        self.scheduler.submit(
            NewRequest(request.number, request.tenant, request.prompt, space, request.sampling, mask=mask)
        )

    def step(self) -> Batch | None:
        self.now_ns += STEP_NS
        batch = self.scheduler.step()
        if batch is not None and self.model.embeddings is not None:
            for number, _, _ in batch.ended:  # those that were cancelled
                self.model.embeddings.take(number)
        return batch

    def audit(self) -> list[str]:
        """Compare the device's slots and pages with the host's."""
        return audit_kv(self.scheduler, self.model)
