"""One judgement: open the reference, ask the engine everything, and return findings, numerics and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np

from zinc_rt.cli.progress import show_stages
from zinc_rt.validate.judge.answers import AnswerFault, AnswerJudge, JudgeLimits, NumericSample, compare_numerics
from zinc_rt.validate.judge.distribution import SamplingTest, check_sampling, make_sampling_questions
from zinc_rt.validate.judge.engine_client import (
    EngineClient,
    EngineFeatures,
    ReportedToken,
    RequestError,
)
from zinc_rt.validate.judge.oracle import QUANTISED_ACTIVATIONS, Oracle, open_oracle
from zinc_rt.validate.judge.questions import TOP, JudgeQuestion, QuestionMaker
from zinc_rt.validate.judge.reproduce import Reproducer, find_reproducer
from zinc_rt.validate.judge.sampler_check import check_distribution, check_seeds
from zinc_rt.validate.judge.schedule import AskedQuestion, ask_alone, ask_crowd
from zinc_rt.validate.judge.second_reference import ReferenceAgreement, compare_references
from zinc_rt.validate.judge.texts import DIFFICULT
from zinc_rt.validate.judge.verdict import EngineDefect, find_defects, summarise_numerics

KL_FLOOR, MEAN_FLOOR = 1e-3, 2e-5  # nats: f32 engines differ by less
# Times what quantised activations cause in the reference. llama-server b10434 with SmolLM2-135M Q4_1 on a CPU, its
# KV cache in f16, has 10.5 and 4.2 times as much.
KL_MARGIN, MEAN_MARGIN = 30.0, 12.0
EXACT_MARGIN = 100.0  # by which the median divergence of an engine with exact activations is smaller
CALIBRATION_TOKENS = 192
COMPARED = 128  # answers at a time


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """`answers`: how many answers of each kind of question at least, in crowds of `at_once`; `distinct`: different
    questions of all kinds together. `sampling`: sampled tokens of each setting that is compared with the
    reference's distribution. `budget_seconds`: the number of answers is reduced if the engine would need
    longer. `python`: an interpreter with transformers, as a second reference.
    """

    answers: int = 200
    distinct: int = 80
    at_once: int = 8
    positions: int = 64
    samples: int = 200
    sampling: int = 0
    seed: int = 1
    ctx: int | None = None
    tie_nats: float = 0.125
    budget_seconds: float = 600.0
    threads: int = 0
    python: str = ""


@dataclass(slots=True)
class EngineJudgement:
    """`expected`: the divergence that quantised activations cause in the reference, in nats: mean and maximum.
    `text`: the tokens with which it was measured.
    """

    features: EngineFeatures
    findings: list[EngineDefect] = field(default_factory=list)
    numerics: dict[str, float] = field(default_factory=dict)
    expected: dict[str, float] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)  # by kind of question
    skipped: list[str] = field(default_factory=list)
    tokens_per_second: dict[str, float] = field(default_factory=dict)  # alone and in the crowd
    reproducers: list[Reproducer | None] = field(default_factory=list)  # one for each finding
    sampling: list[SamplingTest] = field(default_factory=list)
    text: tuple[int, ...] = ()
    second: ReferenceAgreement | None = None
    seconds: float = 0.0


def judge_engine(
    client: EngineClient, model: str | Path, options: JudgeOptions, opened: Oracle | None = None
) -> EngineJudgement:
    """Judge the engine behind `client`, which serves the GGUF file `model`. `opened`: the reference, if it is open
    already; it keeps what it computes for the next judgement.

    Raises InputError if the engine does not answer completions, and the errors of LLM for the model.
    """
    start = time.monotonic()
    with show_stages() as stage:
        stage.say("asking what the engine accepts")
        features = client.detect_features()
        ctx = min(options.ctx or 1024, features.ctx or 1024)
        keep = nullcontext(opened) if opened else open_oracle(model, ctx, threads=options.threads)
        with keep as reference:
            client.detect_logprobs(reference.find_token)
            judgement = EngineJudgement(features)
            stage.say("computing the expected answers")
            maker = QuestionMaker(reference, features, options.seed, min(ctx, reference.ctx))
            questions = maker.make_distinct(options.distinct)
            edges, forced = (
                maker.make_long_prompts(),
                maker.make_forced(options.positions) if features.logprobs else [],
            )
            samples = maker.make_samples(options.samples) if features.logprobs else []
            samples += make_sampling_questions(maker, options.sampling)
            judgement.text = max((question.prompt for question in forced), key=len, default=())[
                :CALIBRATION_TOKENS
            ]
            judgement.expected = _measure_expected_numerics(model, reference, judgement.text, ctx, options)
            limits = JudgeLimits(options.tie_nats, max(KL_FLOOR, KL_MARGIN * judgement.expected.get("max", 0.0)))
            by_id = {question.id: question for question in (*questions, *edges, *forced, *samples)}
            answers = AnswerJudge(
                reference, limits, {question.canary: question.id for question in questions if question.canary}
            )
            asked = _ask_all(client, questions, edges, forced, samples, options, judgement, stage.say)
            stage.say("comparing the answers")
            limits = _limits(limits, answers, asked, judgement.expected)
            answers = AnswerJudge(reference, limits, answers.canaries)
            faults = _collect_faults(answers, asked)
            divergence = fmean([sample.kl for sample in answers.numerics] or [0.0])
            faults += check_seeds(reference, asked, partial(_answer_of_seed, client), divergence)
            faults += _check_tokenizer(client, reference, questions)
            distribution = check_distribution(
                reference, [item for item in asked if item.question.id.startswith("sample/")]
            )
            judgement.sampling = check_sampling(reference, asked, answers.numerics)
            unlikely = [text for text in (distribution, *(test.describe() for test in judgement.sampling)) if text]
            mean_limit = max(MEAN_FLOOR, MEAN_MARGIN * judgement.expected.get("mean", 0.0))
            judgement.findings = find_defects(
                reference,
                by_id,
                asked,
                faults,
                answers.numerics,
                mean_limit=mean_limit,
                distribution=unlikely,
            )
            judgement.numerics = summarise_numerics(answers.numerics)
            if options.python:
                stage.say("comparing the reference with a second one")
                judgement.second = compare_references(
                    reference, options.python, Path(model), judgement.text, judgement.findings
                )
            for number, finding in enumerate(judgement.findings, 1):
                stage.say(f"asking again for finding {number} of {len(judgement.findings)}")
                second = AnswerJudge(reference, limits, answers.canaries)
                judgement.reproducers.append(
                    find_reproducer(client, finding, by_id, second, asked, at_once=options.at_once)
                )
    _describe_skipped(features, reference, judgement)
    judgement.seconds = time.monotonic() - start
    return judgement


def _ask_all(
    client: EngineClient,
    questions: Sequence[JudgeQuestion],
    edges: Sequence[JudgeQuestion],
    forced: Sequence[JudgeQuestion],
    samples: Sequence[JudgeQuestion],
    options: JudgeOptions,
    judgement: EngineJudgement,
    say: Callable[[str], object],
) -> list[AskedQuestion]:
    say(f"asking {len(questions) + len(edges) + len(forced)} questions alone")
    begin = time.monotonic()
    asked = list(ask_alone(client, [*forced, *questions, *edges]))
    alone_seconds = time.monotonic() - begin
    judgement.tokens_per_second["alone"] = _compute_speed(asked, alone_seconds)
    asked += ask_alone(client, questions, "repeated")
    kinds = [question.kind for question in questions]
    minimum = min(kinds.count(kind) for kind in set(kinds))
    rounds = max(1, -(-options.answers // minimum) - 2)
    each_round = alone_seconds * (len(questions) + len(edges)) / max(1, len(asked) - len(questions)) / 2
    affordable = int((options.budget_seconds - 2 * alone_seconds) / max(1e-3, each_round))
    if affordable < rounds:
        rounds = max(2, affordable)
        judgement.skipped.append(
            f"crowd: {rounds} rounds, fewer than planned, to end within {options.budget_seconds:g} s"
        )
    begin, crowd = time.monotonic(), []
    for number in range(rounds):
        say(f"asking {len(questions) + len(edges)} questions at once, round {number + 1} of {rounds}")
        wave = [*questions, *edges, *samples[number::rounds]]
        crowd += ask_crowd(client, wave, at_once=options.at_once, seed=options.seed + number)
    judgement.tokens_per_second["crowd"] = _compute_speed(crowd, time.monotonic() - begin)
    asked += crowd
    for item in asked:
        judgement.answers[item.question.kind] = judgement.answers.get(item.question.kind, 0) + 1
    return asked


def _compute_speed(asked: Sequence[AskedQuestion], seconds: float) -> float:
    tokens = sum(len(item.answer.tokens) or item.answer.events for item in asked if item.answer is not None)
    return tokens / seconds if seconds else 0.0


def _collect_faults(answers: AnswerJudge, asked: Sequence[AskedQuestion]) -> list[AnswerFault]:
    """Return the faults of all answers, in the order in which they were asked. Answers to neighbouring prompts are
    compared together, because their distributions are computed together.
    """
    order = sorted(range(len(asked)), key=lambda index: asked[index].question.prompt)
    faults: dict[int, list[AnswerFault]] = {}
    for start in range(0, len(order), COMPARED):
        some = order[start : start + COMPARED]
        answers.prepare([(asked[n].question, answer) for n in some if (answer := asked[n].answer) is not None])
        for index in some:
            item = asked[index]
            if item.answer is None:
                faults[index] = [AnswerFault(item.question, item.schedule, "refused", item.error)]
            else:
                faults[index] = answers.find_faults(item.question, item.answer, item.schedule)
    return [fault for index in range(len(asked)) for fault in faults[index]]


def _limits(
    limits: JudgeLimits, judge: AnswerJudge, asked: Sequence[AskedQuestion], expected: Mapping[str, float]
) -> JudgeLimits:
    """Return stricter limits for an engine that does not quantise activations: its usual divergence is much
    smaller than theirs, so a single divergence of their size has another cause.
    """
    judge.limits = replace(limits, kl=float("inf"))
    _collect_faults(judge, [item for item in asked if item.answer is not None and item.schedule == "alone"])
    if not judge.numerics:
        return limits
    usual = median(sample.kl for sample in judge.numerics)
    is_exact = EXACT_MARGIN * usual < expected.get("mean", 0.0)
    return replace(limits, kl=KL_FLOOR) if is_exact else limits


def _answer_of_seed(client: EngineClient, question: JudgeQuestion, seed: int) -> str:
    """Return the text of a sampled question with another seed, asked alone; "" if it is refused."""
    try:
        return client.complete({**question.body, "seed": seed}).text
    except RequestError:
        return ""


def _check_tokenizer(
    client: EngineClient, reference: Oracle, questions: Sequence[JudgeQuestion]
) -> Iterator[AnswerFault]:
    """Compare the server's tokenizer and template with ours, if it has routes for them."""
    asked = next((question for question in questions if question.kind == "text"), None)
    for text in DIFFICULT if asked is not None else ():
        theirs, ours = client.tokenize(text, special=True), list(reference.encode(text))
        if theirs is not None and theirs != ours:
            index = next(
                (n for n, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
                min(len(theirs), len(ours)),
            )
            counts = f"{len(theirs)} tokens, expected {len(ours)}"
            detail = f"/tokenize of {text!r}: {counts}; the first difference is token {index}"
            assert asked is not None
            yield AnswerFault(asked, "alone", "prompt length", detail)
    for question in questions:
        if question.messages:
            theirs_text = client.apply_template(question.messages)
            ours_text = reference.chat_text(question.messages)
            if theirs_text is not None and theirs_text.strip() != ours_text.strip():
                bos = reference.tokenizer.bos_id
                prefix = "" if bos is None else reference.tokenizer.token_text(bos)
                if theirs_text.strip() != ours_text.removeprefix(prefix).strip():  # some servers add it later
                    detail = f"/apply-template gives {theirs_text[:120]!r}, expected {ours_text[:120]!r}"
                    yield AnswerFault(question, "alone", "prompt length", detail)
            return


def _measure_expected_numerics(
    model: str | Path, reference: Oracle, text: Sequence[int], ctx: int, options: JudgeOptions
) -> dict[str, float]:
    """Measure what quantised activations change in the reference: mean and largest divergence of one text."""
    if not text or reference.expected_numerics:
        return reference.expected_numerics
    exact = reference.predict(text[:1], text[1:])
    with open_oracle(model, ctx, ordering=QUANTISED_ACTIVATIONS, threads=options.threads) as other:
        quantised = other.predict(text[:1], text[1:])
    samples: list[NumericSample] = []
    for position, (right, changed) in enumerate(zip(exact, quantised, strict=True)):
        top = np.argpartition(changed.logits, -TOP)[-TOP:]
        values = zip(top.tolist(), changed.compute_logprobs(top).tolist(), strict=True)
        samples.append(compare_numerics(position, right, ReportedToken(None, "", None, dict(values))))
    reference.expected_numerics = {
        "mean": fmean(item.kl for item in samples),
        "max": max(item.kl for item in samples),
    }
    return reference.expected_numerics


def _describe_skipped(features: EngineFeatures, reference: Oracle, judgement: EngineJudgement) -> None:
    if not features.logprobs:
        judgement.skipped.append("log-probabilities: the engine reports none; only texts were compared")
    if not features.token_prompts:
        judgement.skipped.append("prompts as token ids: the engine refuses them; text was sent instead")
    if not features.chat or not reference.has_template:
        missing = "engine has no /v1/chat/completions" if reference.has_template else "file has no chat template"
        judgement.skipped.append(f"conversations: the {missing}")
    if not features.tokenize:
        judgement.skipped.append(
            "tokenizer: the engine has no /tokenize; prompt lengths and answers were compared"
        )
