"""Reproduce a finding: ask its request again, alone and then beside others, and write it as a curl line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.validate.judge.answers import AnswerFault, AnswerJudge
from zinc_rt.validate.judge.engine_client import EngineClient
from zinc_rt.validate.judge.questions import JudgeQuestion
from zinc_rt.validate.judge.schedule import AskedQuestion, ask_alone, ask_crowd
from zinc_rt.validate.judge.verdict import EngineDefect

ALONE = 60  # requests until a finding counts as not reproduced alone
PAIRS = 10  # the same, each after a request of the same kind
CROWDS = 6


@dataclass(frozen=True, slots=True)
class Reproducer:
    """A request that shows the defect. `beside`: requests to send at the same time; empty if the request alone
    shows it. `attempts`: number of requests until it occurred, 0 if it did not occur again. `got`: the wrong
    answer.
    """

    body: dict[str, Any]
    expected: str
    got: str
    attempts: int = 0
    before: tuple[dict[str, Any], ...] = ()
    beside: tuple[dict[str, Any], ...] = ()
    path: str = field(default="/v1/completions")

    def format_curl(self, url: str, key: str = "") -> str:
        """Return shell lines that send the request, with the others in the background if it needs them. `key`: the
        shell variable with the API key.
        """
        lines = [f"{_format_curl(url, body, key)} -o /dev/null" for body in self.before]
        lines += [f"{_format_curl(url, body, key)} -o /dev/null &" for body in self.beside]
        lines.append(_format_curl(url, self.body, key))
        return "\n".join([*lines, *(["wait"] if self.beside else [])])


def find_reproducer(
    client: EngineClient,
    finding: EngineDefect,
    questions: Mapping[str, JudgeQuestion],
    judge: AnswerJudge,
    asked: list[AskedQuestion],
    *,
    at_once: int,
) -> Reproducer | None:
    """Send the finding's request again until the defect occurs. None for a finding without a single request."""
    faults = [fault for fault in finding.faults if fault.answer is not None or fault.kind == "refused"]
    if not faults:
        return None
    fault = next((fault for fault in faults if fault.schedule == "alone"), faults[0])
    question = fault.question
    near = next((item.before for item in asked if item.answer is fault.answer), ())
    phases = ((_asked_before(questions, fault, near), ALONE), (_find_others(questions, fault), PAIRS))
    for before, attempts in phases:
        for attempt in range(1, attempts + 1):
            for item in ask_alone(client, [*before, question]):
                if item.question is question and _is_wrong(judge, item, fault):
                    return _make_reproducer(client, judge, fault, attempts=attempt, before=before)
    others = [questions[name] for name in near if name in questions][: at_once - 1]
    for attempt in range(1, CROWDS + 1):
        wave = [*others, *[question] * at_once]
        for item in ask_crowd(client, wave, at_once=at_once, seed=attempt):
            if item.question is question and _is_wrong(judge, item, fault):
                beside = [*others, *[question] * (at_once - 1)]
                return _make_reproducer(client, judge, fault, attempts=attempt * at_once, beside=beside)
    return _make_reproducer(client, judge, fault, attempts=0)


def _asked_before(
    questions: Mapping[str, JudgeQuestion], fault: AnswerFault, near: Sequence[str]
) -> list[JudgeQuestion]:
    """Return the questions whose state the engine may confuse with this one's: its partner, or another seed."""
    if (partner := questions.get(fault.question.partner)) is not None:
        return [partner]
    if fault.kind != "changed sample":
        return []
    seeds = [
        q
        for q in (*(questions[name] for name in near if name in questions), *questions.values())
        if q.kind == "sampled"
    ]
    return [q for q in seeds if q.body["seed"] != fault.question.body["seed"]][:1]


def _find_others(questions: Mapping[str, JudgeQuestion], fault: AnswerFault) -> list[JudgeQuestion]:
    """Return another question of the same kind, whose answer the engine may give to this one."""
    same_kind = (item for item in questions.values() if item.kind == fault.question.kind)
    return [item for item in same_kind if item.prompt != fault.question.prompt][:1]


def _is_wrong(judge: AnswerJudge, asked: AskedQuestion, fault: AnswerFault) -> bool:
    if asked.answer is None:
        return fault.kind == "refused"
    if fault.kind == "changed sample":
        return asked.answer.text != fault.expected
    return any(item.kind == fault.kind for item in judge.find_faults(asked.question, asked.answer, asked.schedule))


def _make_reproducer(
    client: EngineClient,
    judge: AnswerJudge,
    fault: AnswerFault,
    *,
    attempts: int,
    before: Sequence[JudgeQuestion] = (),
    beside: Sequence[JudgeQuestion] = (),
) -> Reproducer:
    question = fault.question
    expected = judge.oracle.text(question.expected) if question.expected else fault.expected or fault.detail
    if question.stop:
        expected = expected.partition(question.stop)[0]
    got = fault.answer.text if fault.answer is not None else fault.detail
    if fault.kind in ("logprob", "scale"):
        expected, got = _log_probabilities(judge, fault)
    path = "/v1/chat/completions" if question.messages else "/v1/completions"
    first, others = (tuple(client.make_body(item.body) for item in items) for items in (before, beside))
    return Reproducer(client.make_body(question.body), expected, got, attempts, first, others, path)


def _log_probabilities(judge: AnswerJudge, fault: AnswerFault) -> tuple[str, str]:
    """Return the reference's and the reported log-probabilities of the alternatives at the fault's position."""
    assert fault.answer is not None and fault.position is not None
    prompt = fault.question.prompt
    index = fault.position - len(prompt)
    reported = fault.answer.tokens[index].top
    ours = judge.oracle.predict((*prompt, *fault.tokens[:index]))[0].compute_logprobs(list(reported))
    first = f"token {index + 1}: "
    return (
        first + ", ".join(f"{token}: {value:.4f}" for token, value in zip(reported, ours, strict=True)),
        first + ", ".join(f"{token}: {value:.4f}" for token, value in reported.items()),
    )


def _format_curl(url: str, body: Mapping[str, Any], key: str) -> str:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    words = ["curl", "-s", f"{url}{path}", "-H", "content-type: application/json"]
    authorization = f' -H "authorization: Bearer ${key}"' if key else ""
    return f"{shlex.join(words)}{authorization} -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
