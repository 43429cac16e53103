"""The Python API: answer many prompts at once, each as if it ran alone.

    with LLM("M.gguf") as llm:
        for completion in llm.generate(["The capital of France is"], Sampling(max_tokens=16)):
            print(completion.text)

It runs in one host thread. Prompts share the device: each step computes as many requests as there are slots,
and waiting for one answer also advances the others.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any

from zinc_rt.backends.base import Finding
from zinc_rt.engine.answering import Answering, Completion, Prompt, TextPiece
from zinc_rt.engine.embedding import Embedding, list_scores, shorten
from zinc_rt.engine.opening import ModelOptions, make_engine_opener
from zinc_rt.host.errors import CheckFailed, FindingError, OutputError, UsageError
from zinc_rt.host.settings import Experts
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.speculation import OFF
from zinc_rt.sched.tenant import CLASSES, Tenant, with_budgets
from zinc_rt.sched.token_mask import TokenMask
from zinc_rt.sched.usage.ledger_store import LedgerStore

Message = Mapping[str, Any]


class LLM(Answering):
    """A model on a device, resident until it is closed. Use it as a context manager. `why`: the reason for
    the tier."""

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
        prefill_ordering: str = "",
        threads: int = 0,
        timeout: float | None = None,
        usage: str | Path | None = None,
        graph_cache: bool = True,
        experts: Experts = "auto",
        kv_type: str = "f32",
        gap_ms: float | None = None,
        first_token_ms: float | None = None,
        check_findings: bool = True,
        speculate: str = OFF,
        graphs: str | Path = "",
    ) -> None:
        """Open a model. `model`: a GGUF file, or the name of a model in the package. `slots`: concurrent
        answers. `ctx`: maximum tokens of a prompt with its answer (default: the model's context, at most 4096).
        `ordering`: of arithmetic; `prefill_ordering`: that of products with the tokens of prompts, such as
        "wmma-f16" (docs/wmma-f16.md), "" for the same. `timeout`: time limit of one step in seconds. `usage`: a
        database that receives the tenants' usage once a second (docs/ledger.md). `graph_cache`: reuse planned
        graphs from the cache folder. `experts`: in VRAM, in host memory ("gtt"), or in host memory if VRAM is
        full. `kv_type`: type of cached keys and values, f32, f16 or q8_0. `gap_ms`, `first_token_ms`: latency
        budgets of interactive and standard requests (docs/scheduler.md), 0 for none (default: 30 and 100 for
        interactive requests, none for others). `check_findings`: raise FindingError once a simulated device has
        reported an error; without it, `findings()` has them. `speculate`: draft tokens and verify them
        together, which changes no answer: "ngram[:K]", "mtp[:K]" or "draft:FILE[:K]" (docs/serving.md).
        `graphs`: a graph file of `zinc-rt serve --save-graphs` (docs/exec.md), used instead of the cache.

        Raises ZincErrors, each with advice, for an unreadable or unsupported file, an unusable tier, or a
        context that does not fit.
        """
        classes = with_budgets(CLASSES, gap_ms=gap_ms, first_token_ms=first_token_ms)
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
            speculate=speculate,
            kv_type=kv_type,
            prefill_ordering=prefill_ordering,
            graphs=graphs,
        )
        opened = make_engine_opener(model, options)
        self._store = None if usage is None else LedgerStore(usage)  # first: another process may have the file
        try:
            engine = opened()
            try:
                drafter = opened.open_drafter(engine)
                super().__init__(
                    engine, tenants, again=opened, classes=classes, drafter=drafter, drafts=opened.drafts
                )
            except BaseException:
                engine.close()
                raise
        except BaseException:
            self._close_store()
            raise
        if self._store is not None:
            self._store.add(opened.gguf.name, self.ledger)
        self.why = opened.choice.why
        self._check_findings = check_findings
        self._raised = False  # a FindingError was, so `close` need not

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raised |= error is not None  # which is the one to be seen
        self.close()

    def close(self) -> None:
        """Release the device and write the usage of the last second. Unfinished answers are lost; a second
        call has no effect. Raises OutputError if the usage cannot be written, FindingError for findings that no
        call has raised, as with `submit` and `step`."""
        super().close()
        self._close_store()
        if not self._raised:
            self._check()

    def _check(self, answers: Sequence[Completion] = ()) -> None:
        """Raise FindingError with these answers if the device has reported any finding."""
        if self._check_findings and (findings := self.findings()):
            raise self._make_finding_error(findings, answers)

    def _make_finding_error(self, findings: Sequence[Finding], answers: Sequence[Completion] = ()) -> FindingError:
        self._raised = True
        backend, path = self.engine.backend, self.engine.model.gguf.path
        kept = "; the answers are in this error's `answers`" if answers else ""
        return FindingError(
            findings,
            answers,
            next=f"zinc-rt validate --model {shlex.quote(str(path))} --tiers {backend.spec.tier}; to get answers "
            f"that may be wrong, open LLM(..., check_findings=False){kept}",
        )

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None and (lost := store.close().degraded):
            raise OutputError(
                lost,
                next=("free disk space, or choose another path: the usage of the last seconds is not in the file"),
            )

    def generate(
        self,
        prompts: str | Sequence[Prompt] | Sequence[int],
        sampling: Sampling | Sequence[Sampling] = Sampling(),  # noqa: B008  # it is a value
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
    ) -> list[Completion]:
        """Answer all prompts, texts or lists of token ids. Return n Completions for each, in order.

        `sampling`: one for all, or one for each. `grammar`: constrains each answer
        (`zinc_rt.serve.grammars.grammar`). Raises UsageError before anything starts if a prompt or value
        cannot be served, the device's error if a step fails, and FindingError with the completions in `answers`
        if a simulated device has reported an error, in this call or before.
        """
        whole = _list_prompts(prompts)
        entry = [sampling] * len(whole) if isinstance(sampling, Sampling) else list(sampling)
        if len(entry) != len(whole):
            raise UsageError(
                f"got {len(whole)} prompts, but {len(entry)} sampling parameters",
                next="pass one Sampling for all prompts, or one per prompt",
            )
        asked = [self._prepare(prompt, item) for prompt, item in zip(whole, entry, strict=True)]
        try:
            for item in asked:
                self._submit(item, tenant, grammar)
            while not all(item.done for item in asked):
                self.step()
        finally:
            self._abandon(asked)
        completions = [completion for item in asked for completion in item.completions()]
        self._check(completions)
        return completions

    def stream(
        self,
        prompt: Prompt,
        sampling: Sampling = Sampling(),  # noqa: B008
        *,
        tenant: str = "",
        grammar: TokenMask | None = None,
    ) -> Iterator[TextPiece]:
        """Yield the answer in pieces; with n > 1 the pieces of the answers are interleaved. Dropping the
        iterator cancels the rest. Raises the errors of `generate`; FindingError after the last piece."""
        asked = self._prepare(prompt, sampling)

        def pieces() -> Iterator[TextPiece]:
            live = list(asked.answers)
            try:
                self._submit(asked, tenant, grammar)
                while live:
                    fresh = [piece for answer in live if (piece := answer.take_piece()) is not None]
                    if not fresh:
                        self.step()
                    live = [answer for answer in live if not answer.end_delivered]
                    yield from fresh
            finally:
                self._abandon([asked])
            self._check(asked.completions())

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
        """Answer a conversation rendered with the file's chat template. Return n Completions. `variables` are
        passed to the template (enable_thinking, tools, ...)."""
        return self.generate([self.tokenize_chat(messages, **variables)], sampling, tenant=tenant, grammar=grammar)

    def embed(
        self,
        texts: str | Sequence[Prompt] | Sequence[int],
        *,
        dimensions: int | None = None,
        normalise: bool = True,
        tenant: str = "",
    ) -> list[Embedding]:
        """Return an Embedding for each text or list of token ids, in order: f32 [D], pooled as the file defines it
        (pooling "none": f32 [T, D]).

        `dimensions`: keep the first elements only, for models trained for it. `normalise`: divide by the L2 norm,
        as servers do. Texts are computed together, and each result has the same bits as alone. Raises UsageError
        for a model that generates text, or dimensions beyond the model's, CheckFailed if a hidden state is not
        finite; otherwise as `generate`.
        """
        self.require_pooling(whole_text=False)
        width = self.engine.model.width
        if dimensions is not None and not 1 <= dimensions <= width:
            raise UsageError(f"dimensions {dimensions}: expected 1 to {width}")
        embeddings = self._pool(_list_prompts(texts), tenant)
        if normalise:
            return [replace(item, values=shorten(item.values, dimensions)) for item in embeddings]
        return [replace(item, values=item.values[..., :dimensions]) for item in embeddings]

    def rank(self, query: str, documents: Sequence[str], *, tenant: str = "") -> list[float]:
        """Return the relevance of each document to a query, in order; more is better.

        It is the score of a reranker's classification head, as llama.cpp returns it (without a sigmoid), or for an
        embedding model the cosine similarity of the embeddings, -1 to 1. Documents are computed together, and each
        score has the same bits as alone. Raises UsageError for a model that generates text; otherwise as `embed`.
        """
        self.require_ranking()
        prompts = self.make_rank_prompts(query, documents) if self.ranks_pairs else [query, *documents]
        return list_scores(self._pool(prompts, tenant), by_head=self.ranks_pairs)

    def _pool(self, prompts: Sequence[Prompt], tenant: str) -> list[Embedding]:
        """Return the pooled values of each prompt, not normalised."""
        states = self.runner.embeddings
        assert states is not None
        asked = [self._prepare(prompt, Sampling(1, ignore_eos=True), embeds=True) for prompt in prompts]
        result = []
        try:
            for item in asked:
                self._submit(item, tenant)
            while not all(item.done for item in asked):
                self.step()
            for item in asked:
                values = states.take(item.number)
                if values is None:
                    raise CheckFailed(f"the embedding was not computed: {item.answers[0].ended}")
                result.append(Embedding(values, len(item.tokens), item.cached_tokens))
        finally:
            self._abandon(asked)
            for item in asked:
                states.take(item.number)
        self._check()
        return result


def _list_prompts(prompts: str | Sequence[Prompt] | Sequence[int]) -> list[Prompt]:
    """Return a list of prompts, even if only one was passed."""
    if isinstance(prompts, str):
        return [prompts]
    if len(prompts) and all(isinstance(prompt, Integral) for prompt in prompts):
        return [[int(prompt) for prompt in prompts]]  # type: ignore[arg-type]  # token ids of one prompt
    return list(prompts)  # type: ignore[arg-type]
