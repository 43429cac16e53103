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
    answer. `shows_defect` decides whether a response shows the defect.
    """

    body: dict[str, Any]
    expected: str
    got: str
    attempts: int = 0
    before: tuple[dict[str, Any], ...] = ()
    beside: tuple[dict[str, Any], ...] = ()
    path: str = field(default="/v1/completions")
    fault: str = "token"  # see answers.FaultKind
    index: int = 0  # of the token with wrong log-probabilities
    logprobs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # of its alternatives: expected, received
    special: tuple[str, ...] = ()  # names of special tokens in the expected answer, which engines may omit

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
    phases = [(_asked_before(questions, fault, near), ALONE), (_find_others(questions, fault), PAIRS)]
    if not phases[0][0] and _depends_on_the_request_before(client, judge, fault):
        phases.reverse()
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


def _depends_on_the_request_before(client: EngineClient, judge: AnswerJudge, fault: AnswerFault) -> bool:
    """Ask twice: after whatever the engine was asked last, and after the same request. Return whether only the
    first answer is wrong: the request alone would then not show the defect a second time."""
    first, second = ask_alone(client, [fault.question, fault.question])
    return _is_wrong(judge, first, fault) and not _is_wrong(judge, second, fault)


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
    index, logprobs = 0, list[tuple[float, ...]]([(), ()])
    if fault.kind in ("logprob", "scale"):
        index, tokens, *logprobs = _log_probabilities(judge, fault)
        expected, got = (_format_logprobs(index, tokens, values) for values in logprobs)
    elif fault.kind == "prompt length" and fault.answer is not None:
        expected, got = f"{len(question.prompt)} prompt tokens", f"{fault.answer.prompt_tokens} prompt tokens"
    path = "/v1/chat/completions" if question.messages else "/v1/completions"
    first, others = (tuple(client.make_body(item.body) for item in items) for items in (before, beside))
    body = client.make_body(question.body)
    pair = logprobs[0], logprobs[1]
    special = judge.oracle.name_special(question.expected)
    return Reproducer(body, expected, got, attempts, first, others, path, fault.kind, index, pair, special)


def _log_probabilities(
    judge: AnswerJudge, fault: AnswerFault
) -> tuple[int, tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the index of the fault's token in the answer, the ids of its alternatives, and the reference's and
    the reported log-probabilities of these, in nats.
    """
    assert fault.answer is not None and fault.position is not None
    prompt = fault.question.prompt
    index = fault.position - len(prompt)
    reported = fault.answer.tokens[index].top
    ours = judge.oracle.predict((*prompt, *fault.tokens[:index]))[0].compute_logprobs(list(reported))
    return index, tuple(reported), tuple(map(float, ours)), tuple(reported.values())


def _format_logprobs(index: int, tokens: Sequence[int], values: Sequence[float]) -> str:
    pairs = (f"{token}: {value:.4f}" for token, value in zip(tokens, values, strict=True))
    return f"token {index + 1}: {', '.join(pairs)}"


def shows_defect(first_bad: Mapping[str, Any], response: str) -> bool:
    """Return whether the response to a reproducer's request shows its defect. `first_bad`: as in the report;
    `response`: the body that the last curl line printed, JSON or a stream of events.
    """
    text, answer = _read_response(response)
    fault = first_bad["fault"]
    if answer is None or fault == "refused":
        return answer is None and bool(fault == "refused")
    if fault == "prompt length":
        count = (answer.get("usage") or {}).get("prompt_tokens")
        return count is not None and first_bad["expected"] != f"{count} prompt tokens"
    if fault in ("logprob", "scale"):
        expected, wrong = (sorted(values) for values in first_bad["logprobs"])
        reported = _read_alternatives(answer, first_bad["index"])
        return len(reported) == len(wrong) and _distance(reported, wrong) < _distance(reported, expected)
    if fault in ("nucleus", "length", "canary"):  # without an expected text
        return text.strip() == first_bad["answer"].strip()
    special = first_bad.get("special", ())
    return _strip_special(text, special) != _strip_special(first_bad["expected"], special)


def _strip_special(text: str, special: Sequence[str]) -> str:
    """Return a text without special tokens, incomplete characters and outer spaces."""
    for name in special:
        text = text.replace(name, "")
    return text.replace("\ufffd", "").strip()


def _read_response(response: str) -> tuple[str, dict[str, Any] | None]:
    """Return the text of the first choice, and the whole answer; None for an error."""
    try:
        if response.startswith("data:"):
            lines = [line[5:].strip() for line in response.splitlines() if line.startswith("data:")]
            events = [json.loads(line) for line in lines if line != "[DONE]"]
            return "".join(_read_text(event) for event in events), events[-1] if events else None
        answer = json.loads(response)
    except ValueError:
        return "", None
    if not isinstance(answer, dict) or not answer.get("choices"):
        return "", None
    return _read_text(answer), answer


def _read_text(answer: Mapping[str, Any]) -> str:
    choice = (answer.get("choices") or [{}])[0]
    message = choice.get("message") or choice.get("delta") or {}
    return str(choice.get("text") or message.get("content") or "")


def _read_alternatives(answer: Mapping[str, Any], index: int) -> list[float]:
    """Return the log-probabilities reported for a token of the answer, sorted; [] without them."""
    logprobs = answer["choices"][0].get("logprobs") or {}
    if isinstance(content := logprobs.get("content"), list):
        return sorted(item["logprob"] for item in content[index]["top_logprobs"]) if index < len(content) else []
    tops = logprobs.get("top_logprobs") or []
    return sorted((tops[index] or {}).values()) if index < len(tops) else []


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _format_curl(url: str, body: Mapping[str, Any], key: str) -> str:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    words = ["curl", "-s", f"{url}{path}", "-H", "content-type: application/json"]
    authorization = f' -H "authorization: Bearer ${key}"' if key else ""
    return f"{shlex.join(words)}{authorization} -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
