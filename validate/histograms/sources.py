"""Where logits come from: each tier's own pass, and a golden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.format import Golden
from zinc_rt.validate.checks import reference_from_golden
from zinc_rt.validate.runner import ValidationRunner

Rows = tuple[np.ndarray, np.ndarray]  # positions i64 [R], rising, and what is known of them [R, ...]


@dataclass(frozen=True, slots=True)
class LogitSource:
    """Logits f32 [R, V] of `positions` i64 [R], rising, counted from the prompt's first token. `after`: the tokens
    fed behind the `prompt`'s so many; `layers`: l_out by label. `ordering` "": another engine's."""

    name: str
    ordering: str
    prompt: int
    after: tuple[int, ...]
    positions: np.ndarray
    logits: np.ndarray
    layers: Mapping[str, Rows]


def sources(runner: ValidationRunner) -> Iterator[LogitSource]:
    """Every tier that ran the prompt by itself, the reference tier behind the others, then the golden."""
    job = runner.job
    for spec, run in sorted(runner.own_passes.items(), key=lambda ran: ran[0] == job.reference):
        yield source_of_run(run, spec.text, spec.ordering, len(job.tokens))
    if job.golden is not None:
        yield source_of_golden(job.golden)


def source_of_run(run: CapturedRun, name: str, ordering: str, prompt: int) -> LogitSource:
    taps = np.arange(prompt)
    layers = {label: (taps, value) for label, value in run.values.items() if _is_layer(label)}
    return LogitSource(
        name, ordering, prompt, tuple(run.generated), np.arange(len(run.logits)), run.logits, layers
    )


def source_of_golden(golden: Golden) -> LogitSource:
    """The golden's logits of the prompt and, where it has them, after each greedy token."""
    reference, prompt = reference_from_golden(golden), len(golden.ids)

    def at(array: np.ndarray) -> np.ndarray:
        return np.arange(prompt) if golden.rows is None or len(array) == prompt else golden.rows

    positions, logits = at(golden.logits), golden.logits
    after = golden.greedy_logits
    if after is not None:
        positions = np.concatenate([positions, prompt + np.arange(len(after))])
        logits = np.concatenate([logits, after])
    layers = {label: (at(value), value) for label, value in reference.values.items() if _is_layer(label)}
    return LogitSource(
        golden.path.name + golden.variant,
        golden.ordering,
        prompt,
        tuple(reference.greedy),
        positions,
        logits,
        layers,
    )


def _is_layer(label: str) -> bool:
    return label.startswith("l_out-")
