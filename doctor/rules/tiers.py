"""Rules about the driver's reply when a tier was opened (ioctl.json), if no other finding explains the
rejection."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.rule import T1, DoctorRule, Observation


def _check_refused_tier(machine: InspectedMachine) -> Iterator[Observation]:
    """Only for t1: the availability of t2 is a setting, which has separate notes."""
    for gpu in machine.is_relevant:
        answer = gpu.answers.get(T1)
        if answer and not answer[0]:
            yield Observation(f"t1 refuses {gpu.title}: {answer[1]}", (f"ioctl.json: {answer[1]}",), gpu.address)


RULES = (
    DoctorRule(
        "tier.refused",
        "broken",
        "the driver rejects a tier",
        "the reply is the only information: no other finding explains it",
        "zinc-rt devices; zinc-rt pm4-test --hazard 0 -k P01-P10 tests the calls one by one",
        (T1,),
        _check_refused_tier,
    ),
)
