"""Compare two goldens: their models, their prompts, then each common array, by value or by digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from zinc_rt.golden.digests import digest_arrays
from zinc_rt.golden.format import Golden
from zinc_rt.validate.check_result import CheckResult, ReportFigures, ValueMeasure
from zinc_rt.validate.checks import CheckedPair, check_digests, reference_from_golden
from zinc_rt.validate.histograms.matrix import LogitMatrix, compare_sources
from zinc_rt.validate.histograms.sources import make_golden_source
from zinc_rt.validate.limits import GOLDEN, choose_golden_limit, choose_tier_limit, scale_limit
from zinc_rt.validate.measure import Limit, compare_arrays, compute_agreement

SAME_CHOICE = Limit(bits=True, why="the same choices in the same order")


@dataclass(frozen=True, slots=True)
class GoldenDifference:
    """The result of a comparison: the arrays in graph order and by layer, and the matrix of the two sets of
    logits.
    """

    results: list[CheckResult]
    matrix: LogitMatrix
    bits: bool  # whether they must be equal to the bit

    @property
    def verdict(self) -> str:
        """Return the verdict as a sentence."""
        failed = [result for result in self.results if result.status == "fail"]
        if failed:
            return f"{len(failed)} of {len(self.results)} differ, first {failed[0].name}"
        compared = sum(result.status == "pass" for result in self.results)
        how = "each to the bit" if self.bits else "each within its limit"
        return f"{compared} compared, {how}" if compared else "nothing in common"


@dataclass(frozen=True, slots=True)
class PositionedArray:
    """An array of a golden: `values` [R, ...] at `positions` i64 [R], counted from the prompt's first token."""

    positions: np.ndarray
    values: np.ndarray


def diff_goldens(got: Golden, want: Golden, *, repro: str = "") -> GoldenDifference:
    """Compare `got` with `want` in all common arrays. If the models or prompts differ, nothing more is
    compared.
    """
    limit = choose_limit(got, want)
    subject = CheckedPair(
        str(want.meta.get("model") or want.path.stem), _golden_name(got), _golden_name(want), limit, repro
    )
    results = [_check_model(subject, got, want), _check_prompt(subject, got, want)]
    if any(result.status == "fail" for result in results):
        return GoldenDifference(results, compare_sources(subject.model, []), limit.bits)
    results += _check_arrays(subject, got, want)
    if limit.bits:
        digests = read_digests(got)
        in_order = {label: digests[label] for label in sorted(digests, key=_label_sort_key)}
        results.append(check_digests(subject, in_order, read_digests(want)))
    both = compare_sources(subject.model, [make_golden_source(got), make_golden_source(want)])
    return GoldenDifference(results, both, limit.bits)


def choose_limit(got: Golden, want: Golden) -> Limit:
    """Return the limit of the difference: bit-identical in one canonical ordering."""
    if got.ordering and want.ordering:
        same_blas = got.ordering == want.ordering == "float32-dequant"
        return (
            choose_golden_limit("", got.ordering, want.ordering)
            if same_blas
            else choose_tier_limit(got.ordering, want.ordering)
        )
    ours = got.ordering or want.ordering
    return choose_golden_limit(str(want.meta.get("arch", "")), ours) if ours else GOLDEN


def _golden_name(golden: Golden) -> str:
    return golden.path.name + golden.variant


def _check_model(subject: CheckedPair, got: Golden, want: Golden) -> CheckResult:
    mine, theirs = (str(golden.meta.get("model_digest") or "") for golden in (got, want))
    if not mine or not theirs:
        nameless = got if not mine else want
        return subject.make_skip("model", "model", f"{nameless.path.name} records no digest of its model")
    figures = ReportFigures(got=mine, want=theirs)
    cause = "" if mine == theirs else f"two models: {mine[:12]} and {theirs[:12]}; nothing more is compared"
    return subject.result(
        "model", "model", passed=mine == theirs, measure=figures, limit=ReportFigures(), cause=cause
    )


def _check_prompt(subject: CheckedPair, got: Golden, want: Golden) -> CheckResult:
    same = np.array_equal(got.ids, want.ids)
    bad: dict[str, object] = {}
    if not same:
        index = next((index for index, (a, b) in enumerate(zip(got.ids, want.ids, strict=False)) if a != b), None)
        bad = {"token": min(len(got.ids), len(want.ids)) if index is None else index}
    return subject.result(
        "ids",
        "prompt",
        passed=same,
        measure=ReportFigures(got=len(got.ids), want=len(want.ids)),
        limit=ReportFigures(),
        first_bad=bad,
        cause="" if same else "two prompts; nothing more is compared",
    )


def _check_arrays(subject: CheckedPair, got: Golden, want: Golden) -> Iterator[CheckResult]:
    mine, theirs = _collect_values(got), _collect_values(want)
    for label in sorted({**theirs, **mine}, key=_label_sort_key):
        kind = _label_kind(label)
        if label not in mine or label not in theirs:
            lacks = got if label not in mine else want
            yield subject.make_skip(label, kind, f"{lacks.path.name} does not contain it")
            continue
        a, b = mine[label], theirs[label]
        index = np.intersect1d(a.positions, b.positions)
        if label == "greedy_logits":
            index = index[: _count_common_tokens(got, want)]
        if not len(index):
            yield subject.make_skip(label, kind, "no position in common")
            continue
        x, y = (item.values[np.searchsorted(item.positions, index)].reshape(len(index), -1) for item in (a, b))
        limit = SAME_CHOICE if kind == "experts" else subject.limit
        limit = scale_limit(limit, y) if kind in ("layer", "node") else limit
        measured = compare_arrays(x, y, limit)
        if not limit.gates:
            yield subject.make_skip(label, kind, limit.why)
            continue
        bad = dict(measured.first_bad)
        if "token" in bad:
            bad["token"] = int(index[bad["token"]])
        agreed = compute_agreement(x, y) if kind in ("logits", "decode") and x.shape == y.shape else None
        yield subject.result(
            label, kind, passed=measured.within, measure=ValueMeasure(measured, agreed), limit=limit, first_bad=bad
        )


def read_digests(golden: Golden) -> Mapping[str, str]:
    """Return the recorded digests, or digests of the arrays that it contains completely."""
    return golden.digests or digest_arrays({
        label: rows.values
        for label, rows in _collect_values(golden).items()
        if label == "greedy_logits" or len(rows.values) == len(golden.ids)
    })  # fmt: skip


def _collect_values(golden: Golden) -> dict[str, PositionedArray]:
    """Return every array by its label, with its positions."""
    prompt = np.arange(len(golden.ids))
    kept = golden.rows

    def with_positions(array: np.ndarray) -> PositionedArray:
        return PositionedArray(prompt if kept is None or len(array) == len(prompt) else kept, array)

    arrays = {label: with_positions(array) for label, array in reference_from_golden(golden).values.items()}
    arrays["logits"] = with_positions(golden.logits)
    after = golden.greedy_logits
    if after is not None and len(after):
        arrays["greedy_logits"] = PositionedArray(len(prompt) + np.arange(len(after)), after)
    return arrays


def _count_common_tokens(a: Golden, b: Golden) -> int:
    """Return the number of leading greedy tokens that are equal."""
    pairs = list(
        zip(
            *(
                [] if greedy_tokens is None else greedy_tokens
                for greedy_tokens in (a.greedy_tokens, b.greedy_tokens)
            ),
            strict=False,
        )
    )
    return next((index for index, (x, y) in enumerate(pairs) if x != y), len(pairs))


def _label_sort_key(label: str) -> tuple[int, bool]:
    """Return the sort key of a label: by layer, with the layer's output last; values before the first layer first,
    values after the last layer last.
    """
    stem, _, layer = label.rpartition("-")
    if layer.isdigit():
        return int(layer), stem == "l_out"
    return (
        (1 << 30, label == "greedy_logits") if label in ("result_norm", "logits", "greedy_logits") else (-1, False)
    )


def _label_kind(label: str) -> str:
    named = {"logits": "logits", "greedy_logits": "decode"}
    return named.get(label) or (
        "experts" if label.startswith("ffn_moe_topk") else "layer" if label.startswith("l_out") else "node"
    )
