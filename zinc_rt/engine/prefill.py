"""Prefill a prompt in one pass, token by token, or with both and a comparison.

Both methods perform the same arithmetic on rows together or one after the other, so their last-token logits
are bit-identical in the canonical orderings and close in float32-dequant.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zinc_rt.engine.engine import Engine, Prefill, Sequence
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.ir.op import Op
from zinc_rt.lower import find_refusal

Mode = Literal["off", "on", "validate"]
Advance = Callable[[int], object]

# max |batched - token by token| over the last token's logits
TOLERANCES = {"canonical-1": 0.0, "canonical-1-q8": 0.0, "float32-dequant": 1e-3}


@dataclass(frozen=True, slots=True)
class PrefillCheck:
    """The largest difference between the last-token logits of the two methods."""

    prompt_tokens: int
    max_abs_diff: float
    index: int
    reference: float  # token by token
    batched: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.max_abs_diff <= self.tolerance  # false for NaN

    def line(self) -> str:
        return (
            f"prefill validate: n_tokens={self.prompt_tokens} max_abs_diff={self.max_abs_diff:.6g} "
            f"at idx={self.index} (ref={self.reference:.6g} batched={self.batched:.6g}) "
            f"tolerance={self.tolerance:g} {'ok' if self.ok else 'exceeded'}"
        )


def check_prefill_support(engine: Engine) -> list[str]:
    """Return all reasons from the tier's kernel table why one-pass prefill is unavailable; [] if it is
    available."""
    reasons = []
    if engine.limits.ctx < 2:
        reasons.append(f"the context of {engine.limits.ctx} token is too short for a step with two tokens")
    return reasons + _list_missing_kernels(engine, "prefill")


def _list_missing_kernels(engine: Engine, stage: Stage) -> list[str]:
    """Return the nodes of a stage's graph for which the tier has no kernel."""
    graph, reasons = engine.graph(stage), []
    kernels, ordering = engine.backend.kernels, engine.backend.ordering
    refused: dict[tuple[str, str], list[str]] = {}
    for node in graph.nodes:
        reason = None if node.op is Op.BARRIER else find_refusal(node, graph, kernels.entries, ordering)
        if reason is not None:
            refused.setdefault((node.op.name, reason), []).append(node.label or repr(node))
    for (op, reason), labels in refused.items():
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        reasons.append(f"{engine.backend.spec.tier} cannot run {op} at {labels[0]}{more}: {reason}")
    return reasons


def prefill_sequence(
    engine: Engine,
    sequence: Sequence,
    tokens: abc.Sequence[int],
    mode: Mode | str,
    *,
    advance: Advance = lambda tokens: None,
) -> tuple[np.ndarray, PrefillCheck | None]:
    """Append `tokens` to `sequence` at its current position. Return the logits f32 [V] of the last token.

    "off" runs token by token, "on" in one pass per capacity. "validate" needs a second free slot: it runs
    both, the reference in a separate sequence with the same history, and `sequence` keeps the one-pass state.
    Raises UnsupportedError with every reason if the mode is unavailable.
    """
    if not tokens:
        raise UsageError("a prompt needs at least one token")
    _require_kernels(engine, mode)
    if mode == "validate":
        return _validate(engine, sequence, list(tokens), advance)
    return _append(engine, sequence, tokens, "batched" if mode == "on" else "stepwise", advance), None


def prepare(
    engine: Engine, sequence: Sequence, tokens: abc.Sequence[int], mode: Mode | str, *, decode: bool
) -> None:
    """Load the weights and build the graphs that `prefill_sequence` will run, with `decode` also the graph of the
    tokens after it, so that build time is not measured. Raises as `prefill_sequence`."""
    _require_kernels(engine, mode)
    engine.check(sequence, tokens)
    largest = 1 if mode == "off" else engine.limits.step_tokens
    sizes = {min(largest, len(tokens) - start) for start in range(0, len(tokens), largest)}
    if mode == "validate":
        sizes.add(1)
    for size in sorted(sizes, reverse=True):
        engine.variants.find_fitting(engine.variants.choose_stage(size, 1, "prompt"), size, 1, 1)
    if decode:
        engine.variants.find_fitting("decode", 1, 1, 1)


def _require_kernels(engine: Engine, mode: Mode | str) -> None:
    if mode == "off" or not (reasons := check_prefill_support(engine)):
        return
    token_by_token = not _list_missing_kernels(engine, "decode")
    raise UnsupportedError(
        "one-pass prefill is unavailable:" + "\n  ".join(reasons),
        next="ZINC_BATCHED_PREFILL=off" if token_by_token else "--tier t_cpu, which runs every model",
    )


def _append(
    engine: Engine, sequence: Sequence, tokens: abc.Sequence[int], way: Prefill, advance: Advance
) -> np.ndarray:
    return engine.extend(sequence, tokens, prefill=way, rows="last", role="prompt", advance=advance)[0]


def _validate(
    engine: Engine, sequence: Sequence, tokens: list[int], advance: Advance
) -> tuple[np.ndarray, PrefillCheck]:
    if not has_same_stages(engine):
        raise UnsupportedError(
            (
                "validate cannot be used with ZINC_QWEN36_DECODE_TOPK, which changes the model by reducing the "
                "experts of single tokens"
            ),
            next="unset ZINC_QWEN36_DECODE_TOPK",
        )
    history = list(sequence.tokens)
    batched = _append(engine, sequence, tokens, "batched", advance)
    other = engine.open()
    try:
        reference = _append(engine, other, history + tokens, "stepwise", lambda tokens: None)
    finally:
        engine.release(other)
    return batched, compare(reference, batched, len(tokens), TOLERANCES[engine.backend.ordering])


def compare(reference: np.ndarray, batched: np.ndarray, prompt_tokens: int, tolerance: float) -> PrefillCheck:
    """Compare two rows of logits, both f32 [V]. NaN on either side counts as an infinite difference."""
    with np.errstate(invalid="ignore"):
        diff = np.where(reference == batched, 0.0, np.abs(batched.astype(np.float64) - reference))
    index = int(diff.argmax())  # the first NaN, where there is one
    return PrefillCheck(
        prompt_tokens, float(diff[index]), index, float(reference[index]), float(batched[index]), tolerance
    )


def has_same_stages(engine: Engine) -> bool:
    """Return whether decode and prefill use the same number of experts."""
    prefill, decode = (_list_experts_used(engine.graph(stage)) for stage in ("prefill", "decode"))
    return prefill == decode


def _list_experts_used(graph: OpGraph) -> list[object]:
    return [node.attrs["k"] for node in graph.nodes if node.op is Op.MOE_GATE_TOPK]
