"""Readers that stall in the middle of a character, in virtual time: the same text, or `client_too_slow`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from zinc_rt.ir.slot_record import SlotFlag
from zinc_rt.model.tokenizer import StreamDecoder
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import Batch, Drawn, StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.usage.ledger import RunnerCounts
from zinc_rt.serve.engine.answer_stream import HELD_TOKENS, AnswerStream
from zinc_rt.serve.engine.requests import Delivered, EngineRequest
from zinc_rt.serve.errors import ServeError

SLOTS, PROMPT, STALLED = 16, 3, 0
CHARACTERS = "añ€𝄞漢"  # one to four bytes each
CUT = len("añ€".encode()) + 2  # bytes: the reader has half of the fourth character


def answer_text(number: int, length: int) -> bytes:
    """The answer of a request, `length` bytes; a token is a byte."""
    turned = CHARACTERS[number % 5 :] + CHARACTERS[: number % 5]
    return (turned.encode() * (length // 13 + 1))[:length]


class TextRunner:
    """Samples the next byte of a request's answer, independent of the rest of the step."""

    def __init__(self, answers: list[bytes]) -> None:
        self.counts = RunnerCounts()
        self.answers = np.zeros((len(answers), max(map(len, answers))), np.int32)
        for row, text in zip(self.answers, answers, strict=True):
            row[: len(text)] = list(text)
        self.records = np.zeros(0)

    def submit(self, plan: StepPlan) -> StepPlan:
        return plan

    def collect(self, plan: Any) -> Drawn:
        slots, positions = plan.row_slot[: plan.rows], plan.row_position[: plan.rows]
        tokens = self.answers[self.records["request"][slots].astype(np.int64), positions - PROMPT]
        skipped = self.records["flags"][slots] & SlotFlag.BACKPRESSURE != 0
        bound = int(np.count_nonzero(self.records["state"]))
        self.counts = self.counts.after(plan.tokens, plan.rows, bound, 1000)
        return Drawn(np.where(skipped, -1, tokens), np.full(plan.rows, -1, np.int32), None, skipped)

    def reopen(self) -> bool:
        return False


@dataclass
class SlowReaderService:
    """Sixteen slots, with sixteen requests of `length` tokens. A step takes a millisecond."""

    length: int
    client_timeout_steps: int
    texts: dict[int, str] = field(default_factory=dict)
    refused: dict[int, ServeError] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        pages = SLOTS * (self.length // 16 + 2)
        cache = KvCache((PageGroup("full", pages),), 16, 64, 0)
        self.runner = TextRunner([answer_text(number, self.length) for number in range(SLOTS)])
        limits = SchedulerLimits(
            SLOTS, self.length + PROMPT, 64, check_every=0, client_timeout_steps=self.client_timeout_steps
        )
        self.scheduler = Scheduler(limits, [Tenant("a")], cache, self.runner, lambda: self.steps * 1_000_000)
        self.runner.records = self.scheduler.records
        self.within = make_namespace("m", "canonical-1", "f32", 16)

    async def run(self, stall_steps: int) -> None:
        """Answer all requests. The reader of request STALLED reads nothing for that many steps."""
        streams = [self.ask(number) for number in range(SLOTS)]
        resumed = asyncio.Event()
        readers = [asyncio.create_task(self.read(stream, resumed)) for stream in streams]
        stalled_at = None
        while self.scheduler.live or not all(reader.done() for reader in readers):
            self.steps += 1
            self.deliver(self.scheduler.step(), streams)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if stalled_at is None and len(self.texts[STALLED].encode()) >= CUT - 2:
                stalled_at = self.steps
            if stalled_at is not None and self.steps - stalled_at >= stall_steps:
                resumed.set()
        await asyncio.gather(*readers)

    def ask(self, number: int) -> AnswerStream:
        sampling = Sampling(self.length, seed=1)
        new = NewRequest(number, 0, [1] * PROMPT, self.within, sampling)
        ask = EngineRequest("m", tuple(new.tokens), sampling)
        hold = self.scheduler.hold
        stream = AnswerStream(number, ask, 0, cancel=lambda *_: None, hold=hold)
        stream.request = self.scheduler.submit(new)
        self.texts[number] = ""
        return stream

    def deliver(self, batch: Batch | None, streams: list[AnswerStream]) -> None:
        if batch is None:
            return
        ended = {number: reason for number, _, reason in batch.ended}
        for number, token in zip(batch.requests.tolist(), batch.tokens.tolist(), strict=True):
            streams[number].put(Delivered(0, (token,), None, ended.pop(number, None)))
        for number, reason in ended.items():
            streams[number].put(Delivered(0, finish_reason=reason))

    async def read(self, stream: AnswerStream, resumed: asyncio.Event) -> None:
        decoder, came = StreamDecoder(lambda id: bytes([id])), 0
        try:
            async for delivered in stream:
                for item in delivered:
                    came += len(item.token_ids)
                    self.texts[stream.number] += "".join(map(decoder.feed, item.token_ids))
                if stream.number == STALLED and came >= CUT:
                    await resumed.wait()
        except ServeError as error:
            self.refused[stream.number] = error


def serve_answer(stall_steps: int, length: int, *, client_timeout_steps: int) -> SlowReaderService:
    service = SlowReaderService(length, client_timeout_steps)
    asyncio.run(service.run(stall_steps))
    return service


LONG = pytest.param(10_000, 10_500, marks=pytest.mark.rest)


def all_answers(length: int) -> dict[int, str]:
    """Return the text of every request, whose last character may be truncated."""
    return {number: answer_text(number, length).decode(errors="ignore") for number in range(SLOTS)}


@pytest.mark.parametrize(("stall_steps", "length"), [(0, 400), (1, 100), (10, 100), (300, 400), LONG])
def test_reader_that_resumes_within_the_limit_gets_the_same_text(stall_steps: int, length: int) -> None:
    service = serve_answer(stall_steps, length, client_timeout_steps=stall_steps + 10)
    assert service.texts == all_answers(length) and not service.refused
    assert (service.steps > length + 9) == (stall_steps > HELD_TOKENS), "the others do not wait for it"


@pytest.mark.parametrize(
    ("stall_steps", "limit", "length"),
    [(300, 20, 400), pytest.param(10_000, 8192, 10_500, marks=pytest.mark.rest)],
)
def test_reader_beyond_the_limit_ends_and_the_others_lose_nothing(
    stall_steps: int, limit: int, length: int
) -> None:
    service, wanted = serve_answer(stall_steps, length, client_timeout_steps=limit), all_answers(length)
    error = service.refused.pop(STALLED)
    assert error.code == "client_too_slow" and not service.refused
    text = service.texts.pop(STALLED)
    assert wanted.pop(STALLED).startswith(text) and HELD_TOKENS < len(text.encode()) < HELD_TOKENS + CUT + 2
    assert service.texts == wanted
