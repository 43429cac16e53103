"""A model to ask from Python: many prompts at once, each answered as if it were alone.

    with LLM("M.gguf") as llm:
        for completion in llm.generate(["The capital of France is"], Sampling(max_tokens=16)):
            print(completion.text)

One host thread. Prompts share the device: each step computes for as many as there are slots, and whoever waits
for one answer drives the others too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any

from zinc_rt.engine.answering import Answering, Completion, Prompt, TextPiece
from zinc_rt.engine.opening import ModelOptions, engine_opener
from zinc_rt.host.errors import OutputError, UsageError
from zinc_rt.host.settings import Experts
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Tenant
from zinc_rt.sched.token_mask import TokenMask
from zinc_rt.sched.usage.ledger_store import LedgerStore

Message = Mapping[str, Any]


class LLM(Answering):
    """A model on a device, resident until it is closed: use it as a context manager. `why`: on which tier."""

    def __init__(
        self,
        model: str | Path,
        tier: str = "auto",
        device: str = "auto",
        slots: int = 8,
        ctx: int | None = None,
        *,
        tenants: Sequence[Tenant] = (),
        ordering: str = "canonical-1",
        threads: int = 0,
        timeout: float | None = None,
        usage: str | Path | None = None,
        graph_cache: bool = True,
        experts: Experts = "auto",
    ) -> None:
        """`model`: a GGUF file, or the name of a model that ships with the package. `slots`: so many answers are
        made at once. `ctx`: tokens that a prompt and its answer may have together (default: the model's, 4096 at
        most). `timeout`: seconds that one step may take. `usage`: a database that what tenants use is written to,
        once a second (docs/ledger.md). `graph_cache`: start from planned graphs that are kept in the cache folder.
        `experts`: in VRAM, in host memory ("gtt"), or there as far as VRAM is full.

        Raises ZincErrors, each with what to do: for a file that cannot be read or run, a tier that cannot be used,
        a context that does not fit.
        """
        options = ModelOptions(
            tier,
            device,
            slots,
            ctx,
            ordering,
            threads,
            timeout,
            graph_cache=graph_cache,
            experts=experts,
        )
        opened = engine_opener(model, options)
        self._store = None if usage is None else LedgerStore(usage)  # first: another process may have the file
        try:
            engine = opened()
            try:
                super().__init__(engine, tenants, again=opened)
            except BaseException:
                engine.close()
                raise
        except BaseException:
            self._close_store()
            raise
        if self._store is not None:
            self._store.add(opened.gguf.path.stem, self.ledger)
        self.why = opened.choice.why

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the device back, and write what tenants used since the last second. What is still being made is
        lost; a second time does nothing. Raises OutputError where the usage cannot be written."""
        super().close()
        self._close_store()

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None and (lost := store.close().degraded):
            raise OutputError(
                lost, next="free the disk, or choose another path: these seconds are not in the file"
            )

    def generate(
        self,
        prompts: str | Sequence[Prompt] | Sequence[int],
        sampling: Sampling | Sequence[Sampling] = Sampling(),  # noqa: B008  # it is a value
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
    ) -> list[Completion]:
        """Answer all prompts, texts or lists of token ids: n Completions for each, in their order.

        `sampling`: of all, or one for each. `grammar`: what each answer has to follow
        (`zinc_rt.serve.grammars.grammar`). Raises UsageError, with nothing begun, for a prompt or a value that
        cannot be served, and what the device raises where a step fails.
        """
        whole = _prompts(prompts)
        each = [sampling] * len(whole) if isinstance(sampling, Sampling) else list(sampling)
        if len(each) != len(whole):
            raise UsageError(
                f"{len(whole)} prompts and {len(each)} samplings", next="give one for all, or one each"
            )
        asked = [self._prepare(prompt, one) for prompt, one in zip(whole, each, strict=True)]
        try:
            for one in asked:
                self._submit(one, tenant, grammar)
            while not all(one.done for one in asked):
                self.step()
        finally:
            self._abandon(asked)
        return [completion for one in asked for completion in one.completions()]

    def stream(
        self,
        prompt: Prompt,
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
    ) -> Iterator[TextPiece]:
        """The answer piece by piece as it is made, with n > 1 the answers' pieces in turns. Dropping the iterator
        cancels what is left."""
        asked = self._prepare(prompt, sampling)

        def pieces() -> Iterator[TextPiece]:
            live = list(asked.answers)
            try:
                self._submit(asked, tenant, grammar)
                while live:
                    fresh = [piece for answer in live if (piece := answer.piece()) is not None]
                    if not fresh:
                        self.step()
                    live = [answer for answer in live if not answer.told]
                    yield from fresh
            finally:
                self._abandon([asked])

        return pieces()

    def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
        **variables: Any,
    ) -> list[Completion]:
        """Answer a conversation, put through the file's own template: n Completions. `variables` reach the
        template (enable_thinking, tools, ...)."""
        return self.generate([self.chat_tokens(messages, **variables)], sampling, tenant=tenant, grammar=grammar)


def _prompts(prompts: str | Sequence[Prompt] | Sequence[int]) -> list[Prompt]:
    """A list of prompts, also where one alone was given."""
    if isinstance(prompts, str):
        return [prompts]
    if len(prompts) and all(isinstance(each, Integral) for each in prompts):
        return [[int(each) for each in prompts]]  # type: ignore[arg-type]  # token ids of one prompt
    return list(prompts)  # type: ignore[arg-type]
