"""Sources of logits: each tier's own pass, and a golden."""

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
    """Logits f32 [R, V] at `positions` i64 [R], ascending, counted from the prompt's first token. `after` are the
    tokens fed after `prompt` prompt tokens; `layers` is l_out by label. `ordering` is "" for another engine.
    """

    name: str
    ordering: str
    prompt: int
    after: tuple[int, ...]
    positions: np.ndarray
    logits: np.ndarray
    layers: Mapping[str, Rows]


def collect_sources(runner: ValidationRunner) -> Iterator[LogitSource]:
    """Return every tier that ran the prompt, the reference tier after the others, then the golden."""
    job = runner.job
    for spec, run in sorted(runner.own_passes.items(), key=lambda ran: ran[0] == job.reference):
        yield make_run_source(run, spec.text, spec.ordering, len(job.tokens))
    if job.golden is not None:
        yield make_golden_source(job.golden)


def make_run_source(run: CapturedRun, name: str, ordering: str, prompt: int) -> LogitSource:
    taps = np.arange(prompt)
    layers = {label: (taps, value) for label, value in run.values.items() if _is_layer(label)}
    return LogitSource(
        name, ordering, prompt, tuple(run.generated), np.arange(len(run.logits)), run.logits, layers
    )


def make_golden_source(golden: Golden) -> LogitSource:
    """Return the golden's logits for the prompt and, if recorded, after each greedy token."""
    reference, prompt = reference_from_golden(golden), len(golden.ids)

    def select_positions(array: np.ndarray) -> np.ndarray:
        return np.arange(prompt) if golden.rows is None or len(array) == prompt else golden.rows

    positions, logits = select_positions(golden.logits), golden.logits
    after = golden.greedy_logits
    if after is not None:
        positions = np.concatenate([positions, prompt + np.arange(len(after))])
        logits = np.concatenate([logits, after])
    layers = {
        label: (select_positions(value), value) for label, value in reference.values.items() if _is_layer(label)
    }
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
