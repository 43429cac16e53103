"""Time one call of a kernel at the sizes of real models, with its bytes and operations.

A time covers a submission until the host observes its end, so the time of a short kernel is mostly overhead. On
the simulated device it is the simulator's time, and no rate is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from statistics import quantiles
from typing import Any

from zinc_rt.ir.op import OPS, WMMA_ORDERINGS, Op
from zinc_rt.kernels.cases import Case
from zinc_rt.mem.residency import STACKED
from zinc_rt.validate.kernel_test.bench import CaseBench
from zinc_rt.validate.kernel_test.select import PlannedCase, build_skeleton
from zinc_rt.validate.kernel_test.side import Side

WARM_UP, CALLS = 2, 20
SIMULATED_CALLS = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the median of `calls`, and the 10th and 90th percentile."""

    case: Case
    kernels: tuple[str, ...]
    size_bytes: int
    flops: int
    seconds: float
    low: float
    high: float
    calls: int
    simulated: bool
    memory_bytes_per_second: float = 0.0  # of the device, as specified; 0: unknown
    software: bool = False  # of a driver that computes on this machine's processor

    @property
    def bytes_per_second(self) -> float | None:
        return None if self.simulated else self.size_bytes / self.seconds

    @property
    def flops_per_second(self) -> float | None:
        return None if self.simulated or not self.flops else self.flops / self.seconds

    @property
    def share(self) -> float | None:
        """Return the share of the device's memory bandwidth."""
        rate = self.bytes_per_second
        return rate / self.memory_bytes_per_second if rate and self.memory_bytes_per_second else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "kernels": list(self.kernels),
            "seconds": self.seconds,
            "seconds_p10": self.low,
            "seconds_p90": self.high,
            "calls": self.calls,
            "bytes": self.size_bytes,
            "flops": self.flops,
            "bytes_per_second": self.bytes_per_second,
            "flops_per_second": self.flops_per_second,
            "share_of_bandwidth": self.share,
            "simulated": self.simulated,
            "software": self.software,
        }


def measure_timings(side: Side, chosen: Sequence[PlannedCase]) -> Iterator[Timing]:
    calls = SIMULATED_CALLS if side.simulated else CALLS
    with CaseBench(side.open) as bench:
        for plan in chosen:
            case = plan.case
            taken = bench.time_case(case, WARM_UP + calls)[WARM_UP:]
            cuts = quantiles(taken, n=10, method="inclusive") if len(taken) > 1 else taken * 9
            yield Timing(
                case,
                plan.kernels,
                count_touched_bytes(case),
                count_flops(case),
                cuts[4],
                cuts[0],
                cuts[8],
                calls,
                side.simulated,
                bench.backend.device.memory_bytes_per_second,
                bench.backend.device.software,
            )


def count_touched_bytes(case: Case) -> int:
    """Return the bytes of every operand and output, each counted once, weights in the file's format. For experts,
    count only the selected ones.
    """
    node = build_skeleton(case)
    total = sum(array.nbytes for array in node.operands.values())
    for name, weight in node.weights.items():
        chosen = min(case.dims.get("E", 1), case.dims.get("T", 1) * case.dims.get("k", 1))
        stacked = case.op in STACKED and len(weight.shape) == 3
        looked_up = case.op is Op.EMBED and name == "table"
        share = chosen / weight.shape[0] if stacked else case.dims["T"] / weight.shape[0] if looked_up else 1.0
        total += int(weight.nbytes * share)
    return total


def count_flops(case: Case) -> int:
    """Return the multiplications and additions of matrix products; 0 for other opcodes, which are limited by
    memory.
    """
    rows = case.dims.get("L" if case.op is Op.LM_HEAD else "T", 1)
    if case.op in STACKED:
        rows *= case.dims["k"]
    matrices = (
        case.shape(port)[-2:]
        for port in OPS[case.op].inputs
        if port.kind == "weight" and len(port.shape) > 1 and port.name not in case.without
    )
    if case.op not in PRODUCTS:
        return 0
    return sum(2 * rows * prod(shape) for shape in matrices)


PRODUCTS = (
    Op.MATMUL,
    Op.LM_HEAD,
    Op.RMS_NORM_FUSED_QKV,
    Op.RMS_NORM_FUSED_MLP_GATE_UP,
    Op.MOE_GATE_UP,
    Op.MOE_DOWN_ACC,
    Op.MOE_GATE_TOPK,
    Op.SHARED_EXPERT,
    *WMMA_ORDERINGS,
)
