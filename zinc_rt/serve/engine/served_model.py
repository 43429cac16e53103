"""A resident model of a server: its core, and the streams of its clients."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.engine.answering import find_logprob
from zinc_rt.engine.engine import make_page_pools
from zinc_rt.engine.engine_core import EngineCore
from zinc_rt.engine.opening import EMBEDDED, EngineOpener, make_engine_opener
from zinc_rt.engine.variants import BIT_DEFINED
from zinc_rt.host.errors import InputError, format_findings
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.config.memory_plan import make_options
from zinc_rt.serve.config.settings import Config, ModelSettings
from zinc_rt.serve.engine.answer_stream import AnswerStream
from zinc_rt.serve.engine.hang_report import save_hang
from zinc_rt.serve.engine.model_file import ModelFile
from zinc_rt.serve.engine.requests import Delivered, EngineRequest
from zinc_rt.serve.formats.format import Format
from zinc_rt.serve.formats.table import choose, format_by_name
from zinc_rt.serve.http.request_ids import RequestIds
from zinc_rt.serve.observe.answer_log import log_answer
from zinc_rt.serve.observe.model_metrics import ModelMetrics, RequestTimes
from zinc_rt.serve.tenants.quotas import make_scheduler_classes, make_scheduler_tenants

if TYPE_CHECKING:
    from zinc_rt.serve.grammars.grammar import GrammarCompiler

LATEST_SECONDS = 1e9  # a deadline beyond is none
Delivery = tuple[AnswerStream, Delivered]


@dataclass(eq=False)
class ServedModel:
    """One model on the device. The engine thread runs its core; `ask` is for the event loop.

    `used_seconds`: device time. `virtual_seconds`: device time divided by the weight, which decides the next
    model to step.
    """

    settings: ModelSettings
    opener: EngineOpener
    core: EngineCore
    files: tuple[ModelFile, ...]  # the parts of a split model
    wake: Callable[[], None]  # the engine's thread: there is a message
    used_seconds: float = 0.0
    virtual_seconds: float = 0.0
    was_busy: bool = False  # when a turn was last taken
    used_at: float = field(default_factory=time.monotonic)  # when somebody last asked, at first when it came
    marked_answers: int = 0  # requests in progress at or after a finding of the simulated device
    leaving: bool = False  # it takes nothing new
    lost: str = ""  # why it answers nobody any more
    lost_code: str = ""  # the same for programs
    streams: dict[int, AnswerStream] = field(default_factory=dict)
    arriving: Counter[tuple[int, Priority]] = field(default_factory=Counter)  # asked, and in no queue yet
    metrics: ModelMetrics = field(init=False)
    request_ids: RequestIds = field(default_factory=RequestIds)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    hang_report: str = ""  # of the last step that failed

    def __post_init__(self) -> None:
        self.core.scheduler.failed = self._handle_failure
        self.metrics = ModelMetrics(self.core.scheduler, self._report_end)

    @property
    def id(self) -> str:
        return self.settings.id

    @property
    def ctx(self) -> int:
        return self.core.engine.limits.ctx

    @property
    def random_weights(self) -> bool:
        """Return whether the model ships with the package. Its weights are random, so its answers have no
        meaning."""
        return Path(self.opener.gguf.path).parent == EMBEDDED

    @property
    def deterministic(self) -> bool:
        """Return whether answers do not depend on concurrent requests."""
        return self.core.engine.backend.ordering in BIT_DEFINED

    @cached_property
    def format(self) -> Format:
        """Return the syntax of reasoning and tool calls, from the configuration or else from the chat
        template."""
        if self.settings.format is not None:
            return format_by_name(self.settings.format)
        template = self.core.engine.model.gguf.metadata.get("tokenizer.chat_template")
        return choose(template if isinstance(template, str) else None)

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Return the grammar compiler. Raises UsageError without a tokenizer."""
        from zinc_rt.serve.grammars.grammar import GrammarCompiler  # llguidance only where it is asked for

        tokenizer = self.core.require_tokenizer("a grammar")
        return GrammarCompiler(tokenizer, self.core.engine.model.vocab, self.format.marks)

    @property
    def _has_grammars(self) -> bool:
        return self.core.tokenizer is not None and not self.core.engine.model.pooling

    def prepare_grammars(self) -> None:
        """Build what grammars need in a thread, a second's work for a large vocabulary. Nothing waits for it."""
        if self._has_grammars:
            threading.Thread(target=self.grammars.prepare, name="grammars", daemon=True).start()

    def close(self) -> None:
        """Release the device, and end the process that tries grammars."""
        self.core.close()
        if self._has_grammars:
            self.grammars.close()

    @property
    def fingerprint(self) -> str:
        """Return OpenAI's system_fingerprint, a digest of the files, the ordering and the kernels."""
        engine = self.core.engine
        text = " ".join([*(file.digest for file in self.files), engine.ordering, engine.backend.kernels.target])
        return f"fp_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def findings(self) -> str:
        """Return the number of findings of the simulated device and the first as a sentence. Findings mean that
        answers may be wrong."""
        reported = self.core.findings()
        return f"{self.id}: {format_findings(reported)}" if reported else ""

    def drafter_failure(self) -> str:
        """Return why the model is decoded without speculation, or ""."""
        speculation = self.core.scheduler.speculation
        return f"{self.id}: {speculation.failure}" if speculation is not None and speculation.failure else ""

    @property
    def pending(self) -> bool:
        """Return whether a request is unfinished, or a message or timer is due."""
        scheduler = self.core.scheduler
        due_ns = scheduler.find_next_event()
        return bool(scheduler.live) or (due_ns is not None and due_ns <= time.monotonic_ns())

    # --- in the event loop

    def ask(self, ask: EngineRequest) -> AnswerStream:
        """Start a request. Raises UsageError if it can never run."""
        core, sampling, self.used_at = self.core, ask.sampling.with_seed(), time.monotonic()
        core.check(ask.tokens, sampling)
        tenant = core.find_tenant(ask.tenant)
        number = next(self._numbers)
        stream = AnswerStream(
            number, replace(ask, sampling=sampling), tenant, cancel=self._cancel, hold=self._hold
        )
        deadline_ns = None
        if ask.deadline_seconds is not None:
            deadline_ns = time.monotonic_ns() + int(1e9 * min(ask.deadline_seconds, LATEST_SECONDS))
        self.streams[number] = stream
        self.request_ids.add(number, ask.request_id)
        priority = core.tenants[tenant].priority if ask.priority is None else ask.priority
        self.arriving[tenant, priority] += 1
        try:
            stream.request = core.submit_tokens(  # a step may run before it is set: nothing there needs it
                number,
                ask.tokens,
                sampling,
                tenant=tenant,
                priority=ask.priority,
                deadline_ns=deadline_ns,
                session=hash_session_name(ask.session),
                salt=ask.cache_salt,
                mask=ask.grammar,
                drafts=ask.drafts,
                decoded_from=ask.decoded_from,
            )
        except BaseException:
            del self.streams[number]
            raise
        return stream

    def _cancel(self, number: int, reason: str, index: int | None) -> None:
        self.core.scheduler.cancel(number, reason, choice=index)
        self.wake()

    def _hold(self, number: int, held: bool) -> None:
        self.core.scheduler.hold(number, held)
        self.wake()

    # --- in the engine's thread

    def _report_end(self, request: Request, times: RequestTimes, now_ns: int) -> None:
        tenant = self.core.scheduler.tenants[request.tenant].name
        log_answer(self.id, tenant, self.request_ids.of(request.number), request, times, now_ns)

    def _handle_failure(self, error: Exception, plan: StepPlan) -> None:
        self.hang_report = save_hang(self.id, self.core.scheduler, self.core.engine.backend, plan, error)

    def step(self) -> list[Delivery] | None:
        """Run a step and return its output by stream, or None if there is nothing to run."""
        start = time.monotonic()
        self.arriving = Counter()  # the step takes them in
        batch = self.core.scheduler.step()
        seconds = time.monotonic() - start
        self.used_seconds += seconds
        self.virtual_seconds += seconds / self.settings.weight
        self._mark_findings()
        return None if batch is None else self._make_deliveries(batch)

    def _mark_findings(self) -> None:
        """Mark the answers in progress if the device has reported a finding. The device reports an error only
        once, so every unfinished answer may be wrong.
        """
        if findings := self.core.device_findings():
            streams = list(self.streams.values())
            self.marked_answers += sum(not stream.findings for stream in streams)
            for stream in streams:
                stream.findings = findings

    def _make_deliveries(self, batch: Batch) -> list[Delivery]:
        result: dict[tuple[int, int], Delivered] = {}
        delivered = Counter[int]()
        ended = {(number, choice): reason for number, choice, reason in batch.ended}
        embeddings = self.core.runner.embeddings
        rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
        for row, (number, choice, token) in enumerate(rows):
            stream = self.streams.get(number)
            if stream is None or embeddings is not None:
                continue
            delivered[stream.tenant] += 1
            logprob = (
                None if batch.logprobs is None else find_logprob(batch.logprobs, row, token, stream.ask.sampling)
            )
            before = result.get((number, choice), Delivered(choice))
            logprobs = None if logprob is None else (*(before.logprobs or ()), logprob)
            result[number, choice] = Delivered(choice, (*before.token_ids, token), logprobs)
        for (number, choice), reason in ended.items():
            result[number, choice] = replace(result.get((number, choice), Delivered(choice)), finish_reason=reason)
            if embeddings is not None:
                result[number, choice] = replace(result[number, choice], embedding=embeddings.take(number))
        for number, _, reason in batch.ended:
            if reason == "device_hang" and (stream := self.streams.get(number)) is not None:
                stream.detail = f"report {self.hang_report}"
        for tenant, count in delivered.items():
            self.core.ledger.count("tokens_delivered", tenant, count)
        deliveries = [
            (stream, item) for (number, _), item in result.items() if (stream := self.streams.get(number))
        ]
        for number, _, _ in batch.ended:
            if number not in self.core.scheduler.live:
                self.streams.pop(number, None)
        return deliveries


def open_model(
    settings: ModelSettings,
    config: Config,
    wake: Callable[[], None],
) -> ServedModel:
    """Open a model. Raises ZincErrors with advice for unreadable or unsupported files, unusable tiers and a
    context that does not fit."""
    opener = make_engine_opener(settings.path, make_options(settings, config.device))
    files = tuple(ModelFile.of(part.path) for part in opener.gguf.parts)
    engine = opener()
    try:
        if settings.embeddings not in (None, engine.model.pooling):
            raise InputError(
                f"model {settings.id}: embeddings is {settings.embeddings}, but the pooling of "
                f"{opener.gguf.name} is {engine.model.pooling or 'not defined: it generates text'}",
                next="remove embeddings from the configuration",
            )
        core = EngineCore(
            engine,
            make_scheduler_tenants(config, [group.pages for group in make_page_pools(engine)]),
            step_tokens=settings.step_tokens,
            again=opener,
            classes=make_scheduler_classes(config),
            client_timeout_seconds=config.server.client_timeout_s,
            client_timeout_steps=config.server.client_timeout_steps,
            drafter=opener.open_drafter(engine),
            drafts=opener.drafts,
        )
        core.build_all()  # no client waits for weights and graphs
    except BaseException:
        engine.close()
        raise
    return ServedModel(settings, opener, core, files, wake)


def hash_session_name(name: str) -> int:
    """Return the number of a session name: a positive i64, 0 for no session."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little") | 1 if name else 0
