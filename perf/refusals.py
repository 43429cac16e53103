"""Why a report may not speak for a speed: one function a rule, each with its reason in words.

Figures are taken from a report's raw samples, never from its summary, and every rule is tried: a refused report
names all its reasons. A refusal blocks; it neither passes nor fails a gate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends import registry
from zinc_rt.perf.evidence import Evidence
from zinc_rt.perf.figures import FIGURES, TIMED, figure, speeds
from zinc_rt.perf.history import History
from zinc_rt.perf.milestones import Criterion
from zinc_rt.perf.paired import Conditions, blocked

MIN_TOKENS = 128  # §25.3
MIN_RUNS = 3
PROMPT_TOKENS = 128  # §3.4
CLOCK_DRIFT = 0.05  # of the median clock, first third of the samples against the last
SPEED_DRIFT = 0.05  # of speed, first run against last
WARMING_C = 12.0
SPREAD = 0.10  # (slowest - fastest) / median, of runs
AGREEMENT = 1e-3  # between a summary and its own samples


@dataclass(frozen=True, slots=True)
class Case:
    """One report put forward for one criterion, and what else is known."""

    criterion: Criterion
    evidence: Evidence
    result: Mapping[str, Any]
    others: Sequence[Evidence]
    code: str
    history: History | None = None
    model_digest: str = ""  # pinned on the command line
    head: str = ""  # of the history, noted elsewhere


Rule = Callable[[Case], str | None]


def _simulated(case: Case) -> str | None:
    if case.evidence.device.get("simulated") is not False:
        return f"needs {case.criterion.needs}: this ran on a simulated device"
    return None


def _hardware(case: Case) -> str | None:
    wanted, device = case.criterion.hardware, case.evidence.device
    arch, name = str(device.get("arch", "")), str(device.get("name", ""))
    if arch != wanted["arch"] or wanted["device"].lower() not in name.lower():
        return f"needs {case.criterion.needs}: this ran on {name or 'an unnamed device'} ({arch or 'no arch'})"
    return None


def _shortcuts(case: Case) -> str | None:
    found = list(case.evidence.report.get("shortcuts", ["no list of shortcuts at all"]))
    settings = case.evidence.details.get("settings")
    if settings is None:
        found.append("the settings are not recorded")
    else:
        clamps = ("lm_head_rows", "max_decode_tokens", "decode_topk", "gemma4_attn_scale")
        found += [f"{name} = {settings[name]}" for name in clamps if settings.get(name)]
        found += [f"{name} is not recorded" for name in clamps if name not in settings]
    return f"a shortcut is in force: {'; '.join(dict.fromkeys(found))}" if found else None


def _tokens(case: Case) -> str | None:
    if case.criterion.measure not in ("decode", "aggregate", "against"):
        return None
    runs = _runs(case, "decode" if case.criterion.measure == "against" else case.criterion.measure)
    fewest = min((len(run) for run in runs if isinstance(run, list)), default=0)
    return f"{fewest} generated tokens in a run, wanted {MIN_TOKENS} or more" if fewest < MIN_TOKENS else None


def _tier(case: Case) -> str | None:
    ran = (case.result.get("tier"), case.evidence.device.get("tier"))
    other = next((tier for tier in ran if tier != case.criterion.tier), case.criterion.tier)
    return f"ran on {other}, wanted {case.criterion.tier}" if other != case.criterion.tier else None


def _whole_model(case: Case) -> str | None:
    nodes, ran = case.evidence.workload.get("nodes"), case.evidence.report.get("direct_compute_ops")
    if not nodes or nodes != ran:
        return f"{ran} of {nodes or 'an unknown number of'} nodes ran on the tier"
    return None


def _workload(case: Case) -> str | None:
    load, wanted = case.evidence.workload, case.criterion
    assert wanted.model is not None
    if load.get("slots") != wanted.slots:
        return f"{load.get('slots')} slots, wanted {wanted.slots}"
    ctx = case.evidence.report.get("ctx", 0)
    if ctx < wanted.model.ctx:
        return f"a context of {ctx}, wanted {wanted.model.ctx}"
    if wanted.measure == "ttft" and load.get("prompt_tokens") != PROMPT_TOKENS:
        return f"a prompt of {load.get('prompt_tokens')} tokens, wanted {PROMPT_TOKENS}"
    if wanted.measure == "prefill" and case.result["measure"]["prompt_tokens"] < PROMPT_TOKENS:
        return f"a prompt of {case.result['measure']['prompt_tokens']} tokens, wanted {PROMPT_TOKENS} or more"
    if wanted.measure == "against" and not case.result.get("reference"):
        return "the other program's command is not recorded"
    return None


def _digest(case: Case) -> str | None:
    wanted = case.criterion.model
    assert wanted is not None
    pinned = case.model_digest or wanted.digest
    model = case.evidence.report.get("model", {})
    if not pinned:
        return f"no digest of {wanted.name} is pinned: --model-digest SHA256"
    if case.evidence.model_digests != (pinned,):
        return f"another model: digest {str(model.get('digest'))[:12]}, wanted {pinned[:12]}"
    if model.get("architecture") not in wanted.architectures:
        return f"another model: architecture {model.get('architecture')}, wanted {wanted.name}"
    return None


def _bits(case: Case) -> str | None:
    """A whole validation of this model on this tier and device, by this code, every value to the bit."""
    near: list[str] = []
    for other in case.others:
        if other.command != "validate" or other.model_digests != case.evidence.model_digests:
            continue
        problem = _not_proof(case, other)
        if problem is None:
            return None
        near.append(f"{other.path.name}: {problem}")
    return "no evidence of bit-identity to T-CPU" + (f" ({'; '.join(near)})" if near else "")


def _not_proof(case: Case, other: Evidence) -> str | None:
    tier = case.criterion.tier
    device = other.details.get("devices", {}).get(tier)
    if device is None:
        return f"{tier} was not validated"
    ours = case.evidence.device
    parts = [
        part for part in ("name", "arch", "simulated", "kernel", "firmware") if device.get(part) != ours.get(part)
    ]
    if parts:
        return f"on another device: {parts[0]} differs"
    if other.details.get("code") != case.code:
        return "of other code"
    if case.history is not None and not case.history.holds(other.digest):
        return "not in the history"
    mine = [r for r in other.results if r["tier"] == tier and r["reference"] == registry.ORACLE]
    logits = [r for r in mine if r["kind"] == "logits"]
    layers = [r for r in mine if r["kind"] == "layer"]
    if not logits or not layers:
        return "layers or logits are missing"
    for each in mine:
        exact = each["limit"].get("bits") and each["measure"].get("equal_bits", each["kind"] == "experts")
        if each["status"] != "pass" or not exact:
            return f"{each['id']} is not equal to the bit"
    if any(r["status"] == "fail" for r in other.results):
        return "it failed"
    return None


def _stale(case: Case) -> str | None:
    code = case.evidence.details.get("code")
    if code != case.code:
        return f"stale: measured of code {str(code)[:12]}, this is {case.code[:12]}"
    return None


def _edited(case: Case) -> str | None:
    history = case.history
    if history is None:
        return "no history: zinc-rt perf bench --history records a report, gate --history checks it"
    if history.problem:
        return f"the history's chain is broken: {history.problem}"
    if case.head and case.head not in [entry.hash for entry in history.entries]:
        return f"edited history: it does not hold the head {case.head[:12]} noted before"
    if not history.holds(case.evidence.digest):
        return "the report is not in the history, or was changed after it was recorded"
    return None


def _drift(case: Case) -> str | None:
    samples = case.evidence.details.get("samples", [])
    clocks = [float(s["gpu_clock_mhz"]) for s in samples if s.get("gpu_clock_mhz")]
    heat = [float(s["gpu_temperature_c"]) for s in samples if s.get("gpu_temperature_c")]
    if len(clocks) < MIN_RUNS or len(heat) < MIN_RUNS:
        return "no samples of clock and temperature: drift cannot be excluded"
    first, last = _thirds(clocks)
    if abs(first - last) > CLOCK_DRIFT * statistics.median(clocks):
        return f"clock drift: {first:.0f} MHz at first, {last:.0f} MHz at last"
    cool, hot = _thirds(heat)
    if hot - cool > WARMING_C:
        return f"thermal drift: {cool:.0f} °C at first, {hot:.0f} °C at last, warm up longer"
    return None


def _spread(case: Case) -> str | None:
    values = case.result.get("measure", {})
    runs = FIGURES[case.criterion.measure].per_run(values) if case.criterion.measure in FIGURES else None
    if runs is None:
        return None
    if len(runs) < MIN_RUNS:
        return f"{len(runs)} runs, wanted {MIN_RUNS} or more"
    middle = statistics.median(runs)
    if max(runs) - min(runs) > SPREAD * middle:
        return f"spread of {(max(runs) - min(runs)) / middle:.0%} between runs, allowed {SPREAD:.0%}"
    if abs(runs[-1] - runs[0]) > SPEED_DRIFT * middle:
        return f"speed drift: {runs[0]:.4g} at first, {runs[-1]:.4g} at last"
    return None


def _samples(case: Case) -> str | None:
    """The summary is what its own samples say."""
    said = case.result.get("measure", {}).get(case.criterion.figure)
    found = figure(case.criterion, case.result)
    if found is None:
        return "no raw samples behind the figure"
    if said is None or abs(float(said) - found) > AGREEMENT * abs(found):
        return f"the summary says {said}, its own samples {found:.4g}"
    if case.criterion.measure == "against":
        ours = [pair[0] for pair in case.result["measure"]["pairs"]]
        decoded = case.evidence.result("decode")
        rates = speeds(decoded["measure"]) if decoded is not None else []
        agree = [abs(a - b) <= AGREEMENT * b for a, b in zip(ours, rates, strict=False)]
        if len(ours) != len(rates) or not all(agree):
            return "the pairs are not the runs that were timed"
    return None


def _runs(case: Case, id_: str) -> list[Any]:
    result = case.evidence.result(id_)
    return list(result.get("measure", {}).get("runs", [])) if result else []


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and the last third."""
    part = max(1, len(values) // 3)
    return statistics.median(values[:part]), statistics.median(values[-part:])


RULES: Mapping[str, Rule] = {
    "simulated": _simulated,
    "hardware": _hardware,
    "shortcuts": _shortcuts,
    "tokens": _tokens,
    "tier": _tier,
    "whole-model": _whole_model,
    "workload": _workload,
    "digest": _digest,
    "bits": _bits,
    "stale": _stale,
    "edited": _edited,
    "drift": _drift,
    "spread": _spread,
    "samples": _samples,
}
ALIASES: Mapping[str, tuple[str, ...]] = {"speed": tuple(RULES)}


def rules_of(criterion: Criterion) -> Iterable[str]:
    """Names of the rules a criterion's `forbids` stands for."""
    for name in criterion.forbids:
        yield from ALIASES.get(name, (name,))


def refusals(case: Case) -> list[str]:
    """Every reason why this report may not speak for this criterion; [] if it may."""
    found = []
    for name in rules_of(case.criterion):
        try:
            reason = RULES[name](case)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"the report cannot be read as one of zinc-rt perf bench: {name}: {error!r}"
        if reason is not None:
            found.append(reason)
    return found


def timed_refusals(
    criterion: Criterion, evidence: Evidence, result: Mapping[str, Any], code: str, history: History | None
) -> list[str]:
    """Every reason why this result of zinc-rt perf native may not speak for this criterion; [] if it may."""
    case = Case(criterion, evidence, result, (), code, history)
    found = []
    for rule in (_shortcuts, _stale, _edited, _timed_samples):
        try:
            reason = rule(case)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            reason = f"the report cannot be read as one of zinc-rt perf native: {error!r}"
        if reason is not None:
            found.append(reason)
    return found


def _timed_samples(case: Case) -> str | None:
    """Judged only where it was quiet, by the samples themselves, and the summary is what they say."""
    if case.result.get("tier") != case.criterion.tier:
        return f"ran on {case.result.get('tier')}, wanted {case.criterion.tier}"
    if case.result.get("status") == "blocked":
        return f"not judged: {case.result.get('reason')}"
    measure = case.result["measure"]
    if "conditions" in measure:
        given = Conditions(**measure["conditions"])
        needs_peer = case.criterion.figure == "ratio"
        problem = "" if measure.get("theirs") else "no llama.cpp in this run"
        if reason := blocked(given, len(measure["runs"]), problem, needs_peer=needs_peer):
            return f"not judged: {reason}"
    found, said = TIMED[case.criterion.figure](measure), measure[case.criterion.figure]
    if abs(float(said) - found) > AGREEMENT * abs(found):
        return f"the summary says {said}, its own samples {found:.4g}"
    return None
