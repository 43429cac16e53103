"""Requests on one resident model, from their check to their last token: what LLM, and any other front, stands on.

A scheduler decides, a ModelRunner computes, answers are put together here as text. One host thread.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zinc_rt.engine.completion import Answer, Completion, TokenLogprob
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.engine_core import EngineCore
from zinc_rt.engine.text_out import TextOut
from zinc_rt.errors import UsageError
from zinc_rt.sched.messages import Batch
from zinc_rt.sched.plan import RowLogprobs
from zinc_rt.sched.request import Request
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.token_mask import TokenMask

Prompt = str | Sequence[int]


@dataclass(slots=True, eq=False)
class Asked:
    """A prompt that was submitted, and its answers so far."""

    number: int
    tokens: list[int]
    sampling: Sampling
    answers: list[Answer]
    request: Request | None = None  # the scheduler's, of its first answer
    tenant: int = 0

    @property
    def computed(self) -> int:
        """Tokens of the prompt that are computed, cached ones included."""
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
    """A model whose answers are put together as text."""

    def __init__(
        self,
        engine: Engine,
        tenants: Sequence[Tenant] = (),
        *,
        step_tokens: int = 0,
        again: Callable[[], Engine] | None = None,
    ) -> None:
        """As EngineCore has them."""
        super().__init__(engine, tenants, step_tokens=step_tokens, again=again)
        self._numbers = itertools.count(1)
        self._asked: dict[int, Asked] = {}

    # --- one step after the other

    def submit(
        self,
        prompt: Prompt,
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
    ) -> Asked:
        """Ask without waiting: `step` makes the answers. Raises UsageError as `generate`."""
        asked = self._prepare(prompt, sampling)
        self._submit(asked, tenant, grammar)
        return asked

    def cancel(self, asked: Asked) -> None:
        """Make no more of the answers; what is done of them stays."""
        self._abandon([asked])

    def step(self) -> None:
        """Compute one step for all that was asked; waits where nothing may be computed yet."""
        self.check_open()
        batch = self.scheduler.step()
        if batch is not None:
            self._deliver(batch)
        elif (due_ns := self.scheduler.next_event()) is not None:
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        elif self._asked:
            raise RuntimeError("the scheduler has nothing to do, and somebody waits")
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
            delivered[asked.tenant] += 1
            logprob = None if batch.logprobs is None else logprob_of(batch.logprobs, row, token, asked.sampling)
            if asked.answers[choice].feed(token, logprob):
                self.scheduler.cancel(number, "stop", choice=choice)
        for tenant, count in delivered.items():
            self.ledger.count("tokens_delivered", tenant, count)
        for number, choice, reason in batch.ended:
            if (asked := self._asked.get(number)) is not None:
                asked.answers[choice].end(reason)
                if asked.done:
                    del self._asked[number]

    def _abandon(self, asked: Sequence[Asked]) -> None:
        """Cancel what is still made of them, and have the scheduler let go of it now."""
        for one in asked:
            if self._asked.pop(one.number, None) is not None:
                self.scheduler.cancel(one.number)
                for answer in one.answers:
                    answer.end("cancelled")
        if not self._closed:
            self.scheduler.settle()

    # --- what is asked

    def _prepare(self, prompt: Prompt, sampling: Sampling) -> Asked:
        self.check_open()
        if not isinstance(sampling, Sampling):
            raise UsageError(f"sampling {sampling!r:.60}: wanted a Sampling")
        if not isinstance(prompt, str | Iterable):
            raise UsageError(f"prompt {prompt!r:.60}: wanted a text or a list of token ids")
        if isinstance(prompt, str):
            tokens = self.needed_tokenizer("a text prompt").encode(prompt)
        else:
            tokens = list(prompt)
        self.check(tokens, sampling)
        answers = [Answer(index, self._text_out(sampling), self.end_ids) for index in range(sampling.n)]
        return Asked(0, tokens, sampling.seeded(), answers)

    def _submit(self, asked: Asked, tenant: str, grammar: TokenMask | None = None) -> None:
        asked.number = next(self._numbers)
        asked.tenant = self.tenant_number(tenant)
        asked.request = self.submit_tokens(
            asked.number, asked.tokens, asked.sampling, tenant=asked.tenant, mask=grammar
        )
        self.scheduler.settle()
        self._asked[asked.number] = asked

    def _text_out(self, sampling: Sampling) -> TextOut | None:
        return None if self.tokenizer is None else TextOut(self.tokenizer.stream_decoder(), sampling.stop)


def logprob_of(rows: RowLogprobs, at: int, token: int, sampling: Sampling) -> TokenLogprob | None:
    """What a row says of the token drawn there; None where its request did not ask."""
    if sampling.logprobs is None:
        return None
    top = zip(rows.top_ids[at, : sampling.logprobs], rows.top_logprobs[at, : sampling.logprobs], strict=True)
    return TokenLogprob(token, float(rows.logprob[at]), tuple((int(id), float(value)) for id, value in top))
