"""Check the model of a report: pinned by its bytes, of the class the milestone names, and not faster than
possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zinc_rt.host.errors import UsageError
from zinc_rt.model.identity import bits_a_weight
from zinc_rt.perf.gate.figures import FIGURES
from zinc_rt.perf.gate.milestones import WantedModel
from zinc_rt.perf.gate.offered import OfferedReport, number
from zinc_rt.perf.predict.devices import table

TENSORS_OF_FILE = 0.95  # minimum fraction of weights in a file; the rest is its header and vocabulary
CACHED = 1.10  # maximum factor by which caches raise the memory's bandwidth
SHAPE = ("architecture", "size_bytes", "layers", "width", "vocab", "parameters", "weights")


def digest(case: OfferedReport) -> str | None:
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


def model(case: OfferedReport) -> str | None:
    """Check the class of the model by shape: size, quantisation, layers, width, vocabulary."""
    required = case.criterion.model
    assert required is not None
    return other_class(case.evidence.report.get("model", {}), required)


def other_class(model: Mapping[str, Any], required: WantedModel) -> str | None:
    """Return why a recorded model is not of this class, or None if it is."""
    if missing := [name for name in SHAPE if name not in model]:
        return f"the report does not say the model's {', '.join(missing)}"
    if model["architecture"] not in required.architectures:
        return f"another model: architecture {model['architecture']}, expected {required.name}"
    for name, right in (("layers", required.layers), ("width", required.width), ("vocab", required.vocab)):
        if right and number(model[name], name) != right:
            return f"another model: {name} {model[name]}, {required.name} has {right}"
    parameters, weights = number(model["parameters"], "parameters"), model["weights"]
    low, high = required.parameters
    if not low <= parameters <= high:
        return f"another model: {parameters:,.0f} weights, {required.name} has {low:,.0f} to {high:,.0f}"
    if not weights or any(number(size, f"weights in {name}") <= 0 for name, size in weights.items()):
        return "the report does not say how its weights are quantised"
    bits, (low, high) = bits_a_weight(dict(weights), int(parameters)), required.bits_a_weight
    if not low <= bits <= high:
        return f"another quantisation: {bits:.2f} bits a weight, expected {low:g} to {high:g} for {required.name}"
    tensors, size = sum(weights.values()), number(model["size_bytes"], "size_bytes")
    if not TENSORS_OF_FILE * size <= tensors <= size:
        return f"its weights are {tensors:,} bytes and its file {size:,.0f}: one of the two is wrong"
    return None


def ceiling(case: OfferedReport) -> str | None:
    """Reject a speed beyond the card's memory bandwidth: invalid seconds, or another card's."""
    required, row = case.criterion.model, FIGURES.get(case.criterion.measure)
    assert required is not None
    if row is None or case.criterion.measure == "power":
        return None
    try:
        gbps = table().device(_row_of(case.criterion.hardware["device"])).memory_gbps
    except UsageError:
        return None  # the bandwidth of this card's memory is not in the table
    reported = case.evidence.report.get("model", {})
    bits = bits_a_weight(dict(reported.get("weights", {})), int(reported.get("parameters", 0)))
    bits = max(required.bits_a_weight[0], bits)
    maximum = CACHED * gbps * 1e9 / (required.active * bits / 8)  # weights read once, in passes a second
    measure = case.result["measure"]
    runs = row.per_run(measure) or []
    if case.criterion.measure == "ttft":
        passes = 1 / min(runs)
    elif case.criterion.measure == "prefill":
        passes = max(runs) / measure["prompt_tokens"]
    elif case.criterion.measure == "against":
        passes = max(pair[0] for pair in measure["pairs"])
    else:
        passes = max(runs) / measure.get("slots", 1)
    if passes > maximum:
        return f"{passes:.4g} passes over the weights a second, {gbps:g} GB/s of memory allow {maximum:.4g}"
    return None


def _row_of(device: str) -> str:
    """Return devices.yaml's key for a milestone's device. Raise UsageError."""
    return next((key for key in table().devices if key.lower() == device.lower()), device)
