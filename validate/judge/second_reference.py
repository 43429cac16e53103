"""A second reference for small models: transformers on torch's CPU backend, in another Python environment.

Findings depend on this runtime's own reference. Where both references agree, an error of that reference is
improbable.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from zinc_rt.validate.compare.peer import PeerOutcome, PeerTask
from zinc_rt.validate.compare.python_peers import run_values
from zinc_rt.validate.judge.oracle import NextToken, Oracle, make_next_token
from zinc_rt.validate.judge.verdict import EngineDefect

MEAN_LIMIT, LIMIT = 2e-5, 1e-3  # nats: two references in float32 differ by less
DISPUTED = 32  # wrong tokens that are asked about
SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ReferenceAgreement:
    """How far the second reference is from the first. `mean`, `largest`: the divergence KL(first || second) over
    `positions`, in nats. `confirmed` of `disputed` wrong tokens: the second reference also prefers the token that
    the first one expected. `problem`: why there are no figures.
    """

    name: str
    mean: float = 0.0
    largest: float = 0.0
    positions: int = 0
    disputed: int = 0
    confirmed: int = 0
    problem: str = ""

    @property
    def agrees(self) -> bool:
        is_close = self.mean <= MEAN_LIMIT and self.largest <= LIMIT
        return not self.problem and is_close and self.confirmed == self.disputed

    def describe(self) -> str:
        if self.problem:
            return f"{self.name}: not compared: {self.problem}"
        tokens = f"; it confirms {self.confirmed} of {self.disputed} wrong tokens" if self.disputed else ""
        verdict = "agrees" if self.agrees else "DISAGREES: do not trust the findings before this is explained"
        return (
            f"{self.name}: KL {self.mean:.2g} nats on average, {self.largest:.2g} at most, over {self.positions} "
            f"positions{tokens}; {verdict}"
        )


def compare_references(
    reference: Oracle, python: str, model: Path, text: Sequence[int], findings: Sequence[EngineDefect]
) -> ReferenceAgreement:
    """Compare the references after each token of `text` and at the wrong tokens of the findings. `python`: an
    interpreter with torch and transformers.
    """
    wrong = _list_wrong_tokens(findings)
    prompts = [tuple(text) or (1,), *(prompt for prompt, _ in wrong)]
    outcome = PeerOutcome("transformers")
    with tempfile.TemporaryDirectory(prefix="zinc-rt-") as folder:
        task = PeerTask(model, (), "", Path(folder), speed=False, timeout_seconds=SECONDS)
        ids = ";".join(",".join(map(str, prompt)) for prompt in prompts)
        arrays = run_values(outcome, python, task, ids, max(map(len, prompts)))
    name = f"transformers {outcome.version}".strip()
    if not arrays:
        return ReferenceAgreement(name, problem=outcome.problem)
    first = reference.predict(prompts[0][:1], prompts[0][1:])
    divergence = [_compute_divergence(ours, row) for ours, row in zip(first, arrays["logits"], strict=True)]
    confirmed = 0
    for (prompt, token), row in zip(wrong, arrays["last"], strict=True):
        (expected,) = reference.predict(prompt)
        confirmed += bool(row[expected.best] > row[token])
    return ReferenceAgreement(name, fmean(divergence), max(divergence), len(divergence), len(wrong), confirmed)


def _list_wrong_tokens(findings: Sequence[EngineDefect]) -> list[tuple[tuple[int, ...], int]]:
    """Return the shortest prompts after which the engine gave a wrong token, and that token."""
    wrong = set()
    for fault in (fault for finding in findings for fault in finding.faults if fault.kind == "token"):
        prompt, position = fault.question.prompt, fault.position
        if position is not None and position - len(prompt) < len(fault.tokens):
            index = position - len(prompt)
            wrong.add(((*prompt, *fault.tokens[:index]), fault.tokens[index]))
    return sorted(wrong, key=lambda item: (len(item[0]), item))[:DISPUTED]


def _compute_divergence(ours: NextToken, row: np.ndarray) -> float:
    theirs = make_next_token(row)
    every = np.arange(len(row))
    logprobs = ours.compute_logprobs(every)
    return max(0.0, float((np.exp(logprobs) * (logprobs - theirs.compute_logprobs(every))).sum()))
