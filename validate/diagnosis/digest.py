"""The digest of a model's failures: the place, the agreement of tiers, the suspect and the next command.

The suspect is determined only by patterns.PATTERNS; the first matching pattern is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.validate.check_result import CheckResult, SanitizerMeasure
from zinc_rt.validate.diagnosis.failures import ModelFailures, find_layer, join_names
from zinc_rt.validate.diagnosis.patterns import PATTERNS

PLACES = 4  # tiers whose first difference is told
TOLD_APART = ("golden", "finite", "sanitizer", "step")  # on lines of their own


def diagnose_failures(evidence: ModelFailures) -> Iterator[str]:
    """Return the digest of a model's failures, line by line; empty if nothing failed."""
    if not evidence.failed:
        return
    if weight := evidence.words["weight"]:  # values that follow from a damaged file are innocent
        places = [f"the model file: {weight}"]
    else:
        places = list(dict.fromkeys(_format_position(result) for result in _select_places(evidence)))
    for location in places[:PLACES]:
        yield f"first bad  {evidence.job.name}, {location}"
    yield f"agree      {describe_agreement(evidence.same_bits)}"
    for text in dict.fromkeys(result.cause for result in evidence.nodes):
        yield f"node       {text}"
    for text in dict.fromkeys(result.cause for result in evidence.of("finite", "golden")):
        yield f"not finite {text}"
    for text in dict.fromkeys(result.cause for result in evidence.of("step")):
        yield f"step       {text}"
    if findings := sum(measure.findings for measure in evidence.measures_of_kind(SanitizerMeasure)):
        yield f"sanitizer  {findings} finding{'s' * (findings > 1)}, first {evidence.words['finding']}"
        rule = RULES.get(evidence.words["rule"])
        if rule is not None and rule.advice:
            yield f"means      {rule.advice}"
    pattern = next(pattern for pattern in PATTERNS if pattern.fits(evidence))
    yield f"suspect    {pattern.sentence.format(**evidence.words)}"
    yield f"next       {pattern.command.format(**evidence.words)}"


def diagnose_vocabulary(result: CheckResult) -> Iterator[str]:
    """Return the digest for a vocabulary without a model; empty if it passed."""
    if result.status == "fail":
        yield f"first bad  {result.model}, {_format_position(result)}"
        yield f"suspect    a text gives other tokens: suspect the tokenizer: {result.cause}"
        yield f"next       {result.advice}"


def describe_agreement(groups: Sequence[Sequence[str]]) -> str:
    """Describe in a sentence which tiers agree with each other."""
    if not groups:
        return "nothing ran"
    if len(groups) == 1:
        alike = f"{join_names(groups[0])} to the bit, in the prompt's tapped pass"
        return alike if len(groups[0]) > 1 else f"only {groups[0][0]} ran"
    together = [f"{join_names(group)} to the bit" for group in groups if len(group) > 1]
    alone = [group[0] for group in groups if len(group) == 1]
    if not together:
        return f"none of {join_names(alone)} to the bit"
    return "; ".join([*together, *([f"{join_names(alone)} with no other"] if alone else [])])


def _select_places(evidence: ModelFailures) -> Iterator[CheckResult]:
    """Return the failure with the most specific place for each pair of a tier and its reference. If the host built
    a wrong step, return only that: the values that follow from it are innocent.
    """
    if steps := evidence.of("step"):
        yield from steps
        return
    yield evidence.place
    for pair in dict.fromkeys((r.tier, r.reference) for r in evidence.failed):
        mine = [r for r in evidence.failed if (r.tier, r.reference) == pair]
        if pair != (evidence.place.tier, evidence.place.reference) and mine[0].kind not in TOLD_APART:
            yield next((r for r in mine if r.id.endswith(("/first-divergent", "/nodes"))), mine[0])


def _format_position(result: CheckResult) -> str:
    bad, layer = result.first_bad, find_layer(result)
    node = bad.get("node", result.name)
    if result.kind == "step":
        return f"{result.tier}: {result.cause}"
    parts = [f"layer {layer}"] if layer else []
    parts.append(f"node {node}" if node not in ("logits", "decode", "greedy") else str(node))
    if kernels := bad.get("kernels"):
        parts.append(f"kernel{'s' * (len(kernels) > 1)} {join_names(kernels)}")
    parts += [
        f"{word} {bad[name]}"
        for name, word in (("token", "token"), ("head", "head"), ("dim", "element"))
        if name in bad
    ]
    return f"{result.tier} against {result.against}: {', '.join(parts)}{_format_values(bad)}"


def _format_values(bad: dict[str, Any]) -> str:
    if not {"got", "want"} <= bad.keys():
        return ""
    return f": {bad['got']:.9g}, not {bad['want']:.9g}"
