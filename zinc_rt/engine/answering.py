"""Text answers: submit prompts to a resident model and decode the tokens of each answer.

`Answering` is the base of `LLM` and of `zinc-rt run`. The scheduler and a ModelRunner run on one thread.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from zinc_rt.engine.engine import Engine
from zinc_rt.engine.engine_core import EngineCore
from zinc_rt.host.errors import UsageError
from zinc_rt.model.tokenizer import StreamDecoder
from zinc_rt.sched.plan import Batch, RowLogprobs
from zinc_rt.sched.request import Request
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.speculation import Drafter
from zinc_rt.sched.tenant import CLASSES, Classes, Tenant
from zinc_rt.sched.token_mask import TokenMask


class TextOutput:
    """The text of one answer. `stopped`: the stop string that ended it. The text ends before the stop string."""

    def __init__(self, decoder: StreamDecoder, stops: Sequence[str] = ()) -> None:
        self._decoder = decoder
        self._stops = tuple(stops)
        self._held = ""  # the longest end of the text so far that a stop could begin with
        self.stopped: str | None = None

    def feed(self, token: int) -> str:
        """Return the text that is final after this token, possibly none."""
        return self._deliver(self._decoder.feed(token))

    def close(self) -> str:
        """Return the remaining text when no token follows."""
        text = self._deliver(self._decoder.flush())
        held, self._held = self._held, ""
        return text + held

    def _deliver(self, text: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + text
        # The first to be complete ends it, not the first to begin: so it does not matter how the text is cut.
        result = [(index + len(stop), index, stop) for stop in self._stops if (index := text.find(stop)) >= 0]
        if result:
            _, index, self.stopped = min(result)
            self._held = ""
            return text[:index]
        safe = len(text) - self._count_undecided(text)
        self._held = text[safe:]
        return text[:safe]

    def _count_undecided(self, text: str) -> int:
        """Return how many characters at the end could be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for count in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its logprob at temperature 1, before any filter or penalty; `top`: the most likely
    alternatives with their logprobs, in descending order."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `finish_reason`: "stop" at an end token, a stop token or a stop string (`stop` is the
    string), "length" at max_tokens, otherwise the reason for an early end ("cancelled", "deadline",
    "logits_not_finite").

    `token_ids` includes the end token; `text` includes neither that nor a stop string, and is "" without a
    tokenizer. `seed` reproduces the answer. `index`: its number among the prompt's n answers. `cached_tokens`
    of the prompt's `prompt_tokens` came from the prefix cache.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    index: int = 0
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The new part of an answer. `text` has complete characters only and may lag `token_ids`; `finish_reason`
    is set in the last piece."""

    text: str
    token_ids: tuple[int, ...]
    index: int = 0
    finish_reason: str | None = None


@dataclass(slots=True, eq=False)
class Answer:
    """An answer in progress. `silent`: tokens that are not shown, such as end tokens; `text_out` is None without a
    tokenizer; `ended` is "" until the answer is complete.
    """

    index: int
    text_out: TextOutput | None
    silent: Container[int] = ()
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    ended: str = ""
    _shown: tuple[int, int, bool] = (0, 0, False)  # tokens, characters and the end that were in a piece already

    def feed(self, token: int, logprob: TokenLogprob | None = None) -> bool:
        """Append a token. Return whether it completes a stop string. Tokens after the end are dropped."""
        if self.ended:
            return False
        self.token_ids.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if self.text_out is None or token in self.silent:
            return False
        self.text += self.text_out.feed(token)
        if self.stop is None:
            return False
        self.end("stop")
        return True

    def end(self, reason: str) -> None:
        """End the answer. Only the first reason counts."""
        if not self.ended:
            self.ended = reason
            self.text += self.text_out.close() if self.text_out is not None else ""

    @property
    def end_delivered(self) -> bool:
        """Return whether the end has been delivered."""
        return self._shown[2]

    @property
    def stop(self) -> str | None:
        return self.text_out.stopped if self.text_out is not None else None

    def take_piece(self) -> TextPiece | None:
        """Return the new part since the last piece, or None."""
        tokens, characters, ended = self._shown
        self._shown = now = len(self.token_ids), len(self.text), bool(self.ended)
        if now == (tokens, characters, ended):
            return None
        return TextPiece(self.text[characters:], tuple(self.token_ids[tokens:]), self.index, self.ended or None)


Prompt = str | Sequence[int]


@dataclass(slots=True, eq=False)
class SubmittedPrompt:
    """A submitted prompt and its answers so far."""

    number: int
    tokens: list[int]
    sampling: Sampling
    answers: list[Answer]
    request: Request | None = None  # the scheduler's, of its first answer
    tenant: int = 0

    @property
    def computed(self) -> int:
        """Return how many prompt tokens are computed, including cached tokens."""
        return 0 if self.request is None else min(self.request.computed, len(self.tokens))

    @property
    def cached_tokens(self) -> int:
        return 0 if self.request is None else self.request.cached

    @property
    def done(self) -> bool:
        return all(answer.ended for answer in self.answers)

    def completions(self) -> list[Completion]:
        assert self.sampling.seed is not None
        return [
            Completion(
                answer.text,
                tuple(answer.token_ids),
                answer.ended,
                self.sampling.seed,
                answer.index,
                answer.stop,
                None if self.sampling.logprobs is None else tuple(answer.logprobs),
                len(self.tokens),
                self.cached_tokens,
            )
            for answer in self.answers
        ]


class Answering(EngineCore):
    """A model that returns its answers as text."""

    def __init__(
        self,
        engine: Engine,
        tenants: Sequence[Tenant] = (),
        *,
        step_tokens: int = 0,
        again: Callable[[], Engine] | None = None,
        classes: Classes = CLASSES,
        drafter: Drafter | None = None,
        drafts: int = 0,
    ) -> None:
        """Create it with EngineCore's parameters."""
        super().__init__(
            engine, tenants, step_tokens=step_tokens, again=again, classes=classes, drafter=drafter, drafts=drafts
        )
        self._numbers = itertools.count(1)
        self._asked: dict[int, SubmittedPrompt] = {}

    # --- one step after the other

    def submit(
        self,
        prompt: Prompt,
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
        drafts: int | None = None,
        embeds: bool = False,
    ) -> SubmittedPrompt:
        """Submit a prompt without waiting; `step` computes the answers. `drafts`: the most draft tokens in a step,
        None for the model's. `embeds`: the prompt is computed for its embedding, in `runner.embeddings`. Raises
        UsageError as `generate`."""
        asked = self._prepare(prompt, sampling, embeds=embeds)
        self._submit(asked, tenant, grammar, drafts)
        return asked

    def cancel(self, asked: SubmittedPrompt) -> None:
        """Cancel the answers. Their output so far is kept."""
        self._abandon([asked])

    def step(self) -> None:
        """Run one step for all submitted prompts; wait if no step can run yet."""
        self.check_open()
        batch = self.scheduler.step()
        if batch is not None:
            self._deliver(batch)
        elif (due_ns := self.scheduler.find_next_event()) is not None:
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        elif self._asked:
            raise RuntimeError("the scheduler has no work, but a request is waiting")
        if self.runner.interrupted:
            self.runner.interrupted = False
            raise KeyboardInterrupt

    def _deliver(self, batch: Batch) -> None:
        rows = zip(batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True)
        delivered = Counter[int]()
        for row, (number, choice, token) in enumerate(rows):
            asked = self._asked.get(number)
            if asked is None:  # cancelled meanwhile
                continue
            delivered[asked.tenant] += self.runner.embeddings is None
            logprob = None if batch.logprobs is None else find_logprob(batch.logprobs, row, token, asked.sampling)
            if asked.answers[choice].feed(token, logprob):
                self.scheduler.cancel(number, "stop", choice=choice)
        for tenant, count in delivered.items():
            self.ledger.count("tokens_delivered", tenant, count)
        for number, choice, reason in batch.ended:
            if (asked := self._asked.get(number)) is not None:
                asked.answers[choice].end(reason)
                if asked.done:
                    del self._asked[number]

    def _abandon(self, submitted: Sequence[SubmittedPrompt]) -> None:
        """Cancel their unfinished answers, and make the scheduler release them now."""
        for item in submitted:
            if self._asked.pop(item.number, None) is not None:
                self.scheduler.cancel(item.number)
                for answer in item.answers:
                    answer.end("cancelled")
        if not self._closed:
            self.scheduler.receive()

    # --- what is asked

    def _prepare(self, prompt: Prompt, sampling: Sampling, *, embeds: bool = False) -> SubmittedPrompt:
        self.check_open()
        if not embeds:
            self.require_generation()
        if not isinstance(sampling, Sampling):
            raise UsageError(f"sampling {sampling!r:.60}; expected a Sampling object")
        if not isinstance(prompt, str | Iterable):
            raise UsageError(f"prompt {prompt!r:.60}; expected a string or a list of token ids")
        if isinstance(prompt, str):
            tokens = self.require_tokenizer("a text prompt").encode(prompt)
        else:
            tokens = list(prompt)
        self.check(tokens, sampling)
        answers = [Answer(index, self._make_text_output(sampling), self.end_ids) for index in range(sampling.n)]
        return SubmittedPrompt(0, tokens, sampling.with_seed(), answers)

    def _submit(
        self,
        submitted: SubmittedPrompt,
        tenant: str,
        grammar: TokenMask | None = None,
        drafts: int | None = None,
    ) -> None:
        submitted.number = next(self._numbers)
        submitted.tenant = self.find_tenant(tenant)
        submitted.request = self.submit_tokens(
            submitted.number, submitted.tokens, submitted.sampling, tenant=submitted.tenant, mask=grammar,
            drafts=drafts,
        )  # fmt: skip
        self.scheduler.receive()
        self._asked[submitted.number] = submitted

    def _make_text_output(self, sampling: Sampling) -> TextOutput | None:
        return None if self.tokenizer is None else TextOutput(self.tokenizer.stream_decoder(), sampling.stop)


def find_logprob(rows: RowLogprobs, index: int, token: int, sampling: Sampling) -> TokenLogprob | None:
    """Return the log-probabilities of a row's sampled token; None if its request did not ask for them."""
    if sampling.logprobs is None:
        return None
    top = zip(rows.top_ids[index, : sampling.logprobs], rows.top_logprobs[index, : sampling.logprobs], strict=True)
    return TokenLogprob(token, float(rows.logprob[index]), tuple((int(id), float(value)) for id, value in top))
