"""Turn faults into findings: which part of the engine is wrong, and the evidence for it.

Each wrong answer is first compared with answers that known mistakes would give: another request's, the answer to
the prompt before it was changed, to the conversation without its system message, to the prompt with a token
dropped at the edge of a batch. What no mistake explains is classified by where it happens: for which kinds of
question, from which prompt length on, only beside other requests, or not every time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from zinc_rt.validate.judge.answers import AnswerFault, NumericSample, compare_numerics
from zinc_rt.validate.judge.oracle import Oracle
from zinc_rt.validate.judge.questions import ANSWER_TOKENS, EDGES, JudgeQuestion
from zinc_rt.validate.judge.schedule import AskedQuestion

EXPLAINED = 40  # faults of each kind of question that are compared with known mistakes
SAME_TOKENS = 4  # that make two answers the same one
EXPLAINS_BETTER = 4.0  # how many times closer a mistake's distribution must be than the right one's
LEAST_SHARE = 0.2  # of the wrong answers that a mistake must explain to be the cause
SAME_BEGINNING = "the prompt begins with the same tokens"
LEAKED_SHARE = 0.25  # of unrelated requests' answers among other requests' answers
PAGES = (16, 32, 64, 128, 256, 512)
LEAST_FIRST = 4  # positions of each group from which groups are compared
SMALL_MEAN = 2e-5  # nats: the divergence of engines that compute in f32 is smaller
GROWTH = 10.0  # of the divergence from early to late positions that makes it a matter of position
CLASSES = {
    "refused": "requests that the engine refuses or does not finish",
    "tokenizer": "text becomes other tokens",
    "template": "the conversation is written into another prompt",
    "position": "long prompts are computed wrongly from some length on",
    "KV reuse": "state of an earlier request is used for a later one",
    "leakage": "a request receives another request's answer or text",
    "sampler": "tokens are not sampled as requested",
    "log-probabilities": "the reported log-probabilities are not the model's",
    "stop strings": "stop strings do not end the text where they must",
    "streaming": "the streamed or returned text is not that of its tokens",
    "numerics": "the arithmetic differs by more than the weights' type explains",
    "nondeterminism": "the same request is sometimes answered wrongly",
}
# Faults whose kind names the class of the defect, and what they show.
DIRECT = {
    "refused": "refused", "canary": "leakage", "scale": "log-probabilities", "stop": "stop strings",
    "text": "streaming", "length": "sampler", "nucleus": "sampler", "changed sample": "sampler",
}  # fmt: skip
SUMMARIES = {
    "canary": "an answer contains text of another request's prompt",
    "scale": "the reported log-probabilities are those of another temperature",
    "stop": "a stop string stands in the text, or did not end it",
    "text": "the text of an answer is not that of its tokens",
    "length": "an answer has another number of tokens than requested",
    "nucleus": "top_p does not limit the sampled tokens",
    "changed sample": "an answer is not the one of its seed",
    "prompt length": "the engine counts other prompt tokens than the reference",
}


@dataclass(slots=True)
class EngineDefect:
    """A defect of the engine. `evidence`: one line per kind of observation. `faults`: the answers that show it."""

    kind: str
    summary: str
    evidence: list[str] = field(default_factory=list)
    faults: list[AnswerFault] = field(default_factory=list)


@dataclass(slots=True)
class Explainer:
    """Compares wrong answers with the answers that known mistakes would give."""

    oracle: Oracle
    questions: Mapping[str, JudgeQuestion]
    _owners: dict[tuple[int, ...], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for question in self.questions.values():
            if len(question.expected) >= SAME_TOKENS:
                self._owners.setdefault(question.expected[:SAME_TOKENS], []).append(question.id)

    def explain(self, fault: AnswerFault) -> tuple[str, str] | None:
        """Return the class and the description of the mistake that explains this answer, or None."""
        mistakes = [
            mistake
            for mistake in self._try_mistakes(fault.question)
            if 0 < len(mistake[2]) < self.oracle.ctx - ANSWER_TOKENS
        ]
        if fault.kind != "logprob":
            self._prepare(fault, [prompt for _, _, prompt in mistakes])
        for kind, sentence, prompt in mistakes:
            is_same = fault.kind == "logprob" or self._is_answer_to(fault, prompt)
            if is_same and self._has_distribution(fault, prompt):
                return kind, sentence
        if fault.kind == "logprob":
            return None
        owner = self._find_other_request(fault)
        if owner is None:
            return None
        if _common(owner.prompt, fault.question.prompt) >= min(PAGES):
            return "KV reuse", f"{SAME_BEGINNING} as {owner.id}, whose answer it is"
        return "leakage", f"the answer is the one to {owner.id}"

    def _find_other_request(self, fault: AnswerFault) -> JudgeQuestion | None:
        """Return the request that this is the answer to, the one with the most similar prompt of several."""
        own, answer = fault.question, fault.answer
        if len(fault.tokens) >= SAME_TOKENS:
            same = [self.questions[name] for name in self._owners.get(fault.tokens[:SAME_TOKENS], [])]
            same = [q for q in same if q.expected[: len(fault.tokens)] == fault.tokens[: len(q.expected)]]
        else:
            text = "" if answer is None else answer.text.strip()
            same = [q for q in self.questions.values() if q.expected and len(text) >= 8]
            same = [q for q in same if self.oracle.text(q.expected).strip() == text]
        count = None if answer is None else answer.prompt_tokens
        same = [q for q in same if q.expected != own.expected and count in (None, len(own.prompt), len(q.prompt))]
        return max(same, key=lambda q: _common(q.prompt, own.prompt), default=None)

    def _prepare(self, fault: AnswerFault, prompts: Sequence[Sequence[int]]) -> None:
        """Compute together what `_is_answer_to` will compare."""
        if len(fault.tokens) >= SAME_TOKENS:
            self.oracle.prepare((prompt, fault.tokens[: SAME_TOKENS - 1]) for prompt in prompts)
        else:
            self.oracle.prepare_greedy(prompts, ANSWER_TOKENS)

    def _is_answer_to(self, fault: AnswerFault, prompt: Sequence[int]) -> bool:
        """Return whether the answer is the one to `prompt`, and not to the right prompt as well."""
        same = fault.tokens[:SAME_TOKENS]
        if len(same) == SAME_TOKENS:
            best = tuple(token.best for token in self.oracle.predict(prompt, same[:-1]))
            return same == best and same != fault.question.expected[:SAME_TOKENS]
        answer = self.oracle.continue_greedily(prompt, ANSWER_TOKENS)
        text = "" if fault.answer is None else fault.answer.text.strip()
        is_different = answer[:SAME_TOKENS] != fault.question.expected[:SAME_TOKENS]
        return is_different and len(text) >= 8 and text == self.oracle.text(answer).strip()

    def _has_distribution(self, fault: AnswerFault, prompt: Sequence[int]) -> bool:
        """Return whether the log-probabilities reported at the fault are those after `prompt` rather than those
        after the right one. True for a wrong token without them.
        """
        own, answer = fault.question.prompt, fault.answer
        index = 0 if fault.position is None else fault.position - len(own)
        if answer is None or not fault.tokens or not answer.tokens[index].top:
            return fault.kind == "token"
        before, reported = fault.tokens[:index], answer.tokens[index]
        right, mistaken = (
            compare_numerics(0, self.oracle.predict((*ids, *before))[0], reported).kl for ids in (own, prompt)
        )
        return mistaken < right / EXPLAINS_BETTER

    def _try_mistakes(self, question: JudgeQuestion) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        prompt, tokenizer = question.prompt, self.oracle.tokenizer
        if question.messages:
            without = [message for message in question.messages if message["role"] != "system"]
            yield "template", "the answer is the one without the system message", self.oracle.chat_tokens(without)
            plain = question.messages[-1]["content"]
            yield "template", "the answer is the one to the message without a template", self.oracle.encode(plain)
        if partner := self.questions.get(question.partner):
            yield "KV reuse", f"the answer is the one to the earlier prompt {partner.id}", partner.prompt
            for page in PAGES:
                if page < min(len(prompt), len(partner.prompt)):
                    mixed = (*partner.prompt[:page], *prompt[page:])
                    yield (
                        "KV reuse",
                        f"the first {page} tokens are those of the earlier prompt {partner.id}",
                        mixed,
                    )
        if (bos := tokenizer.bos_id) is not None:
            if prompt[0] == bos:
                yield "tokenizer", "the answer is the one without the beginning-of-text token", prompt[1:]
            yield "tokenizer", "the answer is the one with a further beginning-of-text token", (bos, *prompt)
        for edge in EDGES:
            for index in (edge - 1, edge, edge + 1):
                if 0 < index < len(prompt) - 1:
                    sentence = f"the answer is the one to the prompt without token {index}, at the edge of {edge}"
                    yield "position", sentence, (*prompt[:index], *prompt[index + 1 :])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two prompts have in common at their beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def find_defects(
    oracle: Oracle,
    questions: Mapping[str, JudgeQuestion],
    asked: Sequence[AskedQuestion],
    faults: Sequence[AnswerFault],
    numerics: Sequence[NumericSample],
    *,
    mean_limit: float,
    distribution: Sequence[str] = (),
) -> list[EngineDefect]:
    """Return the findings. The first is the cause that the evidence supports best; the others may follow from it.

    `mean_limit`: of the mean divergence over all positions. `distribution`: what is wrong with the distribution of
    samples, one sentence for each setting.
    """
    explained, unexplained = _explain_faults(Explainer(oracle, questions), faults)
    tried = sum(len(item.faults) for item in explained) + len([f for f in unexplained if f.kind == "token"])
    causes = [item for item in explained if len(item.faults) >= max(2, LEAST_SHARE * min(tried, EXPLAINED))]
    causes.sort(key=lambda cause: -len(cause.faults))
    direct = _classify_faults(faults)
    if distribution:
        sampler = next((item for item in direct if item.kind == "sampler"), None)
        if sampler is None:
            direct.append(EngineDefect("sampler", distribution[0], list(distribution[1:])))
        else:
            sampler.evidence += distribution
    order = list(CLASSES)
    direct.sort(key=lambda item: order.index(item.kind))
    if direct and direct[0].kind == "sampler":
        direct = [*mean_numerics(numerics, mean_limit), *direct]  # wrong probabilities explain wrong samples
    others = [item for item in explained if item not in causes]
    findings = [*causes, *direct]
    if unexplained:
        location = _place(asked, unexplained, numerics)
        if findings and location.kind in ("nondeterminism", "numerics", "KV reuse"):
            findings[0].evidence += location.evidence
            findings[0].faults += location.faults
        else:
            findings.append(location)
    return _merge_findings([*findings, *others]) or mean_numerics(numerics, mean_limit)


def _explain_faults(
    explainer: Explainer, faults: Sequence[AnswerFault]
) -> tuple[list[EngineDefect], list[AnswerFault]]:
    """Return one finding for each class of known mistakes, and the remaining wrong answers and distributions."""
    sentences: dict[str, dict[str, list[AnswerFault]]] = defaultdict(lambda: defaultdict(list))
    left, tried = [], Counter[tuple[str, str]]()
    for fault in faults:
        if fault.kind not in ("token", "logprob"):
            continue
        mistake = None
        if tried[fault.kind, fault.question.kind] < EXPLAINED:
            tried[fault.kind, fault.question.kind] += 1
            mistake = explainer.explain(fault)
        if mistake is None:
            left.append(fault)
        else:
            sentences[mistake[0]][mistake[1]].append(fault)
    _join_leakage(sentences)
    findings = []
    for kind, same in sentences.items():
        ordered = sorted(same.items(), key=lambda item: -len(item[1]))
        finding = EngineDefect(kind, ordered[0][0], faults=[fault for _, item in ordered for fault in item])
        finding.evidence = [f"{sentence}: {_describe_faults(item)}" for sentence, item in ordered[:4]]
        findings.append(finding)
    return findings, left


def _join_leakage(sentences: dict[str, dict[str, list[AnswerFault]]]) -> None:
    """Move answers of requests that begin alike to leakage, if answers of other requests occur as well: then it
    is not the common beginning that confuses the engine.
    """
    alike = {text: faults for text, faults in sentences["KV reuse"].items() if text.startswith(SAME_BEGINNING)}
    leaked = sum(len(faults) for faults in sentences["leakage"].values())
    if leaked > LEAKED_SHARE * sum(len(faults) for faults in alike.values()):
        for text, faults in alike.items():
            sentences["leakage"][text] += faults
            del sentences["KV reuse"][text]
    for kind in ("leakage", "KV reuse"):
        if not sentences[kind]:
            del sentences[kind]


def _classify_faults(faults: Sequence[AnswerFault]) -> list[EngineDefect]:
    """Return findings for faults whose kind names the class."""
    groups: dict[str, dict[str, list[AnswerFault]]] = defaultdict(lambda: defaultdict(list))
    for fault in faults:
        kind = DIRECT.get(fault.kind)
        if fault.kind == "prompt length":
            kind = "template" if fault.question.messages else "tokenizer"
        if kind is not None:
            groups[kind][fault.detail if fault.kind == "refused" else SUMMARIES[fault.kind]].append(fault)
    findings = []
    for kind, summaries in groups.items():
        ordered = sorted(summaries.items(), key=lambda item: -len(item[1]))
        finding = EngineDefect(kind, ordered[0][0], faults=[fault for _, item in ordered for fault in item])
        finding.evidence = [f"{summary}: {_describe_faults(item)}" for summary, item in ordered]
        finding.evidence += list(dict.fromkeys(fault.detail for fault in finding.faults))[:3]
        findings.append(finding)
    return findings


def _merge_findings(findings: Sequence[EngineDefect]) -> list[EngineDefect]:
    """Join findings of the same class, in the order of their first occurrence."""
    merged: dict[str, EngineDefect] = {}
    for finding in findings:
        if finding.kind in merged:
            merged[finding.kind].evidence += finding.evidence
            merged[finding.kind].faults += finding.faults
        else:
            merged[finding.kind] = finding
    return list(merged.values())


def _describe_faults(faults: Sequence[AnswerFault]) -> str:
    schedules = Counter(fault.schedule for fault in faults)
    kinds = Counter(fault.question.id.partition("/")[0] for fault in faults)
    return (
        f"{len(faults)} answers ({', '.join(f'{count} {name}' for name, count in schedules.items())}; "
        f"{', '.join(f'{name} {count}' for name, count in kinds.most_common(4))})"
    )


def _place(
    asked: Sequence[AskedQuestion], faults: Sequence[AnswerFault], numerics: Sequence[NumericSample]
) -> EngineDefect:
    """Classify errors that no known mistake explains by where they occur."""
    kind, summary = _classify_by_place(asked, faults, numerics)
    evidence = [
        f"{summary}: {_describe_faults(faults)}",
        *list(dict.fromkeys(fault.detail for fault in faults))[:3],
    ]
    return EngineDefect(kind, summary, evidence, list(faults))


def _classify_by_place(
    asked: Sequence[AskedQuestion], faults: Sequence[AnswerFault], numerics: Sequence[NumericSample]
) -> tuple[str, str]:
    wrong = {id(fault.answer) for fault in faults}
    greedy = [item for item in asked if item.answer and item.question.kind not in ("sampled", "nucleus")]
    groups: dict[str, list[bool]] = defaultdict(list)
    for item in greedy:
        groups[item.question.kind].append(id(item.answer) in wrong)
    wrong_kinds = {kind for kind, answers in groups.items() if any(answers)}
    if wrong_kinds == {"chat"} and len(groups) > 1:
        return "template", "only conversations are answered wrongly"
    if wrong_kinds == {"text"} and len(groups) > 1:
        return "tokenizer", "only prompts sent as text are answered wrongly"
    if wrong_kinds == {"stream"} and len(groups) > 1:
        return "streaming", "only streamed answers are wrong"
    if (edge := _find_first_wrong_length(greedy, wrong)) is not None:
        return "position", f"only prompts of {edge} or more tokens are answered wrongly"
    if sum(fault.right_distribution for fault in faults) > len(faults) // 2:
        return "nondeterminism", "greedy tokens are sampled: the reported distribution is right, the token is not"
    if by_position := _by_position(numerics):
        return "position", by_position
    if all(fault.schedule == "crowd" for fault in faults):
        return "KV reuse", "answers are right alone and wrong beside other requests"
    right_too = {item.question.id for item in greedy if id(item.answer) not in wrong}
    unstable = [fault for fault in faults if fault.question.id in right_too]
    if len(unstable) > len(faults) // 2:
        return "nondeterminism", "the same requests are answered rightly at other times"
    if len({fault.answer.text for fault in faults if fault.answer}) > len({f.question.id for f in faults}):
        return "nondeterminism", "the same requests are answered in several ways"
    return "numerics", "the reference rejects some answers each time"


def _find_first_wrong_length(greedy: Sequence[AskedQuestion], wrong: set[int]) -> int | None:
    """Return the prompt length from which on answers are wrong, or None if short ones are wrong as well or too few
    are short.
    """
    lengths = sorted((len(item.question.prompt), id(item.answer) in wrong) for item in greedy)
    first = next((length for length, is_wrong in lengths if is_wrong), None)
    if first is None:
        return None
    below = sum(length < first for length, _ in lengths)
    above = [is_wrong for length, is_wrong in lengths if length >= first]
    if below < 20 or below < len(lengths) // 4 or first < 2 * lengths[0][0]:
        return None
    # at the observed rate, so many right answers below would be improbable
    return first if (1 - fmean(above)) ** below < 1e-3 else None


def _measure_growth(numerics: Sequence[NumericSample]) -> float | None:
    """Return how much the divergence grows from early to late positions, or None if it does not grow markedly."""
    ordered = sorted(numerics, key=lambda numeric: numeric.position)
    quarter = len(ordered) // 4
    if quarter < 8:
        return None
    early = median(item.kl for item in ordered[:quarter]) + 1e-9
    late = median(item.kl for item in ordered[-quarter:])
    return late / early if late / early > GROWTH and late > 1e-3 else None


def _by_position(numerics: Sequence[NumericSample]) -> str:
    """Return how the divergence of a wrong engine depends on positions, "" if it does not."""
    if (growth := _measure_growth(numerics)) is not None:
        return f"late positions differ {growth:.0f} times as much as early ones"
    return _rise(numerics, range(2, 17), range(64, 1 << 31), least=2.0)


def _rise(numerics: Sequence[NumericSample], early: range, late: range, *, least: float) -> str:
    """Return a sentence if prompts of one token are right and late positions differ `least` times as much as
    early ones: positions have no effect on the answer to one token. Otherwise return "".
    """
    first = [item.kl for item in numerics if item.position == 1]
    low = [item.kl for item in numerics if item.position in early]
    high = [item.kl for item in numerics if item.position in late]
    if min(len(first), len(low), len(high)) < LEAST_FIRST:
        return ""
    if median(high) < GROWTH * (max(first) + 1e-9) or median(high) < least * (median(low) + 1e-9):
        return ""
    return "prompts of one token are right, and the divergence rises with the position: RoPE"


def mean_numerics(numerics: Sequence[NumericSample], mean_limit: float) -> list[EngineDefect]:
    """Return a finding if the mean divergence is above its limit, or if it has the pattern of wrong RoPE."""
    if not numerics:
        return []
    mean = fmean(numeric.kl for numeric in numerics)
    worst = max(numerics, key=lambda numeric: numeric.kl)
    evidence = [f"worst at position {worst.position}: {worst.kl:.3g} nats"]
    summary = f"mean KL divergence {mean:.3g} nats over {len(numerics)} positions, limit {mean_limit:.3g}"
    if mean > mean_limit:
        by_position = _by_position(numerics)
        kind, more = ("position", [by_position]) if by_position else ("numerics", [])
        return [EngineDefect(kind, summary, [*evidence, *more])]
    # The margin of short prompts covers engines that compute few and many tokens with different kernels.
    rise = _rise(numerics, range(17, 65), range(128, 1 << 31), least=3.0)
    if rise and mean > SMALL_MEAN:
        return [EngineDefect("position", rise, [*evidence, summary])]
    return []


def summarise_numerics(numerics: Sequence[NumericSample]) -> dict[str, float]:
    """Return mean, median, 99th percentile and largest divergence, in nats."""
    if not numerics:
        return {}
    values = np.array([numeric.kl for numeric in numerics])
    return {
        "positions": float(len(values)),
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "p99": float(np.quantile(values, 0.99)),
        "max": float(values.max()),
    }
