"""Predict tokens per second from a lowered graph and a device's specification: a roofline with the cost of
dispatches.

A token's time is the sum, over nodes, of the larger of its bytes at the memory's bandwidth and its instructions at
the SIMDs' rate, plus the cost of dispatches, barriers, the submission and the host. Unknown values are named
assumptions with a range (zinc_rt/host/devices.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.host.devices import DeviceRow
from zinc_rt.kernels.sets import code_of
from zinc_rt.perf.predict.devices import CASES, DeviceTable
from zinc_rt.perf.predict.token_work import ARCH, TokenWork

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TokenSeconds:
    """Seconds of one token, by cause."""

    memory: float
    issue: float  # not hidden by memory accesses
    dispatch: float
    barrier: float
    submit: float
    host: float
    readback: float

    @property
    def seconds(self) -> float:
        return sum(self.as_dict().values())

    @property
    def tokens_per_second(self) -> float:
        return 1 / self.seconds

    @property
    def bound(self) -> str:
        """Return the cause that takes most of the time."""
        parts = self.as_dict()
        return max(parts, key=parts.__getitem__)

    def as_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction. `cases` are pessimistic, likely, optimistic; `ceiling` is every byte once at the specified
    bandwidth.
    """

    device: DeviceRow
    cases: Mapping[str, TokenSeconds]
    ceiling: float
    notes: tuple[str, ...]

    @property
    def likely(self) -> TokenSeconds:
        return self.cases["likely"]


def predict(work: TokenWork, device: DeviceRow, table: DeviceTable) -> Prediction:
    """Predict greedy decode of one stream, as the engine runs it: the device selects the token and keeps its
    logits.
    """
    cases = {case: parts_of(work, device, table.case(case)) for case in CASES}
    moved = work.read_bytes + work.written_bytes
    return Prediction(device, cases, ceiling(moved, device.memory_gbps), tuple(_notes(work, device)))


def parts_of(
    work: TokenWork, device: DeviceRow, assumed: Mapping[str, float], *, reads_logits: bool = False
) -> TokenSeconds:
    """Return one token's time with these values of the assumptions. `reads_logits`: if the host read the logits
    as well.
    """
    memory_rate = device.memory_gbps * 1e9 * assumed["read_efficiency"]
    issue_rate = device.issues_a_second * assumed["issue_share"]
    readback_bytes = work.readback_bytes + work.logits_bytes * reads_logits
    memory = issue = 0.0
    for node in work.nodes:
        by_memory = (node.read_bytes + node.written_bytes) / memory_rate
        memory += by_memory
        issue += max(0.0, node.instructions / issue_rate - by_memory)
    return TokenSeconds(
        memory=memory,
        issue=issue,
        dispatch=work.dispatches * assumed["dispatch_us"] * 1e-6,
        barrier=work.barriers * assumed["barrier_us"] * 1e-6,
        submit=assumed["submit_us"] * 1e-6,
        host=assumed["host_us"] * 1e-6,
        readback=0.0 if device.unified_memory else readback_bytes / (assumed["bar_read_mbps"] * 1e6),
    )


def ceiling(bytes_a_token: float, gbps: float) -> float:
    """Return tok/s if a token costs only its bytes at `gbps` times 10^9 bytes per second."""
    return gbps * 1e9 / bytes_a_token


def _notes(work: TokenWork, device: DeviceRow) -> list[str]:
    notes = []
    if code_of(device.arch) != ARCH:
        notes.append(f"{device.arch} has no kernels here yet: dispatches and instructions are {ARCH}'s")
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
    ("M4", "loops that hide every instruction behind memory", "issue"),
    ("M5", "one persistent kernel: no dispatch, no submission, no host in the loop", "persistent"),
)


def worth(work: TokenWork, device: DeviceRow, table: DeviceTable) -> list[ChangeWorth]:
    """Return the value of each milestone's structural change for one stream, in tok/s with likely assumptions,
    starting from one submission per dispatch and reading the logits of every token. Barriers remain: a persistent
    kernel must wait for its own results too.
    """
    assumed = table.case("likely")
    parts = parts_of(work, device, assumed, reads_logits=True).as_dict()
    parts["submit"] *= work.dispatches
    options = []
    for milestone, change, what in CHANGES:
        before = 1 / sum(parts.values())
        if what == "submit_each":
            parts["submit"] /= work.dispatches
        elif what == "readback":
            parts["readback"] = parts_of(work, device, assumed).readback
        elif what == "issue":
            parts["issue"] = 0.0
        else:
            parts |= {"dispatch": 0.0, "submit": 0.0, "host": 0.0}
        options.append(ChangeWorth(milestone, change, before, 1 / sum(parts.values())))
    return options
