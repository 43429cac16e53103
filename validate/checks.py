"""Checks that turn runs into results. Each compares one thing, with its measure and its limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.format import Golden
from zinc_rt.validate.check_result import (
    CheckResult,
    GreedyMeasure,
    MedianMeasure,
    NonfiniteMeasure,
    Reportable,
    ReportFigures,
    ValueMeasure,
)
from zinc_rt.validate.limits import QUANTISED_FACTOR, QUANTISED_OFFSET, scale_limit
from zinc_rt.validate.measure import Limit, compare_arrays, compute_agreement, count_by_powers


@dataclass(frozen=True, slots=True)
class CheckedPair:
    """The names of a checked tier and of its reference."""

    model: str
    tier: str  # "t_cpu" or "t_cpu:float32-dequant"
    reference: str
    limit: Limit
    repro: str = ""

    def result(self, name: str, kind: str, *, passed: bool, measure: Reportable, **more: Any) -> CheckResult:
        return CheckResult(
            id=f"{self.model}/{self.tier}/{name}",
            kind=kind,
            status="pass" if passed else "fail",
            tier=self.tier,
            reference=self.reference,
            measure=measure,
            limit=more.pop("limit", self.limit),
            repro="" if passed else self.repro,
            **more,
        )

    def make_skip(self, name: str, kind: str, reason: str) -> CheckResult:
        return CheckResult(
            f"{self.model}/{self.tier}/{name}", kind, "skip", self.tier, self.reference, reason=reason
        )


@dataclass(slots=True)
class Reference:
    """The reference values of a run, from any source."""

    logits: np.ndarray
    values: dict[str, np.ndarray]
    greedy: list[int] = field(default_factory=list)
    greedy_logits: np.ndarray | None = None  # [N, V] after each greedy token
    no_experts: str = ""  # why expert choices cannot be compared, where there is a reason
    rows: np.ndarray | None = None  # the only tokens of the prompt that some of the arrays hold
    nodes: Mapping[str, np.ndarray] = field(default_factory=dict)  # of `values`, those within layers, in any order
    digested: Collection[str] = ()  # values that a check of their digests compares

    def of(self, got: np.ndarray, want: np.ndarray) -> np.ndarray:
        """Return the tokens of `got` [T, ...] that `want` contains."""
        rows = self.rows
        return got if rows is None or len(want) != len(rows) or len(got) <= len(rows) else got[rows]

    def locate(self, bad: dict[str, Any], want: np.ndarray) -> dict[str, Any]:
        """Convert the position `bad` of a comparison with `want` so that its token counts from the start of the
        prompt.
        """
        if self.rows is None or len(want) != len(self.rows) or "token" not in bad:
            return bad
        return {**bad, "token": int(self.rows[bad["token"]])}


def reference_from_golden(golden: Golden) -> Reference:
    values = {} if golden.l_out is None else {f"l_out-{i}": layer for i, layer in enumerate(golden.l_out)}
    no_experts = ""
    if golden.variant == "_deq" and not golden.experts:
        no_experts = "the golden's experts were chosen from re-quantised activations"
    else:
        values |= {f"ffn_moe_topk-{layer}": ids for layer, ids in golden.experts.items()}
    values |= golden.nodes
    greedy = [] if golden.greedy_tokens is None else [int(token) for token in golden.greedy_tokens]
    chosen = {name: value for name, value in values.items() if name.startswith("ffn_moe_topk")}
    nodes = {**golden.nodes, **chosen} if golden.nodes else {}
    return Reference(
        golden.logits, values, greedy, golden.greedy_logits, no_experts, rows=golden.rows, nodes=nodes
    )


def reference_from_run(run: CapturedRun) -> Reference:
    return Reference(run.logits, run.values, run.generated)


def check_golden(subject: CheckedPair, reference: Reference) -> CheckResult | None:
    """Fail for a golden that contains NaN or infinity, because no run can agree with it. Return None if it does
    not.
    """
    arrays = {**reference.values, "logits": reference.logits}
    if reference.greedy_logits is not None:
        arrays["greedy_logits"] = reference.greedy_logits
    bad = {name: int(np.count_nonzero(~np.isfinite(array))) for name, array in arrays.items()}
    name = next((name for name, count in bad.items() if count), None)
    if name is None:
        return None
    flat = arrays[name].reshape(len(arrays[name]), -1)
    token, dim = (int(i) for i in np.unravel_index(int(np.argmin(np.isfinite(flat))), flat.shape))
    return subject.result(
        "golden",
        "golden",
        passed=False,
        measure=NonfiniteMeasure(sum(bad.values())),
        first_bad={"node": name, "token": token, "dim": dim, "want": float(flat[token, dim])},
        cause=f"the golden itself contains {float(flat[token, dim])}: {name}, token {token}, element {dim}",
    )


def check_nodes(
    subject: CheckedPair, run: CapturedRun, reference: Reference, resynced: CapturedRun | None
) -> Iterable[CheckResult]:
    """Compare every captured value that both sides have, in graph order; l_out also with its layer's input
    reset.
    """
    for label, got in run.values.items():
        want = reference.values.get(label)
        kind = "experts" if label.startswith("ffn_moe_topk") else "layer" if label.startswith("l_out") else "node"
        if want is None:
            if label in reference.digested:
                continue
            reason = reference.no_experts if kind == "experts" else ""
            yield subject.make_skip(label, kind, reason or f"{subject.reference} does not contain it")
            continue
        limit = (
            Limit(bits=True, why="the same experts in the same order")
            if kind == "experts"
            else scale_limit(subject.limit, want)
        )
        got, want = reference.of(got, want).reshape(-1, _count_columns(got)), want.reshape(len(want), -1)
        measured = compare_arrays(got, want, limit, head_dim=run.head_dims.get(label, 0))
        alone = None
        if resynced is not None and label in resynced.values:
            alone = compare_arrays(reference.of(resynced.values[label], want).reshape(got.shape), want, limit)
        measure = ValueMeasure(measured, histogram=() if kind == "experts" else count_by_powers(got), resync=alone)
        if not subject.limit.gates and (kind == "experts" or measured.within):
            yield replace(subject.make_skip(label, kind, subject.limit.why), measure=measure)
            continue
        yield subject.result(
            label,
            kind,
            passed=measured.within,
            measure=measure,
            limit=limit,
            first_bad=reference.locate(measured.first_bad, want),
        )


def _count_columns(array: np.ndarray) -> int:
    return int(np.prod(array.shape[1:]))


def check_logits(subject: CheckedPair, run: CapturedRun, reference: Reference) -> CheckResult:
    positions = min(len(run.logits), len(reference.logits))
    if not positions:
        return subject.make_skip("logits", "logits", "the layers that ran do not reach the head")
    got, want = reference.of(run.logits, reference.logits)[:positions], reference.logits[:positions]
    measured = compare_arrays(got, want, subject.limit)
    measure = ValueMeasure(measured, compute_agreement(got, want) if got.shape == want.shape else None)
    if not subject.limit.gates and measured.within:
        return replace(subject.make_skip("logits", "logits", subject.limit.why), measure=measure)
    return subject.result(
        "logits",
        "logits",
        passed=measured.within,
        measure=measure,
        first_bad=reference.locate(measured.first_bad, want),
    )


def check_quantised(subject: CheckedPair, run: CapturedRun, golden: Golden) -> CheckResult:
    """Compare canonical-1-q8 with llama.cpp's re-quantised path. The limit is 1.5 times the distance of that path
    from plain float32.
    """
    if golden.quantised is None:
        return subject.make_skip("logits", "logits", "the golden has no logits over quantised activations")

    def median_distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.median(np.abs(a.astype(np.float64) - b).max(axis=-1)))

    own = golden.quantised.logits
    logits = run.logits[: len(golden.ids)]
    distance = median_distance(
        logits if len(own) == len(logits) or golden.rows is None else logits[golden.rows], own
    )
    allowed = QUANTISED_FACTOR * median_distance(golden.logits, own) + QUANTISED_OFFSET
    limit = replace(subject.limit, median_max_abs=allowed)
    return subject.result(
        "logits", "logits", passed=distance <= allowed, measure=MedianMeasure(distance), limit=limit
    )


def check_greedy(subject: CheckedPair, run: CapturedRun, reference: Reference) -> CheckResult | None:
    """Compare the continuation token by token. Both runs have the same input tokens up to the first difference."""
    count = min(len(run.generated), len(reference.greedy))
    if not count:
        return None
    got, want = run.generated[:count], reference.greedy[:count]
    first = next((i for i in range(count) if got[i] != want[i]), None)
    bad = {} if first is None else {"token": first, "got": got[first], "want": want[first]}
    limit = Limit(bits=True, why="greedy tokens")
    return subject.result(
        "greedy", "greedy", passed=first is None, measure=GreedyMeasure(count, got), limit=limit, first_bad=bad
    )


def check_decode(
    subject: CheckedPair, run: CapturedRun, reference: Reference, prompt_tokens: int
) -> CheckResult | None:
    """Compare the logits after each greedy token, up to the first token that differs."""
    if reference.greedy_logits is None:
        return None
    pairs = list(zip(run.generated, reference.greedy, strict=False))
    count = next((i for i, (got, want) in enumerate(pairs) if got != want), len(pairs))
    got, want = run.logits[prompt_tokens : prompt_tokens + count], reference.greedy_logits[:count]
    if not count or len(got) != len(want):
        return None
    measured = compare_arrays(got, want, subject.limit)
    measure = ValueMeasure(measured, compute_agreement(got, want))
    return subject.result(
        "decode", "decode", passed=measured.within, measure=measure, first_bad=measured.first_bad
    )


def check_same_bits(
    subject: CheckedPair, name: str, kind: str, a: CapturedRun, b: CapturedRun, cause: str
) -> CheckResult:
    """Compare two paths through one tier: every value and every logit must be bit-identical."""
    limit = subject.limit
    if not len(a.logits) and not a.values.keys() & b.values.keys():
        return subject.make_skip(
            name, kind, "the layers that ran do not reach the head: nothing to read without a tap"
        )
    worst = compare_arrays(a.logits, b.logits, limit)
    where = "logits"
    for label, value in a.values.items():
        if label in b.values:
            measured = compare_arrays(value, b.values[label], limit)
            if not measured.within:
                worst, where = measured, label
                break
    return subject.result(
        name,
        kind,
        passed=worst.within,
        measure=ValueMeasure(worst),
        first_bad={} if worst.within else {"node": where, **worst.first_bad},
        cause="" if worst.within else cause,
    )


def check_digests(
    subject: CheckedPair, got: Mapping[str, str], want: Mapping[str, str], name: str = "digests"
) -> CheckResult:
    """Compare digests of arrays that must be bit-identical, and name the first of `got` that differs."""
    known = [label for label in got if label in want]
    if not known:
        return subject.make_skip(name, "digests", "both record digests, but of no common array")
    wrong = [label for label in known if got[label] != want[label]]
    return subject.result(
        name,
        "digests",
        passed=not wrong,
        measure=ReportFigures(compared=len(known), differ=wrong),
        limit=ReportFigures(differ=0),
        first_bad={"node": wrong[0]} if wrong else {},
        cause=f"{len(wrong)} of {len(known)} digests differ, first {wrong[0]}" if wrong else "",
    )
