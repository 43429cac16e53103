"""Whether another program's speed may stand beside ours: a known one, its build, its own words for every run."""

from __future__ import annotations

import statistics
from typing import Any

from zinc_rt.errors import InputError
from zinc_rt.perf.bench.peers import BINARY, KNOWN, PeerRun
from zinc_rt.perf.gate.figures import speeds
from zinc_rt.perf.gate.offered import MIN_TOKENS, OfferedReport, agrees, number

SAME_MODEL = 0.02  # of weights and bytes: programs count biases and padding differently


def peer(case: OfferedReport) -> str | None:
    """The rule of criteria against a peer, and of no others."""
    if case.criterion.measure != "against":
        return None
    measure, command = case.result["measure"], case.result.get("reference")
    if not command:
        return "the other program's command is not recorded"
    found = measure.get("peer") or {}
    name, kind = found.get("program", ""), found.get("kind", "")
    if name not in KNOWN:
        return f"{name or 'the other program'} is no known peer: {', '.join(KNOWN)}"
    if kind not in BINARY.values() or not found.get("sha256"):
        return f"{name} is {'a ' + kind if kind else 'not recorded'}, wanted the program itself"
    outputs, pairs = found.get("outputs", []), measure.get("pairs", [])
    if len(outputs) != len(pairs):
        return f"{len(outputs)} outputs of {name} are kept for {len(pairs)} runs"
    if len(set(outputs)) < len(outputs):
        return f"{name} printed the same twice: one run was counted again"
    for place, (text, pair) in enumerate(zip(outputs, pairs, strict=True)):
        try:
            said = KNOWN[name](text)
        except InputError as error:
            return f"output {place} is {error.what if hasattr(error, 'what') else error}"
        if problem := _unlike(case, said):
            return f"{name}, run {place}: {problem}"
        if not agrees(number(pair[1], "their speed"), said.tokens_per_second):
            return f"run {place} is put down as {pair[1]:g} tok/s, {name} printed {said.tokens_per_second:g}"
    return _ours(case, measure)


def _unlike(case: OfferedReport, said: PeerRun) -> str | None:
    """The same model on the same card, as many tokens, of a named build."""
    model, wanted = case.evidence.report["model"], case.criterion
    if not said.version:
        return "its build is not named"
    if said.generated < MIN_TOKENS or said.prompt:
        return f"{said.generated} tokens after a prompt of {said.prompt}, wanted {MIN_TOKENS} or more and none"
    weights = sum(model["weights"].values())
    for what, theirs, ours in (
        ("weights", said.parameters, model["parameters"]),
        ("bytes", said.model_bytes, weights),
    ):
        if abs(theirs - ours) > SAME_MODEL * ours:
            return f"another model: {theirs:,} {what}, ours has {ours:,}"
    if wanted.hardware["device"].lower() not in said.devices.lower():
        return f"on {said.devices}, wanted {wanted.hardware['device']}"
    if said.gpu_layers < model["layers"]:
        return f"{said.gpu_layers} of {model['layers']} layers on the card"
    return None


def _ours(case: OfferedReport, measure: Any) -> str | None:
    decoded = case.evidence.result("decode")
    rates = speeds(decoded["measure"]) if decoded is not None else []
    ours = [pair[0] for pair in measure["pairs"]]
    if len(ours) != len(rates) or not all(map(agrees, ours, rates)):
        return "the pairs are not the runs that were timed"
    if measure.get("ratio") is None:
        return None
    middle = statistics.geometric_mean(pair[0] / pair[1] for pair in measure["pairs"])
    if not agrees(number(measure["ratio"], "ratio"), middle):
        return f"the ratio is put down as {measure['ratio']}, the pairs say {middle:.4g}"
    return None
