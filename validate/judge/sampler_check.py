"""Check sampling: against the reference's distribution, and that an answer belongs to its seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from zinc_rt.validate.judge.answers import AnswerFault
from zinc_rt.validate.judge.engine_client import EngineAnswer
from zinc_rt.validate.judge.oracle import NextToken, Oracle
from zinc_rt.validate.judge.questions import SAMPLED_TOKENS, JudgeQuestion
from zinc_rt.validate.judge.schedule import AskedQuestion

LEAST_SAMPLES = 100
SIGNIFICANCE = 1e-6  # of the distribution test: one false alarm in a million healthy engines
ASKED_AGAIN = 8  # changed answers that are compared with those of the seeds of requests near them
# Share of sampled answers that arithmetic may change when other requests join the batch: at least, at most, and
# how many boundaries between tokens a divergence moves past the seed's draw (llama-server b10434 on a CPU with
# gemma3-270m Q4_K_M: 0.43 of answers of 8 tokens, at a mean divergence of 0.0018 nats).
RARELY, MOSTLY, BOUNDARIES = 0.2, 0.8, 4.0
DRAW_SHIFT = 3.0  # times Pinsker's bound: how far arithmetic may move the draw of a seed


def check_distribution(oracle: Oracle, asked: Sequence[AskedQuestion]) -> str:
    """Return what is wrong with sampled first tokens at temperature 1, or "".

    The position of each token in the reference's cumulative distribution, most likely first, must be uniform
    (Kolmogorov-Smirnov test).
    """
    places, chance = [], random.Random(7)
    for item in asked:
        token = _find_first_token(item.answer)
        if token is None:
            continue
        predicted = oracle.predict(item.question.prompt)[0]
        above, own = predicted.compute_mass_above(token), math.exp(predicted.compute_logprobs([token])[0])
        places.append(above + chance.random() * own)
    if len(places) < LEAST_SAMPLES:
        return ""
    places.sort()
    count = len(places)
    distance = max(max((index + 1) / count - value, value - index / count) for index, value in enumerate(places))
    probability = kolmogorov_probability(distance * math.sqrt(count))
    if probability >= SIGNIFICANCE:
        return ""
    middle = places[count // 2]
    bias = "too likely tokens" if middle < 0.5 else "too unlikely tokens"
    return (
        f"{count} tokens sampled at temperature 1 do not follow the reference's distribution "
        f"(p = {probability:.1g}; the median lies at {middle:.2f} of it instead of 0.50: {bias})"
    )


def kolmogorov_probability(value: float) -> float:
    """Return the probability of a larger Kolmogorov statistic. Source: Kolmogorov's limit distribution."""
    if value < 0.3:
        return 1.0
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * value) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))


def check_seeds(
    oracle: Oracle,
    asked: Sequence[AskedQuestion],
    answer_of: Callable[[JudgeQuestion, int], str],
    divergence: float,
) -> Iterator[AnswerFault]:
    """Yield a fault for each sampled answer that belongs to another seed, and for each changed answer if there are
    more than arithmetic explains. `divergence`: the mean of the engine's log-probabilities from the reference's,
    in nats. Arithmetic explains a change if the first other token lies next to the expected one in the cumulative
    distribution: both come from the same draw.

    The first answer to each question, asked alone, is the one that its seed must reproduce. `answer_of` asks a
    question with another seed: a changed answer may belong to the seed of a nearby request.
    """
    alone: dict[str, str] = {}
    prompts: dict[tuple[int, ...], dict[str, str]] = {}
    for item in asked:
        if item.question.kind in ("sampled", "nucleus") and item.answer is not None and item.schedule == "alone":
            alone.setdefault(item.question.id, item.answer.text)
            prompts.setdefault(item.question.prompt, {})[item.question.id] = item.answer.text
    repeated = [
        item
        for item in asked
        if item.question.kind == "sampled" and item.answer is not None and item.question.id in alone
    ]
    repeated = [item for item in repeated if item.schedule != "alone"]
    changed = [
        item for item in repeated if item.answer is not None and item.answer.text != alone[item.question.id]
    ]
    bodies = {item.question.id: item.question.body for item in asked}
    swapped = [(item, owner) for item in changed if (owner := _find_seed_owner(item, prompts, alone))]
    for item in changed[:ASKED_AGAIN] if not swapped else ():
        assert item.answer is not None
        for name in item.before:
            seed = bodies.get(name, {}).get("seed")
            own = item.question.body["seed"]
            if seed not in (None, own) and answer_of(item.question, seed) == item.answer.text:
                swapped.append((item, name))
                break
    for item, owner in swapped:
        yield _make_fault(
            item, f"with seed {item.question.body['seed']} the answer is that of {owner}'s seed", alone
        )
    if swapped:
        return
    bound = math.sqrt(divergence / 2)  # Pinsker's, of one boundary
    limit = min(MOSTLY, max(RARELY, SAMPLED_TOKENS * BOUNDARIES * bound))
    if len(changed) > RARELY * len(repeated) and all(item.answer and item.answer.tokens for item in changed):
        first = {item.question.id: item.answer for item in reversed(asked) if item.schedule == "alone"}
        limit = RARELY
        changed = [item for item in changed if not _is_same_draw(oracle, item, first[item.question.id], bound)]
    if len(changed) > limit * len(repeated):
        detail = f"{len(changed)} of {len(repeated)} repeated requests with a seed gave another answer"
        yield from (_make_fault(item, detail, alone) for item in changed)


def _is_same_draw(oracle: Oracle, asked: AskedQuestion, first: EngineAnswer | None, bound: float) -> bool:
    """Return whether the first token in which an answer differs from the `first` one is near it in the cumulative
    distribution, ordered by token or by probability as engines do.
    """
    assert asked.answer is not None
    pairs = zip(() if first is None else first.tokens, asked.answer.tokens, strict=False)
    same: list[int] = []
    for one, other in pairs:
        if one.token is None or other.token is None:
            return False
        if one.token != other.token:
            predicted = oracle.predict((*asked.question.prompt, *same))[0]
            return find_draw_distance(predicted, one.token, other.token) < DRAW_SHIFT * bound
        same.append(one.token)
    return False


def find_draw_distance(predicted: NextToken, one: int, other: int) -> float:
    """Return the probability between two tokens, in the order of tokens or of probabilities if that is less."""
    probabilities = np.exp(predicted.logits.astype(np.float64) - predicted.total)
    low, high = sorted((one, other))
    between = float(probabilities[low + 1 : high].sum())
    less, more = sorted((float(predicted.logits[one]), float(predicted.logits[other])))
    inside = (predicted.logits > less) & (predicted.logits < more)
    return min(between, float(probabilities[inside].sum()))


def _find_seed_owner(
    asked: AskedQuestion, prompts: Mapping[tuple[int, ...], Mapping[str, str]], alone: Mapping[str, str]
) -> str:
    """Return the question of the same prompt whose seed gives this answer, or ""."""
    assert asked.answer is not None
    same_prompt = prompts.get(asked.question.prompt, {})
    owners = [
        name for name, text in same_prompt.items() if text == asked.answer.text and name != asked.question.id
    ]
    distinct = len(asked.answer.text) > 3 and asked.answer.text != alone[asked.question.id]
    return owners[0] if owners and distinct else ""


def _make_fault(asked: AskedQuestion, detail: str, alone: Mapping[str, str]) -> AnswerFault:
    expected = alone[asked.question.id]
    return AnswerFault(asked.question, asked.schedule, "changed sample", detail, asked.answer, expected=expected)


def _find_first_token(answer: EngineAnswer | None) -> int | None:
    return answer.tokens[0].token if answer is not None and answer.tokens else None
