"""Check the model of a report: pinned by its bytes, of the class the milestone names, and not faster than
possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zinc_rt.host.devices import DeviceRow
from zinc_rt.model.identity import compute_bits_per_weight
from zinc_rt.perf.gate.figures import FIGURES
from zinc_rt.perf.gate.milestones import RequiredModel
from zinc_rt.perf.gate.model_counts import find_peak_operations
from zinc_rt.perf.gate.offered import SubmittedReport, check_number
from zinc_rt.perf.refusals.board import find_row
from zinc_rt.perf.refusals.graph import find_weight_bytes

TENSORS_OF_FILE = 0.95  # minimum fraction of weights in a file; the rest is its header and vocabulary
SINGLE_TOKEN = 0.5  # of the seconds that reading the weights takes: one token may be measured short
CACHED = 1.10  # maximum factor by which caches raise the memory's bandwidth
SHAPE = ("architecture", "size_bytes", "layers", "width", "vocab", "parameters", "weights")


def digest(case: SubmittedReport) -> str | None:
    """Require that the model's bytes are pinned."""
    required = case.criterion.model
    assert required is not None
    model = case.evidence.report.get("model", {})
    if not case.pinned:
        return f"no digest of {required.name} is pinned: --model-digest SHA256, or --models FILE"
    if case.evidence.model_digests not in [(item,) for item in case.pinned]:
        pinned = " or ".join(item[:12] for item in case.pinned)
        return f"another model: digest {str(model.get('digest'))[:12]}, expected {pinned}"
    file = case.given.models.get(case.evidence.model_digests[0])
    for name in SHAPE if file is not None else ():
        if file is not None and file[name] != model.get(name):
            return f"the report says {name} {model.get(name)}, the file of this digest has {file[name]}"
    return None


def model(case: SubmittedReport) -> str | None:
    """Check the class of the model by shape: size, quantisation, layers, width, vocabulary."""
    required = case.criterion.model
    assert required is not None
    return check_model_class(case.evidence.report.get("model", {}), required)


def check_model_class(model: Mapping[str, Any], required: RequiredModel) -> str | None:
    """Return why a recorded model is not of this class, or None if it is."""
    if missing := [name for name in SHAPE if name not in model]:
        return f"the report does not say the model's {', '.join(missing)}"
    if model["architecture"] not in required.architectures:
        return f"another model: architecture {model['architecture']}, expected {required.name}"
    for name, right in (("layers", required.layers), ("width", required.width), ("vocab", required.vocab)):
        if right and check_number(model[name], name) != right:
            return f"another model: {name} {model[name]}, {required.name} has {right}"
    parameters, weights = check_number(model["parameters"], "parameters"), model["weights"]
    low, high = required.parameters
    if not low <= parameters <= high:
        return f"another model: {parameters:,.0f} weights, {required.name} has {low:,.0f} to {high:,.0f}"
    if not weights or any(check_number(size, f"weights in {name}") <= 0 for name, size in weights.items()):
        return "the report does not say how its weights are quantised"
    bits, (low, high) = compute_bits_per_weight(dict(weights), int(parameters)), required.bits_a_weight
    if not low <= bits <= high:
        return f"another quantisation: {bits:.2f} bits a weight, expected {low:g} to {high:g} for {required.name}"
    tensors, size = sum(weights.values()), check_number(model["size_bytes"], "size_bytes")
    if not TENSORS_OF_FILE * size <= tensors <= size:
        return f"its weights are {tensors:,} bytes and its file {size:,.0f}: one of the two is wrong"
    return None


def ceiling(case: SubmittedReport) -> str | None:
    """Reject a speed beyond the card's memory bandwidth, caused by invalid seconds or another card."""
    required, row = case.criterion.model, FIGURES.get(case.criterion.measure)
    assert required is not None
    if row is None or case.criterion.measure in ("power", "fairness", "endurance", "idle_to_stream"):
        return None
    device = find_row(case.criterion.hardware["device"])
    if device is None:
        return None  # the rule `board` refuses it
    maximum = CACHED * device.memory_gbps * 1e9 / find_weight_bytes(case)  # weights read once, in passes a second
    measure = case.result["measure"]
    runs = row.per_run(measure) or []
    if case.criterion.measure in ("ttft", "ttft_warm"):
        passes = 1 / min(runs)
    elif case.criterion.measure == "prefill":
        passes = max(runs) / measure["prompt_tokens"]
    elif case.criterion.measure == "against":
        passes = max(pair[0] for pair in measure["pairs"])
    else:
        passes = max(runs) / measure.get("slots", 1)
    tokens = [value for run in measure.get("runs", []) if isinstance(run, list) for value in run]
    if tokens and min(tokens) < SINGLE_TOKEN / maximum:
        return f"a token of {1e6 * min(tokens):.4g} µs, reading the weights takes {1e6 / maximum:.4g}"
    if passes > maximum:
        allowed = f"{device.memory_gbps:g} GB/s of memory allow {maximum:.4g}"
        return f"{passes:.4g} passes over the weights a second, {allowed}"
    return _check_operations(case, device, passes)


def _check_operations(case: SubmittedReport, device: DeviceRow, passes: float) -> str | None:
    """Reject more operations per second than the board's matrix units support: two for each active weight and
    token.
    """
    required, peak = case.criterion.model, find_peak_operations(device)
    assert required is not None
    tokens = {"ttft": case.evidence.workload.get("prompt_tokens", 1), "aggregate": case.criterion.slots}
    together = tokens.get(case.criterion.measure, 1)
    if case.criterion.measure == "prefill":
        together = case.result["measure"]["prompt_tokens"]
    needed = 2 * required.active * passes * check_number(together, "tokens of a pass")
    if peak and needed > peak:
        return f"{needed / 1e12:.4g} tera-operations a second, {device.name} has {peak / 1e12:.4g}"
    return None
