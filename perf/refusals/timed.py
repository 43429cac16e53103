"""Rules that reject a report of zinc-rt perf native as evidence for a speed of this machine's CPU."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zinc_rt.perf.bench.peers import BINARY
from zinc_rt.perf.gate.figures import TIMED
from zinc_rt.perf.gate.offered import SubmittedReport, check_number, is_close
from zinc_rt.perf.native.llama_cpp import SETTINGS, TARGETS, parse_batched, parse_bench
from zinc_rt.perf.native.paired import RunConditions, find_blocking_reasons
from zinc_rt.perf.refusals.numbers import iterate_leaves

SAME_MACHINE = ("processor", "cores", "memory_gb")
VERSION = re.compile(r"[0-9a-f]{7,40}")  # a commit of llama.cpp


def check_device(case: SubmittedReport) -> str | None:
    """Require that the report is of this machine."""
    then = case.evidence.details.get("host") or {}
    if not then:
        return "which machine it ran on is not recorded"
    for name in SAME_MACHINE:
        if then.get(name) != case.given.host.get(name):
            return f"of another machine: {name} {then.get(name)}, here {case.given.host.get(name)}"
    return None


def shape(case: SubmittedReport) -> str | None:
    """Require that the model has the shape stated in the result's name; without a name, nothing is compared."""
    from zinc_rt.perf.synthetic import SHAPES

    name, slash, _ = case.criterion.measure.partition("/")
    if not slash:
        return None
    required, reported = SHAPES[name], case.evidence.details.get("models", {}).get(name)
    if not reported:
        return f"what the file of {name} is was not recorded"
    if not re.fullmatch("[0-9a-f]{64}", str(reported.get("digest"))):
        return f"the digest of {name} is not recorded"
    pairs = {
        "architecture": required.architecture,
        "layers": required.sizes.layers,
        "width": required.sizes.hidden,
        "vocab": required.sizes.vocab,
    }
    for part, right in pairs.items():
        if reported.get(part) != right:
            return f"another model: {part} {reported.get(part)}, {name} has {right}"
    if sum(reported["weights"].values()) > reported["size_bytes"]:
        return f"the file of {name} is smaller than its weights"
    read = case.result["measure"].get("bytes_a_token", 0)
    if read > reported["size_bytes"]:
        return f"{read:,} bytes read a token, of a file of {reported['size_bytes']:,}"
    return None


def cpu_peer(case: SubmittedReport) -> str | None:
    """Require a ratio to llama.cpp itself: the program, its build, and its original output for every figure."""
    if case.criterion.figure != "ratio":
        return None
    reported = case.evidence.details.get("llama_cpp", {})
    if reported.get("kind") not in BINARY.values() or not reported.get("sha256"):
        kind = f"a {reported['kind']}" if reported.get("kind") else "not recorded"
        return f"llama.cpp is {kind}, expected the program"
    outputs = reported.get("outputs", [])
    if not VERSION.search(" ".join([str(reported.get("version", "")), *(output["stdout"] for output in outputs)])):
        return "llama.cpp's build is not named"
    model, _, rest = case.criterion.measure.partition("/")
    figure = rest.rpartition("/")[2]
    for setting, speeds in case.result["measure"]["theirs"].items():
        printed = [
            value
            for output in outputs
            if (value := _parse_printed_figure(output, model, setting, figure)) is not None
        ]
        for speed in speeds:
            close = [value for value in printed if is_close(check_number(speed, "their speed"), value)]
            if not close:
                return f"{setting}: {speed:g} tok/s of {figure} is in nothing that llama.cpp printed"
            printed.remove(close[0])  # a run counts once
    return None


def _parse_printed_figure(output: Mapping[str, Any], model: str, setting: str, figure: str) -> float | None:
    """Return the figure, in tok/s, from the output of one run, or None for a run of something else."""
    program, *words = output["command"]
    repack = "--repack" in words and words[words.index("--repack") + 1 :][:1] != ["0"]
    if Path(words[words.index("-m") + 1]).stem != model or repack != (setting == SETTINGS[0].name):
        return None
    if figure == "slots":
        return parse_batched(output["stdout"]) if program == TARGETS[1] else None
    return parse_bench(output["stdout"])[figure] if program == TARGETS[0] else None


def samples(case: SubmittedReport) -> str | None:
    """Require an idle machine according to the samples, and a summary that agrees with them."""
    if case.result.get("tier") != case.criterion.tier:
        return f"ran on {case.result.get('tier')}, expected {case.criterion.tier}"
    if case.result.get("status") == "blocked":
        return f"not judged: {case.result.get('reason')}"
    measure = case.result["measure"]
    for name, value in iterate_leaves(measure, "measure"):
        if not isinstance(value, str | None):
            check_number(value, name)
    if any(value <= 0 for name in ("runs", "oracle") for value in measure.get(name, [])):
        return "a speed of zero"
    if "conditions" in measure:
        conditions = RunConditions(**measure["conditions"])
        needs_peer = case.criterion.figure == "ratio"
        problem = "" if measure.get("theirs") else "no llama.cpp in this run"
        if reason := find_blocking_reasons(conditions, len(measure["runs"]), problem, needs_peer=needs_peer):
            return f"not judged: {reason}"
    computed, reported = TIMED[case.criterion.figure](measure), measure[case.criterion.figure]
    if not math.isfinite(computed) or not is_close(check_number(reported, case.criterion.figure), computed):
        return f"the summary says {reported}, its own samples {computed:.4g}"
    return _check_allowance(measure) if case.criterion.figure == "of_allowed" else None


def _check_allowance(measure: Mapping[str, Any]) -> str | None:
    """Require that the reported share agrees with its bytes."""
    from zinc_rt.perf.native.bench import RSS_SPARE

    allowed = measure["file_bytes"] * (1 + RSS_SPARE) + measure["cache_bytes"]
    share = measure["resident_bytes"] / allowed
    if not is_close(measure["of_allowed"], share):
        return f"the summary says {measure['of_allowed']} of what is allowed, its bytes say {share:.4g}"
    return None
