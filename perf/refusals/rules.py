"""Rules that reject a report as evidence for a speed: one function per rule, each with its reasons.

Figures are computed from a report's raw samples, never from its summary. Every rule is checked: a rejected report
lists all its reasons, each prefixed with its rule's name. A rejection blocks a gate; it neither passes nor fails
it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.host.errors import InputError, ZincError
from zinc_rt.perf.bench.peers import BINARY, KNOWN, PeerRun
from zinc_rt.perf.gate.figures import FIGURES, compute_figure, compute_speeds
from zinc_rt.perf.gate.milestones import Criterion
from zinc_rt.perf.gate.offered import MIN_TOKENS, RefusalRule, SubmittedReport, check_number, is_close, parse_time
from zinc_rt.perf.history.chain import HistoryEntry, find_context
from zinc_rt.perf.refusals.bits import bits, list_shortcuts
from zinc_rt.perf.refusals.board import board, is_named, sensors
from zinc_rt.perf.refusals.graph import counts, graph
from zinc_rt.perf.refusals.model import ceiling, digest, model
from zinc_rt.perf.refusals.numbers import SKEW, check_time, numbers
from zinc_rt.perf.refusals.order import order
from zinc_rt.perf.refusals.repeats import repeats
from zinc_rt.perf.refusals.timed import check_device, cpu_peer, samples, shape

SAME_MODEL = 0.02  # of weights and bytes: programs count biases and padding differently


def peer(case: SubmittedReport) -> str | None:
    """Check a ratio to a baseline; does not apply to other criteria."""
    if case.criterion.measure != "against":
        return None
    measure, command = case.result["measure"], case.result.get("reference")
    if not command:
        return "the other program's command is not recorded"
    reported = measure.get("peer") or {}
    name, kind = reported.get("program", ""), reported.get("kind", "")
    if name not in KNOWN:
        return f"{name or 'the other program'} is not a known baseline: {', '.join(KNOWN)}"
    if kind not in BINARY.values() or not reported.get("sha256"):
        return f"{name} is {'a ' + kind if kind else 'not recorded'}, expected the program itself"
    outputs, pairs = reported.get("outputs", []), measure.get("pairs", [])
    if len(outputs) != len(pairs):
        return f"{len(outputs)} outputs of {name} are kept for {len(pairs)} runs"
    if len(set(outputs)) < len(outputs):
        return f"{name} printed the same twice: one run was counted again"
    for location, (text, pair) in enumerate(zip(outputs, pairs, strict=True)):
        try:
            objection = KNOWN[name](text)
        except InputError as error:
            return f"output {location} is {error.what if hasattr(error, 'what') else error}"
        if problem := _check_peer(case, objection):
            return f"{name}, run {location}: {problem}"
        if not is_close(check_number(pair[1], "their speed"), objection.tokens_per_second):
            return (
                f"run {location} is put down as {pair[1]:g} tok/s, {name} printed {objection.tokens_per_second:g}"
            )
    return _check_our_run(case, measure)


def _check_peer(case: SubmittedReport, peer_run: PeerRun) -> str | None:
    """Require the same model, card and number of tokens, and a named build."""
    model, criterion = case.evidence.report["model"], case.criterion
    if not peer_run.version:
        return "its build is not named"
    if peer_run.generated < MIN_TOKENS or peer_run.prompt:
        seen = f"{peer_run.generated} tokens after a prompt of {peer_run.prompt}"
        return f"{seen}, expected {MIN_TOKENS} or more and none"
    weights = sum(model["weights"].values())
    for what, theirs, ours in (
        ("weights", peer_run.parameters, model["parameters"]),
        ("bytes", peer_run.model_bytes, weights),
    ):
        if abs(theirs - ours) > SAME_MODEL * ours:
            return f"another model: {theirs:,} {what}, ours has {ours:,}"
    if criterion.hardware["device"].lower() not in peer_run.devices.lower():
        return f"on {peer_run.devices}, expected {criterion.hardware['device']}"
    if peer_run.gpu_layers < model["layers"]:
        return f"{peer_run.gpu_layers} of {model['layers']} layers on the card"
    return None


def _check_our_run(case: SubmittedReport, measure: Any) -> str | None:
    decoded = case.evidence.result("decode")
    rates = compute_speeds(decoded["measure"]) if decoded is not None else []
    ours = [pair[0] for pair in measure["pairs"]]
    if len(ours) != len(rates) or not all(map(is_close, ours, rates)):
        return "the pairs are not the runs that were timed"
    if measure.get("ratio") is None:
        return None
    middle = statistics.geometric_mean(pair[0] / pair[1] for pair in measure["pairs"])
    if not is_close(check_number(measure["ratio"], "ratio"), middle):
        return f"the ratio is put down as {measure['ratio']}, the pairs say {middle:.4g}"
    return None


MIN_RUNS = 3
PROMPT_TOKENS = 128  # §3.4
CLOCK_DRIFT = 0.05  # of the median clock, first third of the samples against the last
SPEED_DRIFT = 0.05  # of speed, first run against last
WARMING_C = 12.0
SPREAD = 0.10  # (slowest - fastest) / median, of runs
# What a rule stumbles over in a report that is not of the form it asks for.
UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    ZeroDivisionError,
    IndexError,
    OverflowError,
    ZincError,
)


def _check_simulated(case: SubmittedReport) -> str | None:
    """Detect a simulated device by the report's own fields, and by values that only a simulated device leaves in
    one.
    """
    report, device, details = case.evidence.report, case.evidence.device, case.evidence.details
    traces = [
        *(["its flag"] if device.get("simulated") is not False else []),
        *([f"profile {device['profile']}"] if device.get("profile") else []),
        *(["its shortcuts"] if "simulat" in " ".join(map(str, report.get("shortcuts", []))).lower() else []),
        *(["its software driver"] if device.get("software") else []),
        *(["its name"] if "simulat" in str(device.get("name", "")).lower() else []),
        *(["assumptions it depends on"] if details.get("assumptions") else []),
        *(["a sanitizer's findings"] if details.get("findings") else []),
    ]
    if traces:
        return f"needs {case.criterion.needs}: this ran on a simulated device ({', '.join(traces)})"
    return None


def _check_hardware(case: SubmittedReport) -> str | None:
    required, device = case.criterion.hardware, case.evidence.device
    arch, name = str(device.get("arch", "")), str(device.get("name", ""))
    if arch != required["arch"] or not is_named(name, required["device"]):
        return f"needs {case.criterion.needs}: this ran on {name or 'an unnamed device'} ({arch or 'no arch'})"
    return None


def _check_shortcuts(case: SubmittedReport) -> str | None:
    shortcuts = list_shortcuts(case.evidence)
    shortcuts += [str(item)] if (item := case.evidence.device.get("unchecked")) else []
    return f"a shortcut is active: {'; '.join(dict.fromkeys(shortcuts))}" if shortcuts else None


def _check_tokens(case: SubmittedReport) -> str | None:
    if case.criterion.measure not in ("decode", "aggregate", "against"):
        return None
    runs = _find_runs(case, "decode" if case.criterion.measure == "against" else case.criterion.measure)
    fewest = min((len(run) for run in runs if isinstance(run, list)), default=0)
    if fewest < MIN_TOKENS:
        return f"{fewest} generated tokens in a run, expected {MIN_TOKENS} or more"
    asked = case.evidence.workload.get("tokens", fewest)
    return f"{fewest} generated tokens in a run of {asked}" if asked != fewest else None


def _check_tier(case: SubmittedReport) -> str | None:
    ran = (case.result.get("tier"), case.evidence.device.get("tier"))
    if not registry.spec(case.criterion.tier).built:
        return f"this version has no tier {case.criterion.tier}, so nothing ran on it"
    other = next((tier for tier in ran if tier != case.criterion.tier), case.criterion.tier)
    return f"ran on {other}, expected {case.criterion.tier}" if other != case.criterion.tier else None


def _check_whole_model(case: SubmittedReport) -> str | None:
    nodes, ran = case.evidence.workload.get("nodes"), case.evidence.report.get("direct_compute_ops")
    if not nodes or isinstance(nodes, bool) or nodes != ran:
        return f"{ran} of {nodes or 'an unknown number of'} nodes ran on the tier"
    expected = f"{case.criterion.tier}: {ran} of {nodes} nodes "
    executed = str(case.evidence.report.get("model_execution", expected))
    if not executed.startswith(expected):
        return f"the report says {executed!r}, and {ran} of {nodes} nodes"
    return None


def _check_workload(case: SubmittedReport) -> str | None:
    load, criterion = case.evidence.workload, case.criterion
    assert criterion.model is not None
    if load.get("slots") != criterion.slots:
        return f"{load.get('slots')} slots, expected {criterion.slots}"
    ctx = case.evidence.report.get("ctx", 0)
    if ctx < criterion.model.ctx:
        return f"a context of {ctx}, expected {criterion.model.ctx}"
    if criterion.measure in ("ttft", "ttft_warm") and load.get("prompt_tokens") != PROMPT_TOKENS:
        return f"a prompt of {load.get('prompt_tokens')} tokens, expected {PROMPT_TOKENS}"
    if criterion.measure == "prefill" and case.result["measure"]["prompt_tokens"] < PROMPT_TOKENS:
        return f"a prompt of {case.result['measure']['prompt_tokens']} tokens, expected {PROMPT_TOKENS} or more"
    if load.get("warmup") == 0:
        return "no run to warm up"
    return None


def _check_stale(case: SubmittedReport) -> str | None:
    """Reject a report from different code, or from another time than its record."""
    code = case.evidence.details.get("code")
    if code != case.given.code_version:
        return f"stale: measured of code {str(code)[:12]}, this is {case.given.code_version[:12]}"
    return check_time(case)


def _check_edited(case: SubmittedReport) -> str | None:
    history = case.given.history
    if history is None:
        return "no history: zinc-rt perf bench --history records a report, gate --history checks it"
    if history.problem:
        return f"the history's chain is broken: {history.problem}"
    entry = history.entry(case.evidence.digest)
    if entry is None:
        return "the report is not in the history, or was changed after it was recorded"
    if entry.kind != case.evidence.command:
        return f"it was recorded as a report of {entry.kind}"
    if entry.context != find_context(case.evidence.report):
        return "its record is of another device, model or workload"
    times = [parse_time(entry.at, "recorded") for entry in history.entries]
    if any(after < before - SKEW for before, after in pairwise(times)):
        return "edited history: an entry is older than the one before it"
    offered = {case.evidence.digest, *(other.digest for other in case.others)}
    later = [
        item
        for item in history.entries[entry.sequence :]
        if _is_same_measurement(item, entry) and item.report not in offered
    ]
    if later:
        return f"the history contains a later report of the same, entry {later[0].sequence}, that is withheld"
    return None


def _is_same_measurement(a: HistoryEntry, b: HistoryEntry) -> bool:
    """Return whether two records are repetitions of one measurement."""
    return a.kind == b.kind and a.context == b.context


def _check_head(case: SubmittedReport) -> str | None:
    """Require a separately recorded head: write access to the file allows rewriting or truncating all of it."""
    head, history = case.given.head, case.given.history
    if not head:
        return (
            "the history's head was not recorded: --head HASH, from where zinc-rt perf bench or history printed it"
        )
    if history is None:
        return None
    if head not in [entry.hash for entry in history.entries]:
        return f"edited history: it does not contain the recorded head {head[:12]}"
    return case.after_head(case.evidence.digest)


def _check_thermal_drift(case: SubmittedReport) -> str | None:
    samples = case.evidence.details.get("samples", [])
    clocks = [float(s["gpu_clock_mhz"]) for s in samples if s.get("gpu_clock_mhz")]
    heat = [float(s["gpu_temperature_c"]) for s in samples if s.get("gpu_temperature_c")]
    if len(clocks) < MIN_RUNS or len(heat) < MIN_RUNS:
        return "no samples of clock and temperature: drift cannot be excluded"
    first, last = _outer_third_medians(clocks)
    if abs(first - last) > CLOCK_DRIFT * statistics.median(clocks):
        return f"clock drift: {first:.0f} MHz at first, {last:.0f} MHz at last"
    cool, hot = _outer_third_medians(heat)
    if hot - cool > WARMING_C:
        return f"thermal drift: {cool:.0f} °C at first, {hot:.0f} °C at last, warm up longer"
    return None


def _check_speed_drift(case: SubmittedReport) -> str | None:
    values = case.result.get("measure", {})
    runs = FIGURES[case.criterion.measure].per_run(values) if case.criterion.measure in FIGURES else None
    if runs is None:
        return None
    if len(runs) < MIN_RUNS:
        return f"{len(runs)} runs, expected {MIN_RUNS} or more"
    middle = statistics.median(runs)
    if max(runs) - min(runs) > SPREAD * middle:
        return f"spread of {(max(runs) - min(runs)) / middle:.0%} between runs, allowed {SPREAD:.0%}"
    if abs(runs[-1] - runs[0]) > SPEED_DRIFT * middle:
        return f"speed drift: {runs[0]:.4g} at first, {runs[-1]:.4g} at last"
    return None


def _check_samples(case: SubmittedReport) -> str | None:
    """Require that the summary agrees with its own samples."""
    reported = case.result.get("measure", {}).get(case.criterion.figure)
    computed = compute_figure(case.criterion, case.result)
    if computed is None:
        return "no raw samples behind the figure"
    if reported is None or not is_close(check_number(reported, "the summary"), computed):
        return f"the summary says {reported}, its own samples {computed:.4g}"
    return _check_power(case) if case.criterion.measure == "power" else None


def _check_power(case: SubmittedReport) -> str | None:
    """Require that the watts come from the sensors and cover the whole run."""
    seen = [sample["power_w"] for sample in case.evidence.details.get("samples", []) if "power_w" in sample]
    return None if seen == case.result["measure"]["runs"] else "the watts are not those of the sensor samples"


def _find_runs(case: SubmittedReport, id_: str) -> list[Any]:
    result = case.evidence.result(id_)
    return list(result.get("measure", {}).get("runs", [])) if result else []


def _outer_third_medians(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and the last third."""
    part = max(1, len(values) // 3)
    return statistics.median(values[:part]), statistics.median(values[-part:])


RULES: Mapping[str, RefusalRule] = {
    "simulated": _check_simulated,
    "hardware": _check_hardware,
    "shortcuts": _check_shortcuts,
    "tokens": _check_tokens,
    "tier": _check_tier,
    "whole-model": _check_whole_model,
    "workload": _check_workload,
    "graph": graph,
    "counts": counts,
    "board": board,
    "sensors": sensors,
    "digest": digest,
    "model": model,
    "bits": bits,
    "stale": _check_stale,
    "edited": _check_edited,
    "head": _check_head,
    "numbers": numbers,
    "ceiling": ceiling,
    "drift": _check_thermal_drift,
    "spread": _check_speed_drift,
    "repeats": repeats,
    "order": order,
    "samples": _check_samples,
}
AGAINST: Mapping[str, RefusalRule] = {"peer": peer}  # of a criterion that names another program
TIMED_RULES: Mapping[str, RefusalRule] = {
    "shortcuts": _check_shortcuts,
    "stale": _check_stale,
    "edited": _check_edited,
    "head": _check_head,
    "machine": check_device,
    "model": shape,
    "peer": cpu_peer,
    "samples": samples,
}
ALIASES: Mapping[str, tuple[str, ...]] = {"speed": tuple(RULES)}


def list_rules(criterion: Criterion) -> Iterable[str]:
    """Return the names of the rules that a criterion's `forbids` selects."""
    for name in criterion.forbids:
        yield from ALIASES.get(name, (name,))


def find_refusals(case: SubmittedReport) -> list[str]:
    """Return every reason to reject this report for this criterion, prefixed with its rule's name; [] if it is
    accepted.
    """
    rules = {name: RULES[name] for name in list_rules(case.criterion)}
    if case.criterion.measure == "against":
        rules |= AGAINST
    return _try_command(rules, case, "zinc-rt perf bench")


def find_timed_refusals(case: SubmittedReport) -> list[str]:
    """Return every reason to reject this result of zinc-rt perf native for this criterion; [] if it is
    accepted.
    """
    return _try_command(TIMED_RULES, case, "zinc-rt perf native")


def _try_command(rules: Mapping[str, RefusalRule], case: SubmittedReport, command: str) -> list[str]:
    reasons = []
    for name, rule in rules.items():
        try:
            reason = rule(case)
        except UNREADABLE as error:
            reason = f"the report cannot be read as one of {command}: {error!r}"
        if reason is not None:
            reasons.append(f"{name}: {reason}")
    return reasons
