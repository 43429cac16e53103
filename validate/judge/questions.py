"""The questions of a judgement: requests together with the tokens that the reference reads and answers.

One table of questions is asked alone, repeated, and in crowds; `answers.py` judges every answer in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from zinc_rt.validate.judge.engine_client import TOP, EngineFeatures
from zinc_rt.validate.judge.oracle import Oracle
from zinc_rt.validate.judge.texts import DIFFICULT, make_canary, make_passage, make_sentence

Kind = Literal["tokens", "text", "chat", "stop", "stream", "forced", "sampled", "nucleus"]
GREEDY: tuple[Kind, ...] = ("tokens", "text", "chat", "stop", "stream")
ANSWER_TOKENS = 8
SAMPLED_TOKENS = 8
TOP_P = 0.5
SINGLE_TOKENS = 6
SHORT_LENGTHS = (2, 3, 5, 8, 12, 20, 28, 40)
# Tokens before the changed word: in the second page of a cache with pages of 16 tokens, and in others.
CHANGED_AT = ((17, 20, 24, 28), (33, 8, 65))
EDGES = (16, 32, 64, 128, 256, 512, 1024, 2048)  # pages, chunks and batches of common engines


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """`prompt`: the tokens as the reference reads them. `expected`: its greedy continuation, empty where the
    answer is sampled. `partner`: the id of the question that this one is a small change of.
    """

    id: str
    kind: Kind
    body: dict[str, Any]
    prompt: tuple[int, ...]
    expected: tuple[int, ...] = ()
    stop: str = ""
    partner: str = ""
    canary: str = ""
    messages: tuple[dict[str, str], ...] = field(default=())

    @property
    def limit(self) -> int:
        return int(self.body["max_tokens"])


@dataclass(slots=True)
class QuestionMaker:
    """Makes the questions for one engine and one model. `largest`: maximum number of tokens of prompt and
    answer.
    """

    oracle: Oracle
    features: EngineFeatures
    seed: int
    largest: int

    def make_distinct(self, count: int) -> list[JudgeQuestion]:
        """Return at least `count` greedy and sampled questions, with all kinds alternating."""
        chance = random.Random(self.seed)
        makers = [
            self._make_token_questions,
            self._make_text_questions,
            self._make_stop_questions,
            self._make_stream_questions,
            self._make_sampled_questions,
            self._make_nucleus_questions,
            self._make_changed,
        ]
        if self.features.chat and self.oracle.has_template:
            makers.append(self._make_chat_questions)
        questions: list[JudgeQuestion] = []
        number = 0
        while len(questions) < count:
            for maker in makers:
                questions += maker(number, chance)
            number += 1
        return self._answer([q for q in questions if len(q.prompt) + q.limit <= self.largest])

    def make_long_prompts(self) -> list[JudgeQuestion]:
        """Return greedy questions whose prompts end on both sides of each edge of pages and batches, and the
        longest ones.
        """
        text = self._make_long_text()
        last = len(text) - ANSWER_TOKENS
        lengths = {edge + offset for edge in EDGES for offset in (-1, 0, 1, 7)}
        lengths |= {last, last * 15 // 16, last * 7 // 8, last * 3 // 4}
        usable = sorted(n for n in lengths if 8 < n <= last)
        return self._answer([self._make_greedy(f"edge/{n}", "tokens", text[:n]) for n in usable])

    def make_forced(self, count: int) -> list[JudgeQuestion]:
        """Return questions for one token at `count` positions of one text, each edge with its neighbours."""
        text = self._make_long_text()
        last = len(text) - 1
        near = [edge + offset for edge in EDGES for offset in (-1, 0, 1)]
        spread = [round(1 + (last - 1) * index / max(1, count - 1)) for index in range(count)]
        positions = sorted({n for n in (*near, *spread) if 1 <= n <= last})
        while len(positions) > count:
            positions.pop(random.Random(len(positions)).randrange(len(positions)))
        questions = [
            JudgeQuestion(f"forced/{n}", "forced", self.make_body(text[:n], 1, logprobs=TOP), text[:n])
            for n in positions
        ]
        if self.features.token_prompts:  # positions have no effect on the answer to one token
            singles = sorted(set(text) - {self.oracle.tokenizer.bos_id})[:SINGLE_TOKENS]
            questions += [
                JudgeQuestion(f"forced/token {n}", "forced", self.make_body((n,), 1, logprobs=TOP), (n,))
                for n in singles
            ]
            questions += [
                JudgeQuestion(f"forced/first {n}", "forced", self.make_body(text[:n], 1, logprobs=TOP), text[:n])
                for n in SHORT_LENGTHS
                if n < last and n not in positions
            ]
        return questions

    def make_samples(self, count: int) -> list[JudgeQuestion]:
        """Return sampled questions for one token each, of a few prompts, every one with its own seed."""
        chance = random.Random(self.seed + 1)
        prompts = [self.encode_prompt(make_sentence(chance)[:-1]) for _ in range(4)]
        return [
            JudgeQuestion(
                f"sample/{number}",
                "sampled",
                self.make_body(prompt, 1, temperature=1.0, top_p=1.0, seed=1000 + number, logprobs=1),
                prompt,
            )
            for number in range(count)
            for prompt in (prompts[number % len(prompts)],)
        ]

    def _make_long_text(self) -> tuple[int, ...]:
        chance = random.Random(self.seed + 2)
        text = make_passage(chance, 4)
        while len(self.oracle.encode(text)) < self.largest:
            text += " " + make_passage(chance, 8)
        tokens = self.oracle.encode(text)
        return tokens[: self.largest - 1]

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text."""
        return self.oracle.encode(text)

    def _format_prompt(self, tokens: Sequence[int]) -> list[int] | str:
        """Return a prompt as ids, or as text for a server that accepts only that."""
        if self.features.token_prompts:
            return list(tokens)
        ids = tokens[1:] if tokens and tokens[0] == self.oracle.tokenizer.bos_id else tokens
        return self.oracle.tokenizer.decode(ids)

    def make_body(self, prompt: Sequence[int], count: int, **fields: Any) -> dict[str, Any]:
        """Return the request for `count` tokens after a prompt, greedy unless `fields` say otherwise."""
        body = {"prompt": self._format_prompt(prompt), "max_tokens": count, "temperature": 0.0, **fields}
        if not self.features.logprobs:
            body.pop("logprobs", None)
        return body

    def _make_greedy(self, name: str, kind: Kind, prompt: Sequence[int], **others: Any) -> JudgeQuestion:
        body = self.make_body(prompt, ANSWER_TOKENS, logprobs=TOP)
        return JudgeQuestion(name, kind, body, tuple(prompt), **others)

    def _answer(self, questions: Sequence[JudgeQuestion]) -> list[JudgeQuestion]:
        """Return the questions with the greedy tokens that the reference answers, computed for all together."""
        greedy = [question.prompt for question in questions if question.kind in GREEDY]
        self.oracle.prepare_greedy(greedy, ANSWER_TOKENS)
        answered: list[JudgeQuestion] = []
        for question in questions:
            if question.kind in GREEDY:
                question = replace(
                    question, expected=self.oracle.continue_greedily(question.prompt, ANSWER_TOKENS)
                )
            if question.kind == "stop":
                answered += self._choose_stop(question)
            else:
                answered.append(question)
        return answered

    def _choose_stop(self, question: JudgeQuestion) -> Iterator[JudgeQuestion]:
        """Yield the question with a stop string from the middle of its answer, if that has a printable one."""
        text = self.oracle.text(question.expected, special="\ufffd")
        middle = text[len(text) // 3 : len(text) // 3 + 3]
        if len(middle) == 3 and middle.isprintable() and "\ufffd" not in middle:
            yield replace(question, stop=middle, body={**question.body, "stop": [middle]})

    def _make_token_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        word = make_canary(chance)
        text = f"{make_passage(chance, chance.choice((1, 2, 4)))} The code is {word}. The code"
        yield self._make_greedy(f"tokens/{number}", "tokens", self.encode_prompt(text), canary=word)

    def _make_text_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        text = f"{make_sentence(chance)} {DIFFICULT[number % len(DIFFICULT)]}"
        question = self._make_greedy(f"text/{number}", "text", self.oracle.encode(text))
        yield replace(question, body={**question.body, "prompt": text})

    def _make_stop_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        yield self._make_greedy(f"stop/{number}", "stop", self.encode_prompt(make_passage(chance, 2)))

    def _make_stream_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        question = self._make_greedy(f"stream/{number}", "stream", self.encode_prompt(make_passage(chance, 1)))
        yield replace(question, body={**question.body, "stream": True})

    def _make_changed(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        """Yield a prompt, and the same prompt twice with one other word, which a cache could confuse."""
        words = make_passage(chance, 4).split()
        while len(words) > 12 and len(self.encode_prompt(" ".join(words))) + 2 * ANSWER_TOKENS > self.largest:
            words.pop()
        first = f"changed/{number}a"
        prompt = self.encode_prompt(" ".join(words))
        yield self._make_greedy(first, "tokens", prompt, partner=f"changed/{number}b")
        for turn, letter in enumerate("bc"):
            depth = CHANGED_AT[turn][number % len(CHANGED_AT[turn])]
            lengths = (len(self.encode_prompt(" ".join(words[:n]))) for n in range(1, len(words)))
            index = next((n for n, length in enumerate(lengths, 1) if length >= depth), 1)
            index = min(index, len(words) - 6)
            changed = [*words[:index], f"{chance.choice((17, 38, 94))}", *words[index + 1 :]]
            prompt = self.encode_prompt(" ".join(changed))
            yield self._make_greedy(f"changed/{number}{letter}", "tokens", prompt, partner=first)

    def _make_chat_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        word = make_canary(chance)
        manner = chance.choice(("brief", "formal", "cheerful"))
        messages = (
            {"role": "system", "content": f"You are a {manner} guide. The code is {word}."},
            {"role": "user", "content": make_sentence(chance)},
        )
        prompt = self.oracle.chat_tokens(messages)
        body = {"messages": list(messages), "max_tokens": ANSWER_TOKENS, "temperature": 0.0}
        if self.features.logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP}
        yield JudgeQuestion(f"chat/{number}", "chat", body, prompt, canary=word, messages=messages)

    def _make_sampled_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        prompt = self.encode_prompt(make_sentence(random.Random(number // 8))[:-1])  # eight seeds a prompt
        body = self.make_body(prompt, SAMPLED_TOKENS, temperature=1.0, seed=10 + number % 8, logprobs=1)
        yield JudgeQuestion(f"sampled/{number}", "sampled", body, prompt)

    def _make_nucleus_questions(self, number: int, chance: random.Random) -> Iterator[JudgeQuestion]:
        prompt = self.encode_prompt(make_sentence(chance)[:-1])
        body = self.make_body(prompt, 4, temperature=1.0, top_p=TOP_P, seed=200 + number, logprobs=1)
        yield JudgeQuestion(f"nucleus/{number}", "nucleus", body, prompt)
