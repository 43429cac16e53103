"""A resident model with its scheduler, runner and ledger: the basis of all front ends."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from zinc_rt.backends.base import Finding, read_findings
from zinc_rt.engine.engine import Engine, make_page_pools
from zinc_rt.engine.model_runner import ModelRunner
from zinc_rt.engine.runner import Runner
from zinc_rt.engine.speculating import MtpDrafter
from zinc_rt.engine.variants import list_token_capacities
from zinc_rt.host.chrome_trace import write_chrome
from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.host.run_queue import read_waited_ns
from zinc_rt.mem.context_bytes import count_state_row_bytes
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.sched.kv.kv_cache import KvCache
from zinc_rt.sched.kv.prefix import Namespace, make_namespace
from zinc_rt.sched.request import NewRequest, Request
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import Scheduler, StepRunner
from zinc_rt.sched.speculation import Drafter
from zinc_rt.sched.state import CLIENT_TIMEOUT_STEPS, SchedulerLimits
from zinc_rt.sched.step_cost import PREDICTED_BY_PREFILL
from zinc_rt.sched.step_timeline import build_timeline
from zinc_rt.sched.step_trace import StepRecorder, StepTrace
from zinc_rt.sched.tenant import CLASSES, SECOND_NS, Classes, Priority, Tenant
from zinc_rt.sched.token_mask import TokenMask
from zinc_rt.sched.usage.ledger import UsageLedger

EVERYBODY = Tenant("default")


class ContextExceeded(UsageError):
    """Raised if a prompt has more tokens than the context."""


class EngineCore:
    """A model with its scheduler. It owns the engine and closes it; no other code may use that engine.

    `tokenizer` is None if the file has no readable tokenizer; `no_tokenizer` is the reason.
    """

    def __init__(
        self,
        engine: Engine,
        tenants: Sequence[Tenant] = (),
        *,
        step_tokens: int = 0,
        again: Callable[[], Engine] | None = None,
        classes: Classes = CLASSES,
        client_timeout_seconds: float = 30.0,
        client_timeout_steps: int = CLIENT_TIMEOUT_STEPS,
        drafter: Drafter | None = None,
        drafts: int = 0,
    ) -> None:
        """Create the core. `step_tokens`: the maximum tokens per step, if lower than the engine's limit.
        `again`: reopens the engine after a hung step; None: a hang is fatal. `client_timeout_seconds`,
        `client_timeout_steps`: how long, and for how many steps, an unread request is kept. `drafter`: proposes
        up to `drafts` tokens for each request in a step; the core closes it."""
        self.engine = engine
        self.tokenizer, self.no_tokenizer = _load_tokenizer(engine.model.gguf)
        self.end_ids = self.tokenizer.eog_ids if self.tokenizer is not None else frozenset[int]()
        self._again = again
        renew = None if again is None else self._renew_scheduler
        self.runner = ModelRunner(engine.runner, end_ids=sorted(self.end_ids), renew=renew)
        if isinstance(drafter, MtpDrafter):
            self.runner.collected = drafter.keep_states
        self.scheduler = create_scheduler(
            engine,
            self.runner,
            tuple(tenants) or (EVERYBODY,),
            step_tokens=step_tokens,
            client_timeout_ns=int(client_timeout_seconds * SECOND_NS),
            client_timeout_steps=client_timeout_steps,
            classes=classes,
            drafter=drafter,
            drafts=drafts,
        )
        assert self.scheduler.ledger is not None
        self.ledger = self.scheduler.ledger
        self.scheduler.fills.starved_ns = read_waited_ns
        self.runner.attach(self.scheduler.records)
        self._recorder = StepRecorder(self.scheduler)
        self._findings: tuple[Finding, ...] = ()  # of devices that were opened again since
        self._secrets: dict[str, bytes] = {}  # by tenant, or by the group whose members share a cache
        self._closed = False

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """Return the scheduler's current tenants; a tenant's number is its index."""
        return tuple(self.scheduler.tenants)

    def _renew_scheduler(self) -> Runner:
        """Reopen the device and load the model again, after a step that did not finish."""
        assert self._again is not None
        self._keep_findings()
        with suppress(Exception):  # it hangs
            self.engine.close()
        self.engine = self._again()
        return self.engine.runner

    def close(self) -> None:
        """Release the device. Unfinished requests are lost; a second call has no effect."""
        if not self._closed:
            self._keep_findings()
            self._closed = True
            self.engine.close()
            if self.scheduler.speculation is not None:
                self.scheduler.speculation.drafter.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def device_findings(self) -> list[Finding]:
        """Return the findings of the current device, if it is simulated, about any work on it. It reports an error
        of an instruction only once, so later work may be wrong without another finding.
        """
        return [] if self._closed else read_findings(self.engine.backend)

    def findings(self) -> tuple[Finding, ...]:
        """Return the distinct findings of simulated devices since the model was opened, including devices that
        hung and were reopened; also valid after `close`.
        """
        return tuple(dict.fromkeys((*self._findings, *self.device_findings())))

    def _keep_findings(self) -> None:
        """Remember the findings of a device before it is closed."""
        with suppress(Exception):  # it may be lost
            self._findings = self.findings()

    def usage(self, tenant: str = "") -> Counter[str]:
        """Return a tenant's usage counters by name (docs/ledger.md), by default the first tenant's."""
        return self.ledger.usage(self.tenants[self.find_tenant(tenant)].name)

    def copy_last_steps(self, count: int) -> StepTrace:
        """Return a copy of the trace of the last steps. Call it between two steps."""
        return self._recorder.trace.copy_last(count)

    def trace(self, file: str | Path) -> None:
        """Write the last steps as a timeline for chrome://tracing or Perfetto: slots, queues, pages."""
        write_chrome(build_timeline(self._recorder.trace), file)

    def build(self, tokens: int, sampling: Sampling = Sampling()) -> None:  # noqa: B008
        """Load the weights and build the graphs for a prompt of this length and its answer, in advance."""
        maximum, page = self.scheduler.limits.step_tokens, self.engine.limits.page_tokens
        whole = tokens // page * page if self.scheduler.cache.rows is not None else 0  # a state is kept behind it
        pieces = [
            size
            for part in (whole, tokens - whole)
            for size in (*[maximum] * (part // maximum), part % maximum)
            if size
        ]
        draws = {pieces.pop()}
        for size in sorted({*pieces, *draws}, reverse=True):
            if size in pieces:
                self.runner.build(size, Sampling(), role="prompt")  # a part of a prompt that draws nothing
            if size in draws:
                self.runner.build(size, sampling, role="prompt")
        if sampling.max_tokens > 1:
            self.runner.build(1, sampling)
        if (drafts := self.scheduler.limits.drafts) and sampling.max_tokens > 1:
            self.runner.build(1 + drafts, sampling, rows=1 + drafts)
            self.runner.build_draft(1)

    def build_all(self, *, load: bool = True) -> None:
        """Load the weights and build the graphs of every step size, greedy and sampled, in advance. `load` False:
        only plan them, into the engine's store."""
        limits = self.engine.limits
        for tokens in list_token_capacities(limits):
            for sampling in (Sampling(), Sampling(temperature=1.0))[: 1 if self.engine.model.pooling else 2]:
                sequences = min(tokens, limits.slots)
                self.runner.build(sequences, sampling, sequences=sequences, load=load)
                if tokens > 1 or self.engine.variants.prefill_ordering:
                    self.runner.build(tokens, sampling, role="prompt", load=load)
            self.runner.build_draft(min(tokens, limits.slots), load=load)

    def find_tenant(self, name: str) -> int:
        """Return a tenant's number, by default the first. Raises UsageError for an unknown tenant."""
        names = [tenant.name for tenant in self.tenants]
        if not name:
            return 0
        if name not in names:
            raise UsageError(f"unknown tenant {name!r}", next=f"one of {', '.join(names)}")
        return names.index(name)

    def make_namespace(self, tenant: int, salt: str = "") -> Namespace:
        """Return the prefix-cache namespace of a tenant's requests: the prefixes of the tenant and its group; with
        a salt, only those with the same salt.
        """
        secret = self._secrets.setdefault(self._find_owner(tenant), secrets.token_bytes(32))
        limits, ordering = self.engine.limits, self.engine.ordering
        path = str(self.engine.model.gguf.path)
        return make_namespace(path, ordering, limits.kv_type, limits.page_tokens, secret=secret, salt=salt)

    def forget_cache(self, tenant: int) -> None:
        """Drop the cached prefixes of the tenant, or of its group. Their pages are reclaimed on demand."""
        self._secrets.pop(self._find_owner(tenant), None)

    def _find_owner(self, tenant: int) -> str:
        """Return the owner of the secret for a tenant's prefixes."""
        known = self.scheduler.tenants[tenant]
        group = next((f"group {quota.group}" for quota in known.pages if quota.group is not None), "")
        return group or f"tenant {known.name}"

    # --- what is asked

    def check(self, tokens: Sequence[object], sampling: Sampling) -> None:
        """Check a prompt and its sampling parameters. Raises UsageError if the request can never be served,
        ContextExceeded if the prompt is too long."""
        sampling.check()
        limits = self.engine.limits
        if sampling.n > limits.slots:
            raise UsageError(
                f"n {sampling.n}: each choice needs a slot, but there are only {limits.slots}",
                next=f"set n to at most {limits.slots}, or open the model with more slots",
            )
        if sampling.stop:
            self.require_tokenizer("a stop string")
        if not tokens:
            raise UsageError("the prompt has no tokens", next="use a longer prompt")
        self._check_ids("the prompt", tokens)
        if len(tokens) > limits.ctx:
            raise ContextExceeded(
                f"the prompt's {len(tokens)} tokens do not fit the context of {limits.ctx}",
                next="use a larger ctx or fewer tokens",
            )
        self._check_ids("logit_bias", sampling.logit_bias)
        self._check_ids("stop_token_ids", sampling.stop_token_ids)

    def _check_ids(self, where: str, tokens: Iterable[object]) -> None:
        vocab = self.engine.model.vocab
        for token in tokens:
            if not isinstance(token, Integral) or not 0 <= int(token) < vocab:
                raise UsageError(f"{where}: token id {token!r} is outside the vocabulary of {vocab}")

    def submit_tokens(
        self,
        number: int,
        tokens: Sequence[int],
        sampling: Sampling,
        *,
        tenant: int = 0,
        priority: Priority | None = None,
        deadline_ns: int | None = None,
        session: int = 0,
        salt: str = "",
        mask: TokenMask | None = None,
        drafts: int | None = None,
        decoded_from: int | None = None,
    ) -> Request:
        """Submit a checked request under the unused number `number`; `sampling` has a seed. May be called
        from any thread. `decoded_from`: see NewRequest.

        The answer is limited by the remaining context. Raises UsageError if the tenant's quotas can never
        hold the request.
        """
        limit = min(sampling.max_tokens, self.engine.limits.ctx + 1 - len(tokens))
        if not self.engine.model.caches_prompts:
            salt = f"{salt} {number}"  # the hidden states of cached tokens would be missing
        return self.scheduler.submit(
            NewRequest(
                number,
                tenant,
                tokens,
                self.make_namespace(tenant, salt),
                replace(sampling, max_tokens=limit, min_tokens=min(sampling.min_tokens, limit)),
                priority,
                deadline_ns,
                self.end_ids,
                session=session,
                mask=mask,
                drafts=drafts,
                decoded_from=decoded_from,
            )
        )

    def require_pooling(self, whole_text: bool = True) -> str:
        """Return the pooling of an embedding model. Raises UsageError for a model that generates text, for a
        reranker, or, with `whole_text`, for one without an embedding of a whole text."""
        pooling, name = self.engine.model.pooling, self.engine.model.gguf.name
        if not pooling:
            raise UsageError(
                f"{name} generates text: its file defines no pooling, so it has no embeddings",
                next="use an embedding model, such as Qwen3-Embedding, nomic-embed-text or BGE",
            )
        if pooling == "rank":
            raise UsageError(
                f"{name} is a reranker (pooling rank): it scores pairs of texts, and has no embeddings",
                next="rank documents (LLM.rank, POST /v1/rerank), or use an embedding model",
            )
        if whole_text and pooling == "none":
            raise UsageError(f"{name} has an embedding for each token, but none for a whole text")
        return pooling

    @property
    def ranks_pairs(self) -> bool:
        """Return whether the model is a reranker, which computes a query and a document as one prompt."""
        return self.engine.model.rank_head is not None

    def require_ranking(self) -> None:
        """Raise UsageError for a model that ranks no documents."""
        if not self.ranks_pairs:
            self.require_pooling()

    def make_rank_prompts(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """Return the prompt tokens of a query with each document, for a reranker. Control tokens in the texts are
        text. Raises UsageError without a tokenizer, InputError for an unusable template."""
        from zinc_rt.model.chat import make_rank_prompt

        tokenizer = self.require_tokenizer("ranking")
        template = self.engine.model.gguf.metadata.get("tokenizer.chat_template.rerank")
        return [make_rank_prompt(tokenizer, template, query, document) for document in documents]

    def require_generation(self) -> None:
        """Raise UsageError for an embedding model, which does not generate text."""
        if pooling := self.engine.model.pooling:
            kind, use = "an embedding model", "its embeddings (LLM.embed, POST /v1/embeddings)"
            if self.ranks_pairs:
                kind, use = "a reranker", "its scores (LLM.rank, POST /v1/rerank)"
            raise UsageError(
                f"{self.engine.model.gguf.name} is {kind} (pooling {pooling}), and generates no text",
                next=f"use {use}, or a model that generates text",
            )

    def require_tokenizer(self, what: str) -> Tokenizer:
        """Return the tokenizer. Raises UsageError if the file has no readable tokenizer."""
        if self.tokenizer is None:
            raise UsageError(
                f"{what} needs a tokenizer: {self.no_tokenizer}", next="pass prompts as lists of token ids"
            )
        return self.tokenizer

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Render a conversation with the file's chat template. `variables` are passed to the template
        (enable_thinking, tools, ...). Raises UsageError without a tokenizer, InputError if the template
        rejects the conversation."""
        from zinc_rt.model.chat import find_chat_template, render_chat  # Jinja only where somebody chats

        tokenizer = self.require_tokenizer("a chat")
        bos, eos = (self._token_text(id) for id in (tokenizer.bos_id, tokenizer.eos_id))
        template = find_chat_template(self.engine.model.gguf.metadata)
        return render_chat(template, messages, bos_text=bos, eos_text=eos, **variables)

    def tokenize_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
        """Return the prompt tokens of a conversation. See `make_chat_prompt`."""
        return self.make_chat_prompt(messages, **variables)[1]

    def make_chat_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        marks: Iterable[str] = (),
        continued: bool = False,
        **variables: Any,
    ) -> tuple[str, list[int]]:
        """Return the prompt of a conversation, as text and as tokens. Control tokens in the messages are text: see
        zinc_rt/model/chat.py. Raises like `render_chat`."""
        from zinc_rt.model.chat import find_chat_template, make_chat_prompt

        tokenizer = self.require_tokenizer("a chat")
        template = find_chat_template(self.engine.model.gguf.metadata)
        return make_chat_prompt(tokenizer, template, messages, marks=marks, continued=continued, **variables)

    def encode_chat(self, text: str) -> list[int]:
        """Tokenize a prompt rendered by a template. Most templates include the BOS token."""
        tokenizer = self.require_tokenizer("a chat")
        bos = self._token_text(tokenizer.bos_id)
        return tokenizer.encode(text, add_special=not (bos and text.startswith(bos)))

    def _token_text(self, id: int | None) -> str:
        return "" if id is None else self.require_tokenizer("a chat").token_text(id)

    def check_open(self) -> None:
        """Raise UsageError after `close`."""
        if self._closed:
            raise UsageError("this LLM is closed", next="open another")


def create_scheduler(
    engine: Engine,
    runner: StepRunner,
    tenants: Sequence[Tenant],
    *,
    clock_ns: Callable[[], int] = time.monotonic_ns,
    pages: int | None = None,
    step_tokens: int = 0,
    drafter: Drafter | None = None,
    **changes: Any,
) -> Scheduler:
    """Return a scheduler of an engine's model, with the pages and state rows of the engine's limits.

    Every front end and every gate with a device creates its scheduler here. `pages`: number per group, to make
    pages scarce; `step_tokens`: 0 for the engine's; `drafter`: see Scheduler; `changes`: non-default values of
    other SchedulerLimits fields (reported by `limit_changes`). If a GPU's driver kills long submissions
    (BackendSpec.submission_seconds), prompts are split into steps below that limit.
    """
    seconds = engine.backend.spec.submission_seconds
    if seconds and not engine.backend.device.simulated:  # whose time says nothing about a GPU's
        changes.setdefault("submission_ns", round(seconds * SECOND_NS))
    limits, groups = engine.limits, make_page_pools(engine)
    if engine.model.pooling:
        changes["embeds"] = True
    if engine.model.whole_sequences:
        step_tokens, changes["whole_prompts"] = 0, True
    if pages is not None:
        groups = [replace(group, pages=pages) for group in groups]
    if prefill := engine.variants.prefill_ordering:
        changes |= {"cost": PREDICTED_BY_PREFILL[prefill], **changes, "prefill_ordering": prefill}
    asked = SchedulerLimits(limits.slots, limits.ctx, step_tokens or limits.step_tokens, **changes)
    rows = limits.recurrent_rows if count_state_row_bytes(engine.model.graph) else 0
    cache = KvCache(groups, limits.page_tokens, asked.step_tokens, rows, limits.ctx)
    ledger = UsageLedger([tenant.name for tenant in tenants], {group.name: group.pages for group in groups})
    vocab = engine.variants.model("decode").columns
    return Scheduler(asked, tenants, cache, runner, clock_ns, ledger=ledger, vocab=vocab, drafter=drafter)


def _load_tokenizer(gguf: GGUFFile) -> tuple[Tokenizer | None, str]:
    """Return the file's tokenizer, or the reason why there is none; prompts of ids do not need one."""
    try:
        return Tokenizer.from_metadata(gguf.metadata), ""
    except ZincError as error:
        return None, error.message
