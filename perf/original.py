"""The original design's own arithmetic, done again: its ceiling, its budget, and where its figures disagree.

Every number here is the original's unless it says otherwise; "§n" is its section.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.perf.gate.milestones import milestones
from zinc_rt.perf.predict.devices import DeviceRow
from zinc_rt.perf.predict.roofline import ceiling

GIB_IN_GB = (1 << 30) / 1e9
BANDWIDTH_GBPS = 576  # §3.1, "bw_gbps"
WEIGHT_GIB = 1.575  # §3.1, divided by as it stands; the line beside it says GiB
CEILING = 365  # §1 and §3.1
TODAY = 117  # §1
BUDGET_MS = {"GPU compute": 7.8, "CPU embed + record": 0.6, "submit + fence wait": 0.5}  # §2.1
BUDGET_SUM_MS = 8.9
WAITS, WAIT_US = 49, 33  # §1
DISPATCHES, PACKET_NS = 1500, 10  # §6.1
UTILISATION = {117: 31, 80: 22, 145: 39, 195: 52, 240: 65}  # §1, percent by tok/s

# What §25's milestones change for one stream, put on the budget above. These three are this project's assumptions.
DISPATCH_US = 1.0
FUSED_DISPATCHES = 1000  # M2: four fused opcodes of Appendix B
NATIVE_EFFICIENCY = 0.65  # M4: share of bandwidth inside a kernel
MEGAKERNEL_BARRIERS, BARRIER_US = 200, 1.0  # M5: it still waits for its own results


@dataclass(frozen=True, slots=True)
class Finding:
    """Where the original's arithmetic does not hold. `kind`: units, sum or claim."""

    kind: str
    section: str
    text: str


def own_ceiling() -> float:
    """tok/s from its own bytes and bandwidth, units as it mixed them: 10^9 bytes for both."""
    return ceiling(WEIGHT_GIB * 1e9, BANDWIDTH_GBPS)


def findings(device: DeviceRow) -> list[Finding]:
    """What is wrong in it, each computed here. `device`: the row of the card it speaks of."""
    true_bytes = WEIGHT_GIB * (1 << 30)
    right = ceiling(true_bytes, BANDWIDTH_GBPS)
    specified = ceiling(true_bytes, device.memory_gbps)
    total = sum(BUDGET_MS.values())
    gpu_only = 1e3 / BUDGET_MS["GPU compute"]
    found = [
        Finding(
            "units",
            "§3.1",
            f"{BANDWIDTH_GBPS} GB/s is divided by {WEIGHT_GIB} GiB as if it were GB: {own_ceiling():.0f} tok/s. "
            f"{WEIGHT_GIB} GiB are {WEIGHT_GIB * GIB_IN_GB:.3f} GB, which gives {right:.0f}",
        ),
        Finding(
            "units",
            "§3.1",
            f"{BANDWIDTH_GBPS} GB/s is not the card's: {device.bus_bits} bits at {device.gbps_a_pin:g} Gb/s are "
            f"{device.memory_gbps:g} GB/s; with both mended the ceiling is {specified:.0f} tok/s",
        ),
        Finding(
            "sum",
            "§2.1",
            f"its budget of {total:g} ms is {1e3 / total:.0f} tok/s, {TODAY} tok/s are {1e3 / TODAY:.2f} ms",
        ),
        Finding(
            "sum",
            "§1, §2.1",
            f"{WAITS} waits of {WAIT_US} µs are {WAITS * WAIT_US / 1e3:.1f} ms, its budget has "
            f"{BUDGET_MS['submit + fence wait']} ms for all of them",
        ),
        Finding(
            "claim",
            "§2.1, §25 M1",
            f"without any host time its {BUDGET_MS['GPU compute']} ms of GPU work are {gpu_only:.0f} tok/s: one "
            "submission a token alone cannot reach M1's 140",
        ),
        Finding(
            "claim",
            "§1",
            f"{4 * CEILING} tok/s as the ceiling of four slots is four times that of one: it lets four tokens "
            "share every byte, which holds for dense weights and not for experts that differ from slot to slot",
        ),
    ]
    for speed, percent in UTILISATION.items():
        share = 100 * speed / own_ceiling()
        if abs(share - percent) > 0.75:
            mended = 100 * speed / specified
            found.append(
                Finding(
                    "sum",
                    "§1",
                    f"{speed} tok/s as {percent} % of bandwidth: by its own ceiling {share:.1f} %, by "
                    f"{device.memory_gbps:g} GB/s and GiB {mended:.1f} %",
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One stream's decode after a milestone's structural change, beside what the original asks of it."""

    milestone: str
    change: str
    milliseconds: float
    target: float | None

    @property
    def tokens_per_second(self) -> float:
        return 1e3 / self.milliseconds


def steps() -> list[Step]:
    """Its budget, changed milestone by milestone. What no structural change explains stays as it was."""
    bytes_ms = 1e3 / own_ceiling()
    gpu, host = BUDGET_MS["GPU compute"], BUDGET_MS["CPU embed + record"] + BUDGET_MS["submit + fence wait"]
    efficiency = bytes_ms / (gpu - DISPATCHES * DISPATCH_US / 1e3)
    ring = DISPATCHES * PACKET_NS / 1e6
    one_wait = WAIT_US / 1e3
    fused = bytes_ms / efficiency + FUSED_DISPATCHES * DISPATCH_US / 1e3
    native = bytes_ms / NATIVE_EFFICIENCY + FUSED_DISPATCHES * DISPATCH_US / 1e3
    rows = [
        ("today", "Vulkan, its budget of §2.1", gpu + host),
        ("M1", f"one submission ({one_wait * 1e3:.0f} µs), {DISPATCHES} packets a token", gpu + one_wait + ring),
        ("M2", f"fused opcodes: {FUSED_DISPATCHES} dispatches", fused + one_wait + ring),
        ("M3", "nothing rewritten a token: a resident graph is replayed", fused + one_wait),
        ("M4", f"native kernels at {NATIVE_EFFICIENCY:.0%} of bandwidth", native + one_wait),
        (
            "M5",
            f"one persistent kernel, {MEGAKERNEL_BARRIERS} barriers inside",
            bytes_ms / NATIVE_EFFICIENCY + MEGAKERNEL_BARRIERS * BARRIER_US / 1e3,
        ),
    ]
    targets = {
        each.milestone: each.bound.limit for m in milestones() for each in m.criteria if each.id == "decode"
    }
    return [Step(name, change, ms, targets.get(name)) for name, change, ms in rows]
