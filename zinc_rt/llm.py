"""A model to ask from Python: many prompts at once, each answered as if it were alone.

    with LLM("M.gguf") as llm:
        for completion in llm.generate(["The capital of France is"], Sampling(max_tokens=16)):
            print(completion.text)

One host thread. Prompts share the device: each step computes for as many as there are slots, and whoever waits
for one answer drives the others too.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from zinc_rt.completion import Answer, Completion, TextPiece, TokenLogprob
from zinc_rt.devices import choose_tier, open_backend
from zinc_rt.engine import Engine, default_ctx
from zinc_rt.errors import InputError, UsageError, ZincError
from zinc_rt.mem.context_bytes import state_row_bytes
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.model_runner import ModelRunner
from zinc_rt.runner import Runner
from zinc_rt.sampling import Sampling
from zinc_rt.sched.kv_cache import KvCache, PageGroup
from zinc_rt.sched.ledger import UsageLedger
from zinc_rt.sched.messages import Batch, NewRequest
from zinc_rt.sched.plan import RowLogprobs
from zinc_rt.sched.prefix import namespace
from zinc_rt.sched.request import Request
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.state import SchedulerLimits
from zinc_rt.sched.step_timeline import write_chrome
from zinc_rt.sched.step_trace import StepRecorder
from zinc_rt.sched.tenant import Tenant
from zinc_rt.text import TextOut

EMBEDDED = Path(__file__).resolve().parent / "golden"  # the models that ship with the package
MAX_SLOTS = 512
EVERYBODY = Tenant("default")

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


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


class LLM:
    """A model on a device, resident until it is closed: use it as a context manager."""

    def __init__(
        self,
        model: str | Path,
        tier: str = "auto",
        device: str = "auto",
        slots: int = 8,
        ctx: int | None = None,
        *,
        tenants: Sequence[Tenant] = (),
        ordering: str = "canonical-1",
        threads: int = 0,
        timeout: float | None = None,
    ) -> None:
        """`model`: a GGUF file, or the name of a model that ships with the package. `slots`: so many answers are
        made at once. `ctx`: tokens that a prompt and its answer may have together (default: the model's, 4096 at
        most). `timeout`: seconds that one step may take.

        Raises ZincErrors, each with what to do: for a file that cannot be read or run, a tier that cannot be used,
        a context that does not fit.
        """
        if not 1 <= slots <= MAX_SLOTS:
            raise UsageError(f"slots {slots}: wanted 1 to {MAX_SLOTS}")
        choice = choose_tier(tier, device, ordering=ordering)
        gguf = read_gguf(_file(model))
        if not gguf.tensors:
            raise InputError(
                f"{gguf.path}: a vocabulary only, without tensors to compute with", next="use a whole model"
            )
        limits = SequenceLimits(default_ctx(gguf, ctx), slots, state_rows=2 * slots + 1, rows=slots)

        def opened() -> Engine:
            backend = open_backend(choice, ordering, threads=threads)
            try:
                return Engine(gguf, backend, limits=limits, timeout_seconds=timeout)
            except BaseException:
                backend.close()
                raise

        engine = opened()
        try:
            self._begin(engine, tenants, again=opened)
        except BaseException:
            engine.close()
            raise
        self.why = choice.why

    @classmethod
    def over(cls, engine: Engine, *, tenants: Sequence[Tenant] = (), step_tokens: int = 0) -> LLM:
        """An LLM over an engine that is open and runs nothing else; closing it closes that too. `step_tokens`: the
        most of a step, where the engine's limit is not it."""
        made = cls.__new__(cls)
        made._begin(engine, tenants, step_tokens=step_tokens)
        made.why = f"{engine.backend.spec.tier}: the engine's"
        return made

    def _begin(
        self,
        engine: Engine,
        tenants: Sequence[Tenant],
        *,
        step_tokens: int = 0,
        again: Callable[[], Engine] | None = None,
    ) -> None:
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

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the device back. What is still being made is lost; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.engine.close()

    # --- asking

    def generate(
        self,
        prompts: str | Sequence[Prompt] | Sequence[int],
        sampling: Sampling | Sequence[Sampling] = Sampling(),  # noqa: B008  # it is a value
        *,
        tenant: str = "",
    ) -> list[Completion]:
        """Answer all prompts, texts or lists of token ids: n Completions for each, in their order.

        `sampling`: of all, or one for each. Raises UsageError, with nothing begun, for a prompt or a value that
        cannot be served, and what the device raises where a step fails.
        """
        whole = _prompts(prompts)
        each = [sampling] * len(whole) if isinstance(sampling, Sampling) else list(sampling)
        if len(each) != len(whole):
            raise UsageError(
                f"{len(whole)} prompts and {len(each)} samplings", next="give one for all, or one each"
            )
        asked = [self._prepare(prompt, one) for prompt, one in zip(whole, each, strict=True)]
        try:
            for one in asked:
                self._submit(one, tenant)
            while not all(one.done for one in asked):
                self.step()
        finally:
            self._abandon(asked)
        return [completion for one in asked for completion in one.completions()]

    def stream(self, prompt: Prompt, sampling: Sampling = Sampling(), *, tenant: str = "") -> Iterator[TextPiece]:  # noqa: B008
        """The answer piece by piece as it is made, with n > 1 the answers' pieces in turns. Dropping the iterator
        cancels what is left."""
        asked = self._prepare(prompt, sampling)

        def pieces() -> Iterator[TextPiece]:
            live = list(asked.answers)
            try:
                self._submit(asked, tenant)
                while live:
                    fresh = [piece for answer in live if (piece := answer.piece()) is not None]
                    if not fresh:
                        self.step()
                    live = [answer for answer in live if not answer.told]
                    yield from fresh
            finally:
                self._abandon([asked])

        return pieces()

    def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        **variables: Any,
    ) -> list[Completion]:
        """Answer a conversation, put through the file's own template: n Completions. `variables` reach the
        template (enable_thinking, tools, ...)."""
        return self.generate([self.chat_tokens(messages, **variables)], sampling, tenant=tenant)

    def chat_tokens(self, messages: Sequence[Message], **variables: Any) -> list[int]:
        """The prompt that `chat` makes of a conversation."""
        from zinc_rt.model.chat import chat_template, render_chat

        tokenizer = self._needed_tokenizer("a chat")
        bos, eos = ("" if id is None else tokenizer.token_text(id) for id in (tokenizer.bos_id, tokenizer.eos_id))
        template = chat_template(self.engine.model.gguf.metadata)
        text = render_chat(template, messages, bos_text=bos, eos_text=eos, **variables)
        return tokenizer.encode(text, add_special=not (bos and text.startswith(bos)))

    # --- what came of it

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

    def build(self, tokens: int, *, decode: bool = True) -> None:
        """Load the weights and build the graphs that a prompt of so many tokens runs, with `decode` also the one
        for the tokens after it, so that no answer waits for them."""
        most = self.scheduler.limits.step_tokens
        for size in sorted({min(tokens, most), tokens % most or most, *([1] if decode else [])}, reverse=True):
            self.runner.build(size)

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
            self._asked.pop(one.number, None)
            self.scheduler.cancel(one.number)
            for answer in one.answers:
                answer.end("cancelled")
        if not self._closed:
            self.scheduler.settle()

    # --- what is asked

    def _prepare(self, prompt: Prompt, sampling: Sampling) -> Asked:
        self._check_open()
        sampling.check()
        limits = self.engine.limits
        if sampling.n > limits.slots:
            raise UsageError(
                f"n {sampling.n}: each answer needs a slot, and there are {limits.slots}",
                next=f"ask for at most {limits.slots}, or open the LLM with more slots",
            )
        if sampling.stop:
            self._needed_tokenizer("a stop string")
        if isinstance(prompt, str):
            tokens = self._needed_tokenizer("a text prompt").encode(prompt)
        else:
            tokens = list(prompt)
        self._check_tokens(tokens)
        answers = [Answer(index, self._text_out(sampling), self._end_ids) for index in range(sampling.n)]
        return Asked(0, tokens, sampling.seeded(), answers)

    def _check_tokens(self, tokens: list[int]) -> None:
        vocab, ctx = self.engine.model.vocab, self.engine.limits.ctx
        if not tokens:
            raise UsageError("the prompt has no tokens", next="give a longer one")
        wrong = next((token for token in tokens if not isinstance(token, int) or not 0 <= token < vocab), None)
        if wrong is not None:
            raise UsageError(f"token id {wrong} is outside the vocabulary of {vocab}")
        if len(tokens) > ctx:
            raise UsageError(
                f"the prompt's {len(tokens)} tokens do not fit the context of {ctx}",
                next="give a larger ctx, or fewer tokens",
            )

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


def _prompts(prompts: str | Sequence[Prompt] | Sequence[int]) -> list[Prompt]:
    """A list of prompts, also where one alone was given."""
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(each, int) for each in prompts):
        return [[int(each) for each in prompts]]  # type: ignore[arg-type]  # token ids of one prompt
    return list(prompts)  # type: ignore[arg-type]


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


def _file(model: str | Path) -> Path:
    """A model's file: a path, or the name of one that ships with the package."""
    path = Path(model)
    shipped = EMBEDDED / f"{path.name}.gguf"
    return shipped if str(path) == path.name and not path.exists() and shipped.exists() else path


def _tokenizer(gguf: GGUFFile) -> tuple[Tokenizer | None, str]:
    """The file's tokenizer, or why there is none: ids will do without."""
    try:
        return Tokenizer.from_metadata(gguf.metadata), ""
    except ZincError as error:
        return None, error.message
