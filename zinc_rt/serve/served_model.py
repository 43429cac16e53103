"""A model that a server has resident: its core, and the streams of those who asked it."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from zinc_rt.batching.answering import logprob_of
from zinc_rt.batching.engine_core import EngineCore, pools_of
from zinc_rt.batching.opening import EngineOpener, engine_opener
from zinc_rt.errors import UsageError
from zinc_rt.sched.messages import Batch, NewRequest
from zinc_rt.sched.request import Request
from zinc_rt.serve.answer_log import tell_answer
from zinc_rt.serve.answer_stream import AnswerStream
from zinc_rt.serve.config import Config, ModelSettings
from zinc_rt.serve.model_file import ModelFile
from zinc_rt.serve.model_metrics import ModelMetrics, RequestTimes
from zinc_rt.serve.quotas import scheduler_tenants
from zinc_rt.serve.request_ids import RequestIds
from zinc_rt.serve.requests import Ask, Delivered

DETERMINISTIC = frozenset({"canonical-1", "canonical-1-q8"})
LATEST_SECONDS = 1e9  # a deadline beyond is none
Delivery = tuple[AnswerStream, Delivered]


@dataclass(eq=False)
class ServedModel:
    """One model on the device. The engine's thread runs its core; `ask` is for the event loop. `used_seconds` of
    the device, as those of a model of weight 1, decides whose step is next."""

    settings: ModelSettings
    opener: EngineOpener
    core: EngineCore
    file: ModelFile
    wake: Callable[[], None]  # the engine's thread: there is a message
    used_seconds: float = 0.0
    lost: str = ""  # why it answers nobody any more
    lost_code: str = ""  # the same for programs
    streams: dict[int, AnswerStream] = field(default_factory=dict)
    arriving: Counter[int] = field(default_factory=Counter)  # by tenant: asked, and in no queue yet
    metrics: ModelMetrics = field(init=False)
    request_ids: RequestIds = field(default_factory=RequestIds)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.metrics = ModelMetrics(self.core.scheduler, self._tell_end)

    @property
    def id(self) -> str:
        return self.settings.id

    @property
    def ctx(self) -> int:
        return self.core.engine.limits.ctx

    @property
    def deterministic(self) -> bool:
        """Whether an answer is the same whoever else asks."""
        return self.core.engine.backend.ordering in DETERMINISTIC

    @property
    def fingerprint(self) -> str:
        """OpenAI's system_fingerprint: of the file, the ordering and the kernels."""
        backend = self.core.engine.backend
        said = f"{self.file.digest} {backend.ordering} {backend.kernels.target}"
        return f"fp_{hashlib.sha256(said.encode()).hexdigest()[:16]}"

    @property
    def pending(self) -> bool:
        """Whether somebody asked and has not been answered, or a message or a timer is due."""
        scheduler = self.core.scheduler
        due_ns = scheduler.next_event()
        return bool(scheduler.live) or (due_ns is not None and due_ns <= time.monotonic_ns())

    # --- in the event loop

    def ask(self, ask: Ask) -> AnswerStream:
        """Begin a request. Raises UsageError for one that can never run."""
        core, sampling = self.core, ask.sampling.seeded()
        tenant = core.tenant_number(ask.tenant)
        limit = min(sampling.max_tokens, self.ctx + 1 - len(ask.tokens))
        if limit < 1:
            raise UsageError(f"the prompt's {len(ask.tokens)} tokens do not fit the context of {self.ctx}")
        asked = replace(ask, sampling=sampling)
        number = next(self._numbers)
        scheduler = core.scheduler
        stream = AnswerStream(
            number,
            asked,
            tenant,
            cancel=self._cancel,
            hold=self._hold,
        )
        deadline_ns = None
        if ask.deadline_seconds is not None:
            deadline_ns = time.monotonic_ns() + int(1e9 * min(ask.deadline_seconds, LATEST_SECONDS))
        new = NewRequest(
            number,
            tenant,
            ask.tokens,
            core.namespace(tenant, ask.cache_salt),
            replace(sampling, max_tokens=limit, min_tokens=min(sampling.min_tokens, limit)),
            ask.priority,
            deadline_ns,
            core.end_ids,
            session=session_number(ask.session),
            mask=ask.grammar,
        )
        self.streams[number] = stream
        self.request_ids.add(number, ask.request_id)
        self.arriving[tenant] += 1
        try:
            stream.request = scheduler.submit(new)  # a step may run before it is set: nothing there needs it
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

    def _tell_end(self, request: Request, times: RequestTimes, now_ns: int) -> None:
        tenant = self.core.scheduler.tenants[request.tenant].name
        tell_answer(self.id, tenant, self.request_ids.of(request.number), request, times, now_ns)

    def step(self) -> list[Delivery] | None:
        """Compute a step: what came of it, by stream. None where there is nothing to compute now."""
        began = time.monotonic()
        self.arriving = Counter()  # the step takes them in
        batch = self.core.scheduler.step()
        self.used_seconds += (time.monotonic() - began) / self.settings.weight
        return None if batch is None else self._deliveries(batch)

    def _deliveries(self, batch: Batch) -> list[Delivery]:
        made: dict[tuple[int, int], Delivered] = {}
        delivered = Counter[int]()
        ended = {(number, choice): reason for number, choice, reason in batch.ended}
        rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
        for row, (number, choice, token) in enumerate(rows):
            stream = self.streams.get(number)
            if stream is None:
                continue
            delivered[stream.tenant] += 1
            one = None if batch.logprobs is None else logprob_of(batch.logprobs, row, token, stream.ask.sampling)
            logprobs = None if one is None else (one,)
            reason = ended.pop((number, choice), None)
            made[number, choice] = Delivered(choice, (token,), logprobs, reason)
        for (number, choice), reason in ended.items():
            made[number, choice] = Delivered(choice, finish_reason=reason)
        for tenant, count in delivered.items():
            self.core.ledger.count("tokens_delivered", tenant, count)
        deliveries = [(stream, each) for (number, _), each in made.items() if (stream := self.streams.get(number))]
        for number, _, _ in batch.ended:
            if number not in self.core.scheduler.live:
                self.streams.pop(number, None)
        return deliveries


def open_model(
    settings: ModelSettings,
    config: Config,
    wake: Callable[[], None],
) -> ServedModel:
    """Raises ZincErrors, each with what to do, for a file that cannot be read or run, a tier that cannot be used,
    a context that does not fit."""
    device = config.device
    opener = engine_opener(
        settings.path,
        device.tier,
        device.device,
        settings.slots,
        settings.ctx,
        ordering=device.ordering,
        threads=device.threads,
        timeout=device.step_timeout_s,
        pages=settings.kv.pages,
        state_rows=settings.state_rows,
        unchecked=device.unchecked,
        simulated=device.simulated,
    )
    file = ModelFile.of(Path(opener.gguf.path))
    engine = opener()
    try:
        step_tokens = settings.step_tokens
        pages = [group.pages for group in pools_of(engine)]
        core = EngineCore(engine, scheduler_tenants(config, pages), step_tokens=step_tokens, again=opener)
    except BaseException:
        engine.close()
        raise
    return ServedModel(settings, opener, core, file, wake)


def session_number(name: str) -> int:
    """Of a session's name: a positive i64, 0 for none."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little") | 1 if name else 0
