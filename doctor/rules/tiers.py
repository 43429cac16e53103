"""What the driver answered when a tier was asked for (ioctl.json), where nothing else says why it refuses."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.rule import T1, DoctorRule, Seen


def _refused(machine: InspectedMachine) -> Iterator[Seen]:
    """Only t1: whether t2 is offered is a setting, and has notes of its own."""
    for gpu in machine.wanted:
        answer = gpu.answers.get(T1)
        if answer and not answer[0]:
            yield Seen(f"t1 refuses {gpu.title}: {answer[1]}", (f"ioctl.json: {answer[1]}",), gpu.address)


RULES = (
    DoctorRule(
        "tier.refused",
        "broken",
        "the driver refuses a tier",
        "what it answered is all there is to know: nothing read before explains it",
        "zinc-rt devices; zinc-rt pm4-test -k P01-P10 goes through it call by call",
        (T1,),
        _refused,
    ),
)
