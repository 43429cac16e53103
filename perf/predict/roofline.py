"""Predict the time of a step: the costs of its dispatches (zinc_rt/cost/dispatch.py), one after the other, plus
the submission, the host and the host's reads. Unknown values are named assumptions with a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from zinc_rt.cost.dispatch import StepBounds, compute_bounds, compute_cost
from zinc_rt.host.devices import DeviceRow
from zinc_rt.kernels.sets import find_code_chip
from zinc_rt.perf.predict.ceilings import dispatch_counts
from zinc_rt.perf.predict.devices import CASES, DeviceTable
from zinc_rt.perf.predict.token_work import TokenWork, choose_counted_arch

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TokenSeconds:
    """Seconds of one step by cause: dispatches by the limit that they run at, their packets and barriers, the
    submission, the host and its reads.
    """

    memory: float
    cache: float
    latency: float
    tail: float
    issue: float
    flops: float
    matrix: float
    lds: float
    dispatch: float
    barrier: float
    submit: float
    host: float
    readback: float

    @property
    def seconds(self) -> float:
        return sum(self.as_dict().values())

    @property
    def bound(self) -> str:
        """Return the cause that takes most of the time."""
        parts = self.as_dict()
        return max(parts, key=parts.__getitem__)

    def as_dict(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction for a step of `tokens`. `cases` are pessimistic, likely, optimistic."""

    device: DeviceRow
    tokens: int
    cases: Mapping[str, TokenSeconds]
    bounds: StepBounds
    notes: tuple[str, ...]

    @property
    def likely(self) -> TokenSeconds:
        return self.cases["likely"]

    @property
    def ceiling(self) -> float:
        """Return tok/s if a step costs only its bytes, each once at the specified bandwidth."""
        return self.tokens / self.bounds.bytes

    @property
    def flops_ceiling(self) -> float:
        """Return tok/s if a step costs only its operations at the specified rates."""
        return self.tokens / self.bounds.flops

    def case_speed(self, case: str) -> float:
        """Return tok/s of the step."""
        return self.tokens / self.cases[case].seconds


def predict(work: TokenWork, device: DeviceRow, table: DeviceTable) -> Prediction:
    """Predict a greedy step, as run by the engine: the device selects the token and keeps the logits."""
    cases = {case: compute_parts(work, device, table.case(case)) for case in CASES}
    minimum = compute_bounds([dispatch_counts(item) for item in work.each], device)
    return Prediction(device, work.tokens, cases, minimum, tuple(_make_notes(work, device)))


def compute_parts(
    work: TokenWork, device: DeviceRow, assumed: Mapping[str, float], *, reads_logits: bool = False
) -> TokenSeconds:
    """Return a step's time with these values of the assumptions. `reads_logits`: if the host read the logits
    as well.
    """
    readback_bytes = work.readback_bytes + work.logits_bytes * reads_logits
    parts = dict.fromkeys((field.name for field in fields(TokenSeconds)), 0.0)
    for item in work.each:
        cost = compute_cost(dispatch_counts(item), device, assumed)
        parts[cost.running_limit] += cost.running
        parts["dispatch"] += cost.dispatch
        parts["barrier"] += cost.barrier
    parts["submit"] = assumed["submit_us"] * 1e-6
    parts["host"] = assumed["host_us"] * 1e-6
    if not device.unified_memory:
        parts["readback"] = readback_bytes / (assumed["bar_read_mbps"] * 1e6)
    return TokenSeconds(**parts)


def _make_notes(work: TokenWork, device: DeviceRow) -> list[str]:
    notes = []
    if choose_counted_arch(device.arch) != work.arch:
        notes.append(f"dispatches and instructions are those of {work.arch}'s kernels, not of {device.arch}'s")
    elif find_code_chip(device.arch) != work.arch:
        notes.append(f"{device.arch} has no kernels here yet: dispatches and instructions are {work.arch}'s")
    if work.read_bytes < device.last_level_cache_mib * MIB:
        notes.append("all it reads fits the last-level cache, which may serve it faster than memory")
    if work.read_bytes > device.memory_gb * 1e9:
        notes.append("a token reads more than the device holds: this model does not fit")
    return notes


@dataclass(frozen=True, slots=True)
class ChangeWorth:
    """A structural change, with a token's speed before and after."""

    milestone: str
    change: str
    before: float
    after: float


CHANGES = (
    ("M1", "one submission replayed, not one for each dispatch", "submit_each"),
    ("M2", "the token chosen on the device, its logits left there", "readback"),
    ("M4", "every dispatch at the memory's bandwidth", "running"),
    ("M5", "one persistent kernel: no dispatch, no submission, no host in the loop", "persistent"),
)


def value_changes(work: TokenWork, device: DeviceRow, table: DeviceTable) -> list[ChangeWorth]:
    """Return the value of each milestone's structural change for one stream, in tok/s with likely assumptions,
    starting from one submission per dispatch and reading the logits of every token. Barriers remain, because a
    persistent kernel must wait for its own results too.
    """
    assumed = table.case("likely")
    parts = compute_parts(work, device, assumed, reads_logits=True).as_dict()
    parts["submit"] *= work.dispatches
    options = []
    for milestone, change, what in CHANGES:
        before = 1 / sum(parts.values())
        if what == "submit_each":
            parts["submit"] /= work.dispatches
        elif what == "readback":
            parts["readback"] = compute_parts(work, device, assumed).readback
        elif what == "running":
            parts |= dict.fromkeys(("cache", "latency", "tail", "issue", "flops", "matrix", "lds"), 0.0)
            parts["memory"] = sum(
                compute_cost(dispatch_counts(item), device, assumed).memory for item in work.each
            )
        else:
            parts |= {"dispatch": 0.0, "submit": 0.0, "host": 0.0}
        options.append(ChangeWorth(milestone, change, before, 1 / sum(parts.values())))
    return options
