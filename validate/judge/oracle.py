"""The reference of a judgement: the model on the CPU in canonical-1, whose bits do not depend on the machine.

A second, faster ordering of the same model shows which difference its arithmetic alone can make: other engines
quantise activations too, so the limits for them come from that measurement and not from a fixed number.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.engine import engine as model_engine
from zinc_rt.engine.answering import Answering
from zinc_rt.engine.opening import ModelOptions, make_engine_opener
from zinc_rt.model.tokenizer.tokenizer import Tokenizer

BYTES = "bytes:"  # before the escaped bytes of a token that is not valid UTF-8, as in OpenAI's API
KEPT_BYTES = 1 << 30  # of logits; the oldest are dropped and computed again if needed
SLOTS = 4  # sequences a step
ROWS = 128  # of logits a step
TOKENS_PER_STEP = 6  # tokens of a prompt that take as long as a step for one token of each sequence
QUANTISED_ACTIVATIONS = "canonical-1-q8"
Tokens = tuple[int, ...]
Part = tuple[model_engine.Sequence, Tokens, list[int]]  # tokens to append, and of which of them logits are needed


@dataclass(frozen=True, slots=True)
class NextToken:
    """The reference's distribution of one token. `logits`: f32 [V]; `total`: the logarithm of the sum of their
    exponentials, f64.
    """

    logits: np.ndarray
    total: float
    best: int  # the most likely token

    def compute_logprobs(self, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the log-probabilities of tokens in nats, f64 [len(tokens)]."""
        return self.logits[tokens].astype(np.float64) - self.total

    def compute_gap(self, token: int) -> float:
        """Return by how many nats the most likely token is more likely than this one."""
        return float(self.logits[self.best]) - float(self.logits[token])

    def compute_margin(self) -> float:
        """Return the gap of the second most likely token."""
        second, best = np.partition(self.logits, -2)[-2:]
        return float(best) - float(second)

    def compute_mass_above(self, token: int) -> float:
        """Return the probability of the tokens that are more likely than this one."""
        above = self.logits[self.logits > self.logits[token]].astype(np.float64)
        return float(np.exp(above - self.total).sum())


@dataclass(frozen=True, slots=True)
class _Job:
    """Compute the distributions after the first `first` tokens and every longer prefix, then continue greedily."""

    tokens: Tokens
    first: int
    count: int = 0


@dataclass(slots=True)
class Oracle:
    """The reference model. Distributions are computed once for each prefix and kept; prompts with a common
    beginning share its computation.
    """

    core: Answering
    expected_numerics: dict[str, float] = field(
        default_factory=dict
    )  # once measured: see EngineJudgement.expected
    _known: dict[Tokens, NextToken] = field(default_factory=dict)
    _special: re.Pattern[str] | None = None
    _ids: dict[str, int | None] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.core.require_tokenizer("zinc-rt judge")

    @property
    def ctx(self) -> int:
        return self.core.engine.limits.ctx

    @property
    def has_template(self) -> bool:
        return bool(self.core.engine.model.gguf.metadata.get("tokenizer.chat_template"))

    def chat_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        return self.core.render_chat(messages)

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]]) -> Tokens:
        return tuple(self.core.encode_chat(self.chat_text(messages)))

    def encode(self, text: str) -> Tokens:
        return tuple(self.tokenizer.encode(text))

    def find_token(self, text: str) -> int | None:
        """Return the id of the only token with this text, or None. A token that is not valid UTF-8 is written as
        in OpenAI's API: bytes: and its escaped bytes.
        """
        if not self._ids:
            for token in range(self.tokenizer.vocab_size):
                piece = _format_bytes(self.tokenizer.piece_bytes(token))
                self._ids[piece] = None if piece in self._ids else token
        return self._ids.get(text)

    def is_partial(self, token: int) -> bool:
        """Return whether a token is not valid UTF-8 on its own: it begins or ends inside a character."""
        return _format_bytes(self.tokenizer.piece_bytes(token)).startswith(BYTES)

    def text(self, tokens: Sequence[int], special: str = "") -> str:
        """Return the text of an answer, with `special` in place of special tokens."""
        pieces = (
            special.encode() if self.tokenizer.is_special(token) else self.tokenizer.piece_bytes(token)
            for token in tokens
        )
        return b"".join(pieces).decode(errors="replace")

    def name_special(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """Return the names of the special tokens of an answer."""
        return tuple(self.tokenizer.token_text(token) for token in tokens if self.tokenizer.is_special(token))

    def remove_special(self, text: str) -> str:
        """Return a text without the names of special tokens, which some engines write and others omit."""
        if self._special is None:
            tokenizer = self.tokenizer
            names = [tokenizer.token_text(n) for n in range(tokenizer.vocab_size) if tokenizer.is_special(n)]
            self._special = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")
        return self._special.sub("", text)

    def predict(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> list[NextToken]:
        """Return the distributions after the prompt and after each token of an answer: len(answer) + 1."""
        whole = (*prompt, *answer)
        wanted = [whole[:length] for length in range(len(prompt), len(whole) + 1)]
        if any(prefix not in self._known for prefix in wanted):
            self.prepare([(prompt, answer)])
        return [self._known[prefix] for prefix in wanted]

    def prepare(self, asked: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Compute what `predict` will return for each prompt and answer, together."""
        self._run([_Job((*prompt, *answer), len(prompt)) for prompt, answer in asked])

    def continue_greedily(self, prompt: Sequence[int], count: int) -> Tokens:
        """Return the most likely continuation, at most `count` tokens, with the end token if it is reached."""
        answer: list[int] = []
        while len(answer) < count:
            token = self._known.get((*prompt, *answer))
            if token is None:
                self._run([_Job(tuple(prompt), len(prompt), count)])
                continue
            answer.append(token.best)
            if token.best in self.tokenizer.eog_ids:
                break
        return tuple(answer)

    def prepare_greedy(self, prompts: Iterable[Sequence[int]], count: int) -> None:
        """Compute what `continue_greedily` will return for each prompt, together."""
        self._run([_Job(tuple(prompt), len(prompt), count) for prompt in prompts])

    def _run(self, jobs: Sequence[_Job]) -> None:
        """Advance up to SLOTS sequences together until all jobs are done. Each takes neighbours in the order of
        their tokens, so that one prompt continues where the previous one had the same beginning.
        """
        jobs = [job for job in jobs if self._find_unknown(job) or job.count]
        if not jobs:
            return
        size = 4 * self.core.engine.model.vocab
        while len(self._known) * size > KEPT_BYTES:
            del self._known[next(iter(self._known))]
        walks = deque[tuple[Generator[Part, np.ndarray, None], Part]]()
        for some in _split(jobs, SLOTS):
            walk = self._walk(some)
            with suppress(StopIteration):  # everything is known
                walks.append((walk, next(walk)))
        while walks:
            batch, rows, start = [], [], 0
            for _, (sequence, part, wanted) in walks:
                batch.append((sequence, part))
                rows += [start + index for index in wanted]
                start += len(part)
            logits = self.core.engine.step(batch, rows)
            for _ in range(len(walks)):
                walk, (_, _, wanted) = walks.popleft()
                mine, logits = logits[: len(wanted)], logits[len(wanted) :]
                with suppress(StopIteration):
                    walks.append((walk, walk.send(mine)))

    def _walk(self, jobs: Sequence[_Job]) -> Generator[Part, np.ndarray, None]:
        """Yield the parts of one sequence, which is taken back to what consecutive jobs have in common. Receive
        the logits of each part, f32 [rows, V].
        """
        engine = self.core.engine
        sequence = engine.open()
        try:
            for job in jobs:
                tokens, count = job.tokens, 0
                while True:
                    if wanted := self._find_unknown(job, tokens):
                        keep = min(_count_common(sequence.tokens, tokens), wanted[0] - 1)
                        if not engine.rewind(sequence, keep):
                            engine.release(sequence)
                            sequence = engine.open()
                        yield from self._append(sequence, tokens[: wanted[-1]], wanted)
                    count += 1
                    token = self._known[tokens].best
                    if count >= job.count or token in self.tokenizer.eog_ids:
                        break
                    tokens = (*tokens, token)
        finally:
            engine.release(sequence)

    def _find_unknown(self, job: _Job, tokens: Tokens | None = None) -> list[int]:
        """Return the lengths of prefixes of `tokens`, by default the job's, that are to be computed."""
        whole = job.tokens if tokens is None else tokens
        return [length for length in range(job.first, len(whole) + 1) if whole[:length] not in self._known]

    def _append(
        self, sequence: model_engine.Sequence, tokens: Tokens, wanted: Sequence[int]
    ) -> Generator[Part, np.ndarray, None]:
        """Append the rest of `tokens` and keep the distributions after each of the `wanted` lengths."""
        lengths = deque(wanted)
        while (start := sequence.position) < len(tokens):
            end = min(len(tokens), start + max(1, self.core.engine.limits.step_tokens // SLOTS))
            inside = [length for length in lengths if length <= end][: ROWS // SLOTS]
            if inside and len(inside) < len(lengths) and lengths[len(inside)] <= end:
                end = inside[-1]
            logits = yield sequence, tokens[start:end], [length - 1 - start for length in inside]
            for row in logits:
                self._known[tokens[: lengths.popleft()]] = make_next_token(row)


@contextmanager
def open_oracle(
    model: str | Path, ctx: int, *, ordering: str = "canonical-1", threads: int = 0
) -> Iterator[Oracle]:
    """Open the reference. Raises as LLM does."""
    opener = make_engine_opener(
        model, ModelOptions(device="cpu", slots=SLOTS, ctx=ctx, ordering=ordering, threads=threads)
    )
    core = Answering(replace(opener, limits=replace(opener.limits, rows=ROWS))())
    try:
        yield Oracle(core)
    finally:
        core.close()


def _format_bytes(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return BYTES + "".join(f"\\x{byte:02x}" for byte in piece)


def make_next_token(logits: np.ndarray) -> NextToken:
    """Return the distribution of a row of logits, f32 [V]."""
    wide = logits.astype(np.float64)
    best = int(wide.argmax())
    return NextToken(logits.copy(), float(wide[best] + np.log(np.exp(wide - wide[best]).sum())), best)


def _count_common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _split(jobs: Sequence[_Job], count: int) -> list[list[_Job]]:
    """Sort jobs by their tokens and split them into at most `count` parts, as many as take the least time: a part
    computes again what its first job has in common with the part before it.
    """
    ordered = sorted(jobs, key=lambda job: (job.tokens, job.count))
    common = [0, *(_count_common(one.tokens, two.tokens) for one, two in pairwise(ordered))]
    steps = [
        (len(job.tokens) - same) / TOKENS_PER_STEP + job.count for job, same in zip(ordered, common, strict=True)
    ]
    plans = [_cut(steps, parts) for parts in range(1, count + 1)]

    def estimate_steps(cuts: Sequence[int]) -> float:
        ends = [*cuts[1:], len(ordered)]
        answers = max(sum(job.count for job in ordered[start:end]) for start, end in zip(cuts, ends, strict=True))
        prompts = sum(len(job.tokens) - same for job, same in zip(ordered, common, strict=True))
        return answers + (prompts + sum(common[start] for start in cuts)) / TOKENS_PER_STEP

    cuts = min(plans, key=estimate_steps)
    return [ordered[start:end] for start, end in zip(cuts, [*cuts[1:], len(ordered)], strict=True)]


def _cut(steps: Sequence[float], parts: int) -> list[int]:
    """Return where each of at most `parts` parts with about the same sum of `steps` begins."""
    cuts, done, share = [0], 0.0, sum(steps) / parts
    for index, cost in enumerate(steps):
        if index > cuts[-1] and len(cuts) < parts and done + cost / 2 > share * len(cuts):
            cuts.append(index)
        done += cost
    return cuts
