"""Compare sampled tokens with the reference: temperature, top_p, top_k and penalties (χ² tests).

Each setting is tested alone, because engines apply top_p before or after the temperature. Prompts are chosen where
the setting has the largest effect. Tokens at the edge of a nucleus or of the k best, which rounding may move over
it, are not counted. Two tests are made of each setting: of the position in the cumulative distribution, which is
uniform for a correct engine and shows a shift towards likely or unlikely tokens, and of the tokens, which shows a
single wrong one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from zinc_rt.validate.judge.answers import NumericSample
from zinc_rt.validate.judge.oracle import NextToken, Oracle
from zinc_rt.validate.judge.questions import JudgeQuestion, QuestionMaker
from zinc_rt.validate.judge.schedule import AskedQuestion
from zinc_rt.validate.judge.texts import make_sentence

SIGNIFICANCE = 1e-6  # of each test: a correct engine fails one of the at most 12 tests once in 80,000 judgements
BINS, LEAST_EXPECTED = 16, 10.0  # equal parts of the distribution; samples expected of a token's own bin
LEAST_SAMPLES = 100
POOL, PROMPTS = 32, 4  # prompts that are considered, and used of them, for each setting
DIVERGENCE_MARGIN = 4.0  # times the mean divergence: that of the prompts here may be larger
PENALISED_TOKENS = 6
PENALTY_WINDOW = 64  # tokens: llama-server's default of repeat_last_n

Shape = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted: np.ndarray = np.exp(logits - logits.max())
    return shifted / shifted.sum()


def _keep(logits: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return np.where(kept, logits, -np.inf)


def _scale(temperature: float) -> Shape:
    return lambda logits, counts: _softmax(logits / temperature)


def _top_p(share: float) -> Shape:
    def shape(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
        probability = _softmax(logits)
        order = np.argsort(-probability, kind="stable")
        above = np.cumsum(probability[order]) - probability[order]
        kept = np.zeros(len(logits), bool)
        kept[order[above < share]] = True
        return _softmax(_keep(logits, kept))

    return shape


def _top_k(count: int) -> Shape:
    def shape(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return _softmax(_keep(logits, logits >= np.partition(logits, -count)[-count]))

    return shape


def _penalise(frequency: float, presence: float) -> Shape:
    return lambda logits, counts: _softmax(logits - frequency * counts - presence * (counts > 0))


@dataclass(frozen=True, slots=True)
class EdgeSlack:
    """How far arithmetic may move the edge of a nucleus and of the k best tokens."""

    probability: float = 0.03
    nats: float = 0.3


@dataclass(frozen=True, slots=True)
class SamplingSetting:
    """`shape`: f64 logits [V] and counts of earlier tokens [V] to probabilities [V]. `needs`: a field that the
    server must accept, "" for standard ones. `tokens`: of an answer.
    """

    name: str
    fields: Mapping[str, Any]
    shape: Shape
    needs: str = ""
    tokens: int = 1

    def split_tokens(self, predicted: NextToken, slack: EdgeSlack) -> tuple[np.ndarray, np.ndarray]:
        """Return two masks [V]: the tokens that the setting keeps, and those that it excludes, whatever rounding
        does. A token in neither is at the edge.
        """
        logits = predicted.logits.astype(np.float64)
        order = np.argsort(-logits, kind="stable")
        ordered = logits[order]
        if "top_p" in self.fields:
            above = np.empty(len(logits))
            above[order] = np.append(0.0, np.cumsum(np.exp(ordered - predicted.total))[:-1])
            share = self.fields["top_p"]
            return above < share - slack.probability, above > share + slack.probability
        if "top_k" in self.fields:
            count = self.fields["top_k"]
            return logits - ordered[count] > slack.nats, ordered[count - 1] - logits > slack.nats
        everything = np.ones(len(logits), bool)
        return everything, ~everything

    def measure_effect(self, predicted: NextToken) -> float:
        """Return the divergence of the shaped from the plain distribution, in nats."""
        logits = predicted.logits.astype(np.float64)
        shaped, plain = self.shape(logits, np.zeros(len(logits))), _softmax(logits)
        some = shaped > 0
        return float((shaped[some] * np.log(shaped[some] / plain[some])).sum())


FREQUENCY, PRESENCE = 0.5, 1.5
SETTINGS = (
    SamplingSetting("temperature 0.6", {"temperature": 0.6}, _scale(0.6)),
    SamplingSetting("temperature 1.5", {"temperature": 1.5}, _scale(1.5)),
    SamplingSetting("top_p 0.5", {"top_p": 0.5}, _top_p(0.5)),
    SamplingSetting("top_p 0.8", {"top_p": 0.8}, _top_p(0.8)),
    SamplingSetting("top_k 8", {"top_k": 8}, _top_k(8), needs="top_k"),
    SamplingSetting(
        "penalties",
        {"frequency_penalty": FREQUENCY, "presence_penalty": PRESENCE},
        _penalise(FREQUENCY, PRESENCE),
        tokens=PENALISED_TOKENS,
    ),
)
# Of which tokens penalties count: engines differ, and each of these is accepted.
COUNTED: Mapping[str, Callable[[Sequence[int], Sequence[int]], Sequence[int]]] = {
    "of the answer": lambda prompt, answer: answer,
    f"of the last {PENALTY_WINDOW} tokens": lambda prompt, answer: [*prompt, *answer][-PENALTY_WINDOW:],
    "of prompt and answer": lambda prompt, answer: [*prompt, *answer],
}


@dataclass(frozen=True, slots=True)
class SamplingTest:
    """The χ² tests of one setting. `chances`: the probabilities of values so large or larger from a correct
    engine, by test.
    """

    setting: str
    samples: int
    chances: Mapping[str, float] = field(default_factory=dict)
    outside: int = 0  # tokens that the setting excludes
    bias: float = 0.5  # mean position in the cumulative distribution, most likely tokens first

    @property
    def chance(self) -> float:
        return min(self.chances.values(), default=1.0)

    def describe(self) -> str:
        """Return what is wrong, or ""."""
        if self.outside:
            return f"{self.setting}: {self.outside} of {self.samples} tokens are excluded by it"
        if self.chance >= SIGNIFICANCE:
            return ""
        test = min(self.chances, key=lambda name: self.chances[name])
        towards = "too likely" if self.bias < 0.5 else "too unlikely"
        return (
            f"{self.setting}: {self.samples} tokens do not follow the reference's distribution (χ² test of "
            f"{test}: p = {self.chance:.1g}; tokens are {towards}: mean position {self.bias:.2f} instead of 0.50)"
        )


def make_sampling_questions(maker: QuestionMaker, count: int) -> list[JudgeQuestion]:
    """Return about `count` sampled tokens of each setting, every answer with its own seed."""
    if not count or not maker.features.logprobs:
        return []
    oracle, chance = maker.oracle, random.Random(maker.seed + 3)
    pool = [maker.encode_prompt(make_sentence(chance)[:-1]) for _ in range(POOL)]
    oracle.prepare((prompt, ()) for prompt in pool)
    predicted = {prompt: oracle.predict(prompt)[0] for prompt in pool}
    questions = []
    for setting in SETTINGS:
        if setting.needs and setting.needs not in maker.features.extra:
            continue
        ordered = sorted(pool, key=lambda prompt: -setting.measure_effect(predicted[prompt]))
        for number in range(-(-count // setting.tokens)):
            prompt = ordered[number % PROMPTS]
            fields = {"temperature": 1.0, "top_p": 1.0, **setting.fields}
            body = maker.make_body(prompt, setting.tokens, seed=5000 + number, logprobs=1, **fields)
            questions.append(JudgeQuestion(f"distribution/{setting.name}/{number}", "sampled", body, prompt))
    return questions


def check_sampling(
    oracle: Oracle, asked: Sequence[AskedQuestion], numerics: Sequence[NumericSample]
) -> list[SamplingTest]:
    """Test every setting. `numerics`: the divergence of the engine's log-probabilities, which arithmetic alone
    causes: it makes larger values of χ² expected and moves edges.
    """
    divergence = fmean([sample.kl for sample in numerics] or [0.0])
    slack = EdgeSlack(  # Pinsker's bound for a shift of probability
        max(EdgeSlack().probability, math.sqrt(max((sample.kl for sample in numerics), default=0.0) / 2)),
        max(EdgeSlack().nats, 2 * max((sample.error for sample in numerics), default=0.0)),
    )
    tests = []
    for setting in SETTINGS:
        prefix = f"distribution/{setting.name}/"
        answers = [
            (item.question.prompt, tuple(token.token for token in item.answer.tokens))
            for item in asked
            if item.answer is not None and item.question.id.startswith(prefix)
        ]
        known = [(prompt, tokens) for prompt, tokens in answers if tokens and None not in tokens]
        if sum(len(tokens) for _, tokens in known) < LEAST_SAMPLES:
            continue
        oracle.prepare((prompt, tokens[:-1]) for prompt, tokens in known)  # type: ignore[misc]
        if setting.tokens == 1:
            tests.append(_test_setting(setting, oracle, known, lambda prompt, answer: (), divergence, slack))  # type: ignore[arg-type]
            continue
        each = {
            name: _test_setting(setting, oracle, known, counted, divergence, slack)  # type: ignore[arg-type]
            for name, counted in COUNTED.items()
        }
        tests.append(max(each.values(), key=lambda test: test.chance))
    return tests


def _test_setting(
    setting: SamplingSetting,
    oracle: Oracle,
    answers: Sequence[tuple[Sequence[int], Sequence[int]]],
    counted: Callable[[Sequence[int], Sequence[int]], Sequence[int]],
    divergence: float,
    slack: EdgeSlack,
) -> SamplingTest:
    """Test one setting. `counted`: returns the earlier tokens that penalties count, of a prompt and an answer."""
    chance = random.Random(7)
    shaped: dict[tuple[int, ...], np.ndarray] = {}
    excluded: dict[tuple[int, ...], np.ndarray] = {}
    drawn: dict[tuple[int, ...], list[int]] = {}
    positions, outside = [], 0
    for prompt, tokens in answers:
        for index, predicted in enumerate(oracle.predict(prompt, tokens[:-1])):
            key, token = (*prompt, *tokens[:index]), tokens[index]
            earlier = np.array(counted(prompt, tokens[:index]), np.int64)
            counts = np.bincount(earlier, minlength=len(predicted.logits))
            if key not in shaped:
                kept, excluded[key] = setting.split_tokens(predicted, slack)
                probability = np.where(kept, setting.shape(predicted.logits.astype(np.float64), counts), 0.0)
                shaped[key] = probability / max(probability.sum(), 1e-300)
            own = float(shaped[key][token])
            outside += bool(excluded[key][token])
            if own == 0:
                continue
            drawn.setdefault(key, []).append(token)
            is_penalised = counts > 0  # these tokens first, then likely ones
            before = is_penalised & (not is_penalised[token])
            before |= (is_penalised == is_penalised[token]) & (shaped[key] > own)
            positions.append(float(shaped[key][before].sum()) + chance.random() * own)
    count = len(positions)
    if count < LEAST_SAMPLES:
        return SamplingTest(setting.name, count + outside, {}, outside)
    observed = np.bincount(np.minimum((np.array(positions) * BINS).astype(int), BINS - 1), minlength=BINS)
    extra = 2 * count * DIVERGENCE_MARGIN * divergence
    chances = {"positions": chi_square_probability(*_sum_bins(observed, np.full(BINS, count / BINS)), extra)}
    total, freedom = 0.0, 0
    for key, tokens in drawn.items():
        value, degrees = _sum_bins(*_bin_tokens(shaped[key], tokens))
        total, freedom = total + value, freedom + degrees
    if freedom:
        chances["tokens"] = chi_square_probability(total, freedom, extra)
    return SamplingTest(setting.name, count + outside, chances, outside, float(np.mean(positions)))


def _bin_tokens(probability: np.ndarray, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return observed and expected counts of the tokens that are expected often enough, and of all others."""
    expected = probability * len(tokens)
    own = np.flatnonzero(expected >= LEAST_EXPECTED)
    observed = np.bincount(tokens, minlength=len(probability))
    rest = len(tokens) - expected[own].sum()
    if rest < LEAST_EXPECTED:  # into the bin with the fewest
        own = own[np.argsort(-expected[own])][:-1]
        rest = len(tokens) - expected[own].sum()
    return (
        np.append(observed[own], len(tokens) - observed[own].sum()),
        np.append(expected[own], rest),
    )


def _sum_bins(observed: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Return Pearson's χ² and its degrees of freedom."""
    if len(expected) < 2:
        return 0.0, 0
    return float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1


def chi_square_probability(value: float, freedom: int, noncentral: float = 0.0) -> float:
    """Return the probability of a larger χ² with `freedom` degrees of freedom and the noncentrality `noncentral`.
    Source of the noncentral case: Patnaik's approximation (Biometrika 36, 1949).
    """
    if freedom < 1:
        return 1.0
    scale = (freedom + 2 * noncentral) / (freedom + noncentral)
    degrees = (freedom + noncentral) ** 2 / (freedom + 2 * noncentral)
    return _gamma_upper(degrees / 2, value / scale / 2)


def _gamma_upper(shape: float, value: float) -> float:
    """Return the regularised upper incomplete gamma function. Source: DLMF 8.7.1 and 8.9.2."""
    if value <= 0:
        return 1.0
    front = math.exp(shape * math.log(value) - value - math.lgamma(shape))
    if value < shape + 1:
        term = total = 1 / shape
        step = shape
        while term > total * 1e-15:
            step += 1
            term *= value / step
            total += term
        return max(0.0, 1 - front * total)
    tiny = 1e-300
    b = value + 1 - shape
    c, d = 1 / tiny, 1 / b
    fraction = d
    for n in range(1, 10_000):
        a = n * (shape - n)
        b += 2
        d = 1 / ((a * d + b) or tiny)
        c = (b + a / c) or tiny
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction
