"""Judge one answer: compare it with the reference and describe each difference as a fault with its evidence.

A greedy token is wrong if the reference prefers another by more than `tie_nats`: two correct engines may order
nearly equal tokens differently. Reported log-probabilities are compared at the same positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from zinc_rt.validate.judge.engine_client import TOKEN_ID, EngineAnswer, ReportedToken
from zinc_rt.validate.judge.oracle import BYTES, NextToken, Oracle
from zinc_rt.validate.judge.questions import TOP_P, JudgeQuestion

Schedule = Literal["alone", "repeated", "crowd"]
FaultKind = Literal[
    "refused", "token", "logprob", "scale", "prompt length", "text", "stop", "length", "nucleus", "changed sample",
    "canary",
]  # fmt: skip
NUCLEUS_SLACK = 0.02  # probability by which arithmetic may move the edge of a nucleus
REPORTED_TIES = 4.0  # times the limit of a near-tie, if the engine reports its distribution and it is right
LEAST_SCALED = 4  # reported alternatives from which a temperature can be estimated


@dataclass(frozen=True, slots=True)
class AnswerFault:
    """A difference between an answer and the reference. `position`: its token in the whole sequence. `nats`: by
    how much the reference disagrees.
    """

    question: JudgeQuestion
    schedule: Schedule
    kind: FaultKind
    detail: str
    answer: EngineAnswer | None = None
    position: int | None = None
    nats: float = 0.0
    tokens: tuple[int, ...] = ()  # those of the answer, as far as they are known
    expected: str = ""  # of a sampled answer: the text that its seed gave before
    right_distribution: bool = False  # of a token: the reported log-probabilities are right, and prefer another


@dataclass(frozen=True, slots=True)
class NumericSample:
    """How far the reported log-probabilities after a position are from the reference's. `kl`: the divergence
    KL(reference || engine) over the reported tokens and the rest.
    """

    position: int
    kl: float
    error: float  # the largest difference of a log-probability


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """`kl`: the most that arithmetic alone may cause at one position."""

    tie_nats: float = 0.125
    kl: float = 1e-3


@dataclass(slots=True)
class AnswerJudge:
    """Judges answers. `numerics` collects a sample for each position with reported log-probabilities."""

    oracle: Oracle
    limits: JudgeLimits
    canaries: Mapping[str, str] = field(default_factory=dict)  # word -> id of its question
    numerics: list[NumericSample] = field(default_factory=list)

    def find_faults(self, question: JudgeQuestion, answer: EngineAnswer, schedule: Schedule) -> list[AnswerFault]:
        """Return every fault of an answer."""
        known = self._read_tokens(answer)

        def make_fault(
            kind: FaultKind, detail: str, position: int | None = None, nats: float = 0.0
        ) -> AnswerFault:
            return AnswerFault(question, schedule, kind, detail, answer, position, nats, known)

        faults = []
        if answer.prompt_tokens is not None and answer.prompt_tokens != len(question.prompt):
            faults.append(
                make_fault(
                    "prompt length", f"usage.prompt_tokens {answer.prompt_tokens}, expected {len(question.prompt)}"
                )
            )
        for word, owner in self.canaries.items():
            if owner != question.id and word in answer.text:
                faults.append(
                    make_fault("canary", f"the answer contains {word!r}, which only {owner} has in its prompt")
                )
        if question.kind == "nucleus":
            faults += [make_fault("nucleus", *item) for item in self._find_outside_nucleus(question, known)]
        elif question.kind != "sampled":
            faults += self._check_greedy(question, answer, known, make_fault)
        if question.kind in ("tokens", "text", "chat", "forced", "stop"):
            faults += [make_fault(*logprob) for logprob in self._check_logprobs(question, answer, known)]
        return faults

    def prepare(self, answers: Sequence[tuple[JudgeQuestion, EngineAnswer]]) -> None:
        """Compute together what `find_faults` needs of the reference for these answers."""
        known = [(question, self._read_tokens(answer)) for question, answer in answers]
        self.oracle.prepare(
            {
                (q.prompt, tokens[:-1])
                for q, tokens in known
                if q.kind != "sampled" and (tokens or q.kind == "forced")
            }
        )

    def _read_tokens(self, answer: EngineAnswer) -> tuple[int, ...]:
        """Return the tokens of an answer if all of them are reported, otherwise ()."""
        known = []
        for reported in answer.tokens:
            if reported.token is None or self._follows_omitted(reported):
                return ()
            known.append(reported.token)
        return tuple(known)

    def _follows_omitted(self, reported: ReportedToken) -> bool:
        """Return whether a token completes a character whose first bytes came from a token that is not reported:
        llama-server omits tokens that end inside a character.
        """
        is_whole = bool(reported.text) and "\ufffd" not in reported.text
        if not is_whole or reported.text.startswith((BYTES, TOKEN_ID)) or reported.token is None:
            return False
        return self.oracle.is_partial(reported.token)

    def _check_greedy(self, question, answer, known, make_fault) -> Iterator[AnswerFault]:  # type: ignore[no-untyped-def]
        if question.kind == "forced":
            return
        expected_text = self.oracle.text(question.expected)
        if known:
            wrong = self.find_first_wrong(question.prompt, known, answer.tokens)
            if wrong is not None:
                index, nats = wrong
                wrong_token = make_fault(
                    "token",
                    f"token {index + 1} of the answer is {self._name(known[index])}; the reference prefers "
                    f"{self._name(self.oracle.predict((*question.prompt, *known[:index]))[0].best)} by {nats:.3g} "
                    "nats",
                    len(question.prompt) + index,
                    nats,
                )
                yield replace(wrong_token, right_distribution=self._reports_right(question, answer, known, index))
                return
            expected_text = self.oracle.text(known)
        elif not self._is_same_text(answer.text, _cut_at_stop(expected_text, question.stop)):
            gap = self._find_smallest_gap(question, answer.text)
            if gap > self.limits.tie_nats:
                yield make_fault(
                    "token",
                    f"the answer is {answer.text!r}, expected {expected_text!r}",
                    len(question.prompt),
                    gap,
                )
            return
        if question.stop:
            generated = self.oracle.text(known or question.expected, special="\ufffd")
            yield from self._check_stop(question, answer, generated, make_fault)
        elif known and not self._is_same_text(answer.text, expected_text):
            yield make_fault("text", f"the text is {answer.text!r}; its tokens are {expected_text!r}")
        if known and answer.finish_reason == "length" and not question.stop and len(known) != question.limit:
            yield make_fault(
                "length", f"{len(known)} tokens and finish_reason length, max_tokens {question.limit}"
            )

    def _check_stop(self, question, answer, generated, make_fault) -> Iterator[AnswerFault]:  # type: ignore[no-untyped-def]
        if question.stop in answer.text:
            yield make_fault("stop", f"the text {answer.text!r} contains the stop string {question.stop!r}")
        elif question.stop in generated and answer.finish_reason not in ("stop", ""):
            yield make_fault(
                "stop", f"finish_reason {answer.finish_reason} although {question.stop!r} was generated"
            )

    def find_first_wrong(
        self, prompt: Sequence[int], tokens: Sequence[int], reported: Sequence[ReportedToken] = ()
    ) -> tuple[int, float] | None:
        """Return the first token that the reference rejects and by how many nats, or None. A token that is the
        most likely one of a right reported distribution is not rejected: that is a matter of numerics.
        """
        predicted = self.oracle.predict(prompt, tokens[:-1])
        for index, token in enumerate(tokens):
            gap = predicted[index].compute_gap(token)
            if gap > self.limits.tie_nats:
                top = reported[index].top if index < len(reported) else {}
                is_own_choice = bool(top) and top.get(token) == max(top.values())
                is_close = gap <= REPORTED_TIES * self.limits.tie_nats
                if is_own_choice and is_close:
                    sample = compare_numerics(0, predicted[index], reported[index])
                    if sample.kl <= self.limits.kl:
                        continue
                return index, gap
        return None

    def _reports_right(
        self, question: JudgeQuestion, answer: EngineAnswer, known: Sequence[int], index: int
    ) -> bool:
        """Return whether the log-probabilities reported at a token are the reference's, and do not prefer it."""
        top = answer.tokens[index].top
        if not top or top.get(known[index]) == max(top.values()):
            return False
        predicted = self.oracle.predict((*question.prompt, *known[:index]))[0]
        return compare_numerics(0, predicted, answer.tokens[index]).kl <= self.limits.kl

    def _find_smallest_gap(self, question: JudgeQuestion, text: str) -> float:
        """Return the smallest gap between the reference's two best tokens, up to the first difference of the
        texts.
        """
        smallest = math.inf
        for index, predicted in enumerate(self.oracle.predict(question.prompt, question.expected[:-1])):
            smallest = min(smallest, predicted.compute_margin())
            if not text.startswith(self.oracle.text(question.expected[: index + 1]).rstrip("\ufffd")):
                break
        return smallest

    def _find_outside_nucleus(
        self, question: JudgeQuestion, known: Sequence[int]
    ) -> Iterator[tuple[str, int, float]]:
        if not known:
            return
        slack = max(NUCLEUS_SLACK, math.sqrt(self.limits.kl / 2))  # Pinsker's bound for a shift of probability
        predicted = self.oracle.predict(question.prompt, known[:-1])
        for index, token in enumerate(known):
            above = predicted[index].compute_mass_above(token)
            if above > TOP_P + slack:
                yield (
                    f"{self._name(token)} was sampled with top_p {TOP_P}, but the tokens more likely than it have "
                    f"{above:.0%} together",
                    len(question.prompt) + index,
                    above,
                )
                return

    def _check_logprobs(
        self, question: JudgeQuestion, answer: EngineAnswer, known: Sequence[int]
    ) -> Iterator[tuple[FaultKind, str, int, float]]:
        reported = [token for token in answer.tokens if token.top]
        if not reported or len(known) != len(answer.tokens):
            return
        predicted = self.oracle.predict(question.prompt, known[:-1])
        for index, token in enumerate(answer.tokens):
            if not token.top:
                continue
            position = len(question.prompt) + index
            sample = compare_numerics(position, predicted[index], token)
            if sample.kl <= self.limits.kl:
                self.numerics.append(sample)
                continue
            scale = estimate_temperature(predicted[index], token)
            if scale is not None:
                yield "scale", f"the log-probabilities are those of temperature {scale:.3g}", position, sample.kl
            else:
                yield (
                    "logprob",
                    f"the distribution differs by KL {sample.kl:.3g} nats, limit {self.limits.kl:.3g}",
                    position,
                    sample.kl,
                )
            self.numerics.append(sample)
            return  # what follows a wrong distribution is not independent of it

    def _is_same_text(self, one: str, other: str) -> bool:
        """Compare two texts, ignoring incomplete characters (which servers withhold or replace), special tokens
        (which some omit) and outer spaces.
        """
        return self._strip_incomplete(one) == self._strip_incomplete(other)

    def _strip_incomplete(self, text: str) -> str:
        return self.oracle.remove_special(text.replace("\ufffd", "")).strip()

    def _name(self, token: int) -> str:
        return f"{token} {self.oracle.tokenizer.piece(token)!r}"


def compare_numerics(position: int, predicted: NextToken, reported: ReportedToken) -> NumericSample:
    """Compare the reported alternatives with the reference's distribution."""
    ids = np.fromiter(reported.top, np.int64)
    theirs = np.array([reported.top[int(token)] for token in ids])
    ours = predicted.compute_logprobs(ids)
    weight = np.exp(ours)
    rest, their_rest = max(1e-12, 1 - weight.sum()), max(1e-12, 1 - np.exp(theirs).sum())
    kl = float((weight * (ours - theirs)).sum() + rest * math.log(rest / their_rest))
    return NumericSample(position, max(0.0, kl), float(np.abs(ours - theirs).max()))


def estimate_temperature(predicted: NextToken, reported: ReportedToken) -> float | None:
    """Return the temperature that explains reported log-probabilities, or None if none does. Differences of
    log-probabilities are differences of logits, so a temperature divides all of them.
    """
    if len(reported.top) < LEAST_SCALED:
        return None
    ids = list(reported.top)
    logprobs = predicted.compute_logprobs(ids)
    ours = logprobs[1:] - logprobs[0]
    theirs = np.array([reported.top[token] - reported.top[ids[0]] for token in ids[1:]])
    square = float((ours * ours).sum())
    slope = float((ours * theirs).sum()) / square if square > 1e-6 else 0.0
    residue = float(np.abs(theirs - slope * ours).max())
    if slope <= 0 or abs(slope - 1) < 0.03 or residue > 0.02 * float(np.abs(theirs).max()) + 1e-3:
        return None
    return 1 / slope


def _cut_at_stop(text: str, stop: str) -> str:
    return text.partition(stop)[0] if stop else text
