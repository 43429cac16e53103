"""Requests on one resident model, from their check to their last token: what LLM, and any other front, stands on.

A scheduler decides, a ModelRunner computes, answers are put together here as text. One host thread.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path

from zinc_rt.batching.completion import Answer, Completion, TokenLogprob
from zinc_rt.batching.model_runner import ModelRunner
from zinc_rt.engine import Engine
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.mem.context_bytes import state_row_bytes
from zinc_rt.model.gguf import GGUFFile
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.runner import Runner
from zinc_rt.sampling import Sampling
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import namespace
from zinc_rt.sched.messages import Batch, NewRequest
from zinc_rt.sched.plan import RowLogprobs
from zinc_rt.sched.request import Request
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.state import SchedulerLimits
from zinc_rt.sched.step_timeline import write_chrome
from zinc_rt.sched.step_trace import StepRecorder
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.usage.ledger import UsageLedger
from zinc_rt.text import TextOut

EVERYBODY = Tenant("default")
Prompt = str | Sequence[int]


@dataclass(slots=True, eq=False)
class Asked:
    """A prompt that was submitted, and its answers so far."""

    number: int
    tokens: list[int]
    sampling: Sampling
    answers: list[Answer]
    request: Request | None = None  # the scheduler's, of its first answer
    tenant: int = 0

    @property
    def computed(self) -> int:
        """Tokens of the prompt that are computed, cached ones included."""
        return 0 if self.request is None else min(self.request.computed, len(self.tokens))

    @property
    def cached_tokens(self) -> int:
        return 0 if self.request is None else self.request.cached

    @property
    def done(self) -> bool:
        return all(answer.ended for answer in self.answers)

    def completions(self) -> list[Completion]:
        assert self.sampling.seed is not None
        return [
            Completion(
                answer.text,
                tuple(answer.token_ids),
                answer.ended,
                self.sampling.seed,
                answer.index,
                answer.stop,
                None if self.sampling.logprobs is None else tuple(answer.logprobs),
                len(self.tokens),
                self.cached_tokens,
            )
            for answer in self.answers
        ]


class Answering:
    """One model and who asks it. It owns the engine, which runs nothing else: `close` closes that too."""

    def __init__(
        self,
        engine: Engine,
        tenants: Sequence[Tenant] = (),
        *,
        step_tokens: int = 0,
        again: Callable[[], Engine] | None = None,
    ) -> None:
        """`step_tokens`: the most of a step, where the engine's limit is not it. `again` opens such an engine
        anew, after a step that did not come back; None: then all is over."""
        limits, gguf = engine.limits, engine.model.gguf
        self.engine = engine
        self.tokenizer, self._no_tokenizer = _tokenizer(gguf)
        self._end_ids = self.tokenizer.eog_ids if self.tokenizer is not None else frozenset[int]()
        self.tenants = tuple(tenants) or (EVERYBODY,)
        step_tokens = step_tokens or limits.step_tokens
        cache = _kv_cache(engine, step_tokens)
        pages = {group.name: group.pages for group in cache.groups}
        self.ledger = UsageLedger([tenant.name for tenant in self.tenants], pages)
        self._again = again
        renew = None if again is None else self._renew
        self.runner = ModelRunner(engine.runner, end_ids=sorted(self._end_ids), renew=renew)
        self.scheduler = Scheduler(
            SchedulerLimits(limits.slots, limits.ctx, step_tokens),
            self.tenants,
            cache,
            self.runner,
            time.monotonic_ns,
            ledger=self.ledger,
        )
        self.runner.attach(self.scheduler.records)
        self._recorder = StepRecorder(self.scheduler)
        ordering = engine.backend.ordering
        self._namespaces = [namespace(str(gguf.path), ordering, "f32", limits.page_tokens) for _ in self.tenants]
        self._numbers = itertools.count(1)
        self._asked: dict[int, Asked] = {}
        self._closed = False

    def _renew(self) -> Runner:
        """The model on a device that was opened again, after a step that did not come back."""
        assert self._again is not None
        with suppress(Exception):  # it hangs
            self.engine.close()
        self.engine = self._again()
        return self.engine.runner

    def close(self) -> None:
        """Give the device back. What is still being made is lost; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.engine.close()

    def usage(self, tenant: str = "") -> Counter[str]:
        """What a tenant, by default the first, has used so far: counters by name (docs/ledger.md)."""
        return self.ledger.usage(self.tenants[self._tenant(tenant)].name)

    def trace(self, file: str | Path) -> None:
        """Write the last steps as a timeline for chrome://tracing or Perfetto: slots, queues, pages."""
        write_chrome(self._recorder.trace, file)

    # --- one step after the other

    def submit(self, prompt: Prompt, sampling: Sampling = Sampling(), *, tenant: str = "") -> Asked:  # noqa: B008
        """Ask without waiting: `step` makes the answers. Raises UsageError as `generate`."""
        asked = self._prepare(prompt, sampling)
        self._submit(asked, tenant)
        return asked

    def cancel(self, asked: Asked) -> None:
        """Make no more of the answers; what is done of them stays."""
        self._abandon([asked])

    def step(self) -> None:
        """Compute one step for all that was asked; waits where nothing may be computed yet."""
        self._check_open()
        batch = self.scheduler.step()
        if batch is not None:
            self._deliver(batch)
        elif (due_ns := self.scheduler.next_event()) is not None:
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        elif self._asked:
            raise RuntimeError("the scheduler has nothing to do, and somebody waits")
        if self.runner.interrupted:
            self.runner.interrupted = False
            raise KeyboardInterrupt

    def build(self, tokens: int, sampling: Sampling = Sampling()) -> None:  # noqa: B008
        """Load the weights and build the graphs of a prompt of so many tokens and its answer, so that neither
        waits for them."""
        most, page = self.scheduler.limits.step_tokens, self.engine.limits.page_tokens
        whole = tokens // page * page if self.scheduler.cache.rows is not None else 0  # a state is kept behind it
        sizes = {1} if sampling.max_tokens > 1 else set[int]()
        for part in filter(None, (whole, tokens - whole)):
            sizes |= {min(part, most), part % most or most}
        for size in sorted(sizes, reverse=True):
            self.runner.build(size, sampling)

    def _deliver(self, batch: Batch) -> None:
        rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
        delivered = Counter[int]()
        for row, (number, choice, token) in enumerate(rows):
            asked = self._asked.get(number)
            if asked is None:  # cancelled meanwhile
                continue
            delivered[asked.tenant] += 1
            logprob = None if batch.logprobs is None else _logprob(batch.logprobs, row, token, asked.sampling)
            if asked.answers[choice].feed(token, logprob):
                self.scheduler.cancel(number, "stop", choice=choice)
        for tenant, count in delivered.items():
            self.ledger.count("tokens_delivered", tenant, count)
        for number, choice, reason in batch.ended:
            if (asked := self._asked.get(number)) is not None:
                asked.answers[choice].end(reason)
                if asked.done:
                    del self._asked[number]

    def _abandon(self, asked: Sequence[Asked]) -> None:
        """Cancel what is still made of them, and have the scheduler let go of it now."""
        for one in asked:
            if self._asked.pop(one.number, None) is not None:
                self.scheduler.cancel(one.number)
                for answer in one.answers:
                    answer.end("cancelled")
        if not self._closed:
            self.scheduler.settle()

    # --- what is asked

    def _prepare(self, prompt: Prompt, sampling: Sampling) -> Asked:
        self._check_open()
        if not isinstance(sampling, Sampling):
            raise UsageError(f"sampling {sampling!r:.60}: wanted a Sampling")
        sampling.check()
        limits = self.engine.limits
        if sampling.n > limits.slots:
            raise UsageError(
                f"n {sampling.n}: each answer needs a slot, and there are {limits.slots}",
                next=f"ask for at most {limits.slots}, or open the LLM with more slots",
            )
        if sampling.stop:
            self._needed_tokenizer("a stop string")
        if not isinstance(prompt, str | Iterable):
            raise UsageError(f"prompt {prompt!r:.60}: wanted a text or a list of token ids")
        if isinstance(prompt, str):
            tokens = self._needed_tokenizer("a text prompt").encode(prompt)
        else:
            tokens = list(prompt)
        self._check_tokens(tokens)
        self._check_ids("logit_bias", sampling.logit_bias)
        self._check_ids("stop_token_ids", sampling.stop_token_ids)
        answers = [Answer(index, self._text_out(sampling), self._end_ids) for index in range(sampling.n)]
        return Asked(0, tokens, sampling.seeded(), answers)

    def _check_tokens(self, tokens: list[int]) -> None:
        ctx = self.engine.limits.ctx
        if not tokens:
            raise UsageError("the prompt has no tokens", next="give a longer one")
        self._check_ids("the prompt", tokens)
        if len(tokens) > ctx:
            raise UsageError(
                f"the prompt's {len(tokens)} tokens do not fit the context of {ctx}",
                next="give a larger ctx, or fewer tokens",
            )

    def _check_ids(self, where: str, tokens: Iterable[object]) -> None:
        vocab = self.engine.model.vocab
        for token in tokens:
            if not isinstance(token, Integral) or not 0 <= int(token) < vocab:
                raise UsageError(f"{where}: token id {token!r} is outside the vocabulary of {vocab}")

    def _submit(self, asked: Asked, tenant: str) -> None:
        asked.number = next(self._numbers)
        limit = min(asked.sampling.max_tokens, self.engine.limits.ctx + 1 - len(asked.tokens))
        number = asked.tenant = self._tenant(tenant)
        request = NewRequest(
            asked.number,
            number,
            asked.tokens,
            self._namespaces[number],
            replace(asked.sampling, max_tokens=limit, min_tokens=min(asked.sampling.min_tokens, limit)),
            end_tokens=self._end_ids,
        )
        self.scheduler.submit(request)
        self.scheduler.settle()
        asked.request = self.scheduler.live[asked.number][0]
        self._asked[asked.number] = asked

    def _tenant(self, name: str) -> int:
        names = [tenant.name for tenant in self.tenants]
        if not name:
            return 0
        if name not in names:
            raise UsageError(f"no tenant is called {name!r}", next=f"one of {', '.join(names)}")
        return names.index(name)

    def _text_out(self, sampling: Sampling) -> TextOut | None:
        return None if self.tokenizer is None else TextOut(self.tokenizer.stream_decoder(), sampling.stop)

    def _needed_tokenizer(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError(
                f"{what} needs a tokenizer: {self._no_tokenizer}", next="give prompts as lists of token ids"
            )
        return self.tokenizer

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("this LLM is closed", next="open another")


def _logprob(rows: RowLogprobs, at: int, token: int, sampling: Sampling) -> TokenLogprob | None:
    if sampling.logprobs is None:
        return None
    top = zip(rows.top_ids[at, : sampling.logprobs], rows.top_logprobs[at, : sampling.logprobs], strict=True)
    return TokenLogprob(token, float(rows.logprob[at]), tuple((int(id), float(value)) for id, value in top))


def _kv_cache(engine: Engine, step_tokens: int) -> KvCache:
    """The pages and state rows that the engine's limits give its model."""
    limits = engine.limits
    groups = [
        PageGroup(spec.name, limits.group_pages(group, spec.window), spec.window)
        for group, spec in enumerate(engine.page_groups)
    ]
    if not groups:  # nobody looks back: pages are a number that the graph does not read
        groups = [PageGroup("none", limits.slots * limits.pages_per_slot)]
    rows = limits.recurrent_rows if state_row_bytes(engine.model.graph) else 0
    return KvCache(groups, limits.page_tokens, step_tokens, rows, limits.ctx)


def _tokenizer(gguf: GGUFFile) -> tuple[Tokenizer | None, str]:
    """The file's tokenizer, or why there is none: ids will do without."""
    try:
        return Tokenizer.from_metadata(gguf.metadata), ""
    except ZincError as error:
        return None, error.message
