"""Check whether a validation proves the bits: the whole model, this tier, device and machine, one ordering, no
clamp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.perf.gate.offered import SubmittedReport, check_number, parse_time
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.refusals.model import SHAPE
from zinc_rt.perf.refusals.numbers import SKEW
from zinc_rt.perf.refusals.order import check_order

CLAMPS = ("lm_head_rows", "max_decode_tokens", "decode_topk", "gemma4_attn_scale")
ORDERINGS = ("canonical-1", "canonical-1-q8")  # those that say every bit
DEVICE = ("name", "arch", "simulated", "kernel", "firmware", "profile", "pci_id", "memory_bytes",
          "memory_bytes_per_second")  # fmt: skip
LAYER = re.compile(r"l_out-(\d+)")


def bits(case: SubmittedReport) -> str | None:
    """Require a whole validation of this model on this tier and device, by this code, with every value
    bit-identical.
    """
    near: list[str] = []
    for other in case.others:
        if other.command != "validate" or other.model_digests != case.evidence.model_digests:
            continue
        try:
            problem = check_proof(case, other)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"cannot be read as a report of zinc-rt validate: {error!r}"
        if problem is None:
            return None
        near.append(f"{other.path.name}: {problem}")
    return "no evidence of bit-identity to T-CPU" + (f" ({'; '.join(near)})" if near else "")


def list_shortcuts(evidence: ReportFile) -> list[str]:
    """Return the shortcuts that a report lists, that its settings contain, or that it omits."""
    shortcuts = list(evidence.report.get("shortcuts", ["no list of shortcuts at all"]))
    settings = evidence.details.get("settings")
    if settings is None:
        return [*shortcuts, "the settings are not recorded"]
    shortcuts += [f"{name} = {settings[name]}" for name in CLAMPS if settings.get(name)]
    return shortcuts + [f"{name} is not recorded" for name in CLAMPS if settings.get(name) is None]


def check_proof(case: SubmittedReport, other: ReportFile) -> str | None:
    """Return why this validation is not evidence for that speed, or None if it is."""
    tier = case.criterion.tier
    devices = other.details.get("devices", {})
    if tier not in devices:
        return f"{tier} was not validated"
    for problem in (
        _check_same_device(case, other, devices[tier]),
        _check_same_ordering(case, other, devices),
        _check_same_code(case, other),
        check_order(case, other),
        _check_whole_run(case, other),
        _check_equality(case, other),
    ):
        if problem:
            return problem
    return None


def _check_same_device(case: SubmittedReport, other: ReportFile, device: Mapping[str, Any]) -> str | None:
    ours = case.evidence.device
    if parts := [part for part in DEVICE if device.get(part) != ours.get(part)]:
        return f"on another device: {parts[0]} differs"
    if other.device.get("simulated") is not False:
        return "its device is simulated, or it does not say so"
    here, there = case.evidence.details.get("host"), other.details.get("host")
    if not here or not there:
        return "which machine it ran on is not recorded"
    if parts := [name for name in {**here, **there} if here.get(name) != there.get(name)]:
        return f"on another machine: {parts[0]} differs"
    return None


def _check_same_ordering(case: SubmittedReport, other: ReportFile, devices: Mapping[str, Any]) -> str | None:
    ours = case.evidence.report.get("ordering")
    if ours not in ORDERINGS:
        return f"the speed is in {ours}, which defines no bits"
    if (whole := other.report.get("ordering", ours)) != ours:
        return f"it is in {whole}, the speed is in {ours}"
    for tier in (case.criterion.tier, registry.ORACLE):
        validated = devices.get(tier, {}).get("ordering")
        if validated != ours:
            return f"{tier} was validated in {validated}, the speed is in {ours}"
    return None


def _check_same_code(case: SubmittedReport, other: ReportFile) -> str | None:
    if other.details.get("code") != case.given.code_version:
        return "of other code"
    if case.given.history is not None and not case.given.history.contains_report(other.digest):
        return "not in the history"
    if problem := case.after_head(other.digest):
        return problem
    if parse_time(other.report.get("started"), "started") > datetime.now(UTC) + SKEW:
        return "it began in the future"
    if shortcuts := list_shortcuts(other):
        return f"a shortcut is active: {'; '.join(dict.fromkeys(shortcuts))}"
    return None


def _check_whole_run(case: SubmittedReport, other: ReportFile) -> str | None:
    """Require every layer, in prefill and in decode."""
    ours, theirs = case.evidence.report["model"], other.report["model"]
    if parts := [name for name in SHAPE if name not in theirs or ours.get(name) != theirs[name]]:
        return f"it is of another model: {parts[0]} differs"
    layers = int(check_number(ours["layers"], "layers"))
    (job,) = other.details["jobs"].values()
    if job["layers"] != [0, layers, layers]:
        return f"layers {job['layers'][0]} to {job['layers'][1]} of {layers} were validated"
    if check_number(job["tokens"], "tokens") < 1:
        return "no prompt was validated"
    if check_number(job["steps"], "steps") < 1:
        return "no decoded token was validated"
    tier_results = _select_tier_results(case, other)
    seen = [
        int(match[1])
        for r in tier_results
        if r["kind"] == "layer" and (match := LAYER.fullmatch(_result_label(r)))
    ]
    logits = [r for r in tier_results if r["kind"] == "logits"]
    if not seen or not logits:
        return "layers or logits are missing"
    if sorted(seen) != list(range(layers)):
        return f"{len(set(seen))} of {layers} layers were compared"
    positions = check_number(logits[0]["measure"].get("positions"), "positions")
    if positions != job["tokens"] + job["steps"]:
        return f"logits of {positions:g} positions, expected {job['tokens'] + job['steps']}"
    return None


def _check_equality(case: SubmittedReport, other: ReportFile) -> str | None:
    for item in _select_tier_results(case, other):
        measured = item["measure"]
        same = measured.get("equal_bits", True if item["kind"] == "experts" else None)
        if item["status"] != "pass" or item["limit"].get("bits") is not True or same is not True:
            return f"{item['id']} is not equal to the bit"
        if measured.get("nonfinite", 0) or measured.get("max_abs", 0):
            return f"{item['id']} is reported as equal but differs by {measured.get('max_abs')}"
    if any(r["status"] == "fail" for r in other.results):
        return "it failed"
    return None


def _select_tier_results(case: SubmittedReport, other: ReportFile) -> list[Mapping[str, Any]]:
    tier = case.criterion.tier
    return [r for r in other.results if r["tier"] == tier and r["reference"] == registry.ORACLE]


def _result_label(result: Mapping[str, Any]) -> str:
    return str(result["id"]).rpartition("/")[2]
