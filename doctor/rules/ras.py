"""Rules about memory and logic errors that the card counts."""

from __future__ import annotations

from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation, check_each_gpu, make_event_rule


def _check_uncorrectable_errors(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    bad = [f"{block} {ue}" for block, ue, _ in gpu.ras if ue]
    return (
        Observation(
            f"{gpu.title} counts uncorrectable errors: {', '.join(bad)}", _format_lines(bad, "ue"), gpu.address
        )
        if bad
        else None
    )


def _check_correctable_errors(gpu: InspectedGpu, machine: InspectedMachine) -> Observation | None:
    bad = [f"{block} {ce}" for block, _, ce in gpu.ras if ce]
    return (
        Observation(
            f"{gpu.title} counts corrected errors: {', '.join(bad)}", _format_lines(bad, "ce"), gpu.address
        )
        if bad
        else None
    )


def _format_lines(bad: list[str], kind: str) -> tuple[str, ...]:
    return tuple(f"ras/{item.split()[0]}_err_count: {kind} {item.split()[1]}" for item in bad)


_WHY = "results may be wrong, and the driver resets the GPU when a poisoned value is used"
_NEXT = "power-cycle the machine, then zinc-rt mem-test; if errors return, the card is defective: return it"
RULES = (
    DoctorRule(
        "ras.uncorrectable",
        "broken",
        "the card reports uncorrectable memory errors",
        _WHY,
        _NEXT,
        BOTH,
        make_event_rule("ras-fatal"),
    ),
    DoctorRule(
        "ras.counted",
        "broken",
        "the card counted uncorrectable errors",
        _WHY,
        _NEXT,
        BOTH,
        check_each_gpu(_check_uncorrectable_errors),
    ),
    DoctorRule(
        "ras.corrected",
        "warning",
        "the card corrected memory errors",
        "ECC repaired them; an increasing number indicates more errors",
        "note the number, run zinc-rt mem-test, look again",
        BOTH,
        make_event_rule("ras-corrected"),
    ),
    DoctorRule(
        "ras.corrected-count",
        "warning",
        "the card counted corrected errors",
        "ECC repaired them; an increasing number indicates more errors",
        "note the number, run zinc-rt mem-test, look again",
        BOTH,
        check_each_gpu(_check_correctable_errors),
    ),
)
