"""Ask the questions: alone one after another, then again in crowds, with cancelled streams between them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zinc_rt.validate.judge.answers import Schedule
from zinc_rt.validate.judge.engine_client import EngineAnswer, EngineClient, RequestError
from zinc_rt.validate.judge.questions import JudgeQuestion

CANCELLED = 0.05  # share of a crowd's requests that are cancelled copies, not judged


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question with its answer, or with the error instead. `before`: the ids of the questions asked shortly
    before or at the same time.
    """

    question: JudgeQuestion
    schedule: Schedule
    answer: EngineAnswer | None
    error: str = ""
    before: tuple[str, ...] = ()


def ask_alone(
    client: EngineClient,
    questions: Sequence[JudgeQuestion],
    schedule: Schedule = "alone",
    advance: Callable[[int], object] = lambda count: None,
) -> Iterator[AskedQuestion]:
    """Ask one question after another."""
    last = ""
    for question in questions:
        yield _ask(client, question, schedule, (last,) if last else ())
        last = question.id
        advance(1)


def ask_crowd(
    client: EngineClient,
    questions: Sequence[JudgeQuestion],
    *,
    at_once: int,
    seed: int,
    advance: Callable[[int], object] = lambda count: None,
) -> list[AskedQuestion]:
    """Ask all questions in a random order, `at_once` of them at any time, with some cancelled streams between."""
    chance = random.Random(seed)
    order = list(questions)
    chance.shuffle(order)
    streamed = [item for item in order if item.kind in ("tokens", "stream", "chat")]
    cancelled = set(chance.sample(range(len(order)), int(CANCELLED * len(order)))) if streamed else set()

    def ask_one(number: int) -> AskedQuestion:
        if number in cancelled:
            _abandon_answer(client, chance_of[number])
        near = order[max(0, number - at_once) : number + at_once]
        asked = _ask(client, order[number], "crowd", tuple(item.id for item in near if item is not order[number]))
        advance(1)
        return asked

    chance_of = {number: chance.choice(streamed) for number in sorted(cancelled)}
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(ask_one, range(len(order))))


def _ask(
    client: EngineClient, question: JudgeQuestion, schedule: Schedule, before: tuple[str, ...]
) -> AskedQuestion:
    try:
        return AskedQuestion(question, schedule, client.complete(question.body), before=before)
    except RequestError as error:
        return AskedQuestion(question, schedule, None, str(error), before)


def _abandon_answer(client: EngineClient, question: JudgeQuestion) -> None:
    body = {name: value for name, value in question.body.items() if name not in ("logprobs", "top_logprobs")}
    with contextlib.suppress(RequestError):  # the next question shows whether the server still answers
        client.abandon({**body, "max_tokens": 64}, events=2)
