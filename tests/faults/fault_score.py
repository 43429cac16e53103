"""What the words that a fault left are worth: named, located, detected, missed or misleading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fault_row import Fault
from fault_walk import CommandOutput

SCORES = ("named", "located", "detected", "missed", "misleading")
NOT_PLANTED = "not planted"  # the corpus is behind the code
NOTHING_RAN = 77
TRACEBACK = "Traceback (most recent call last)"
# What a line of suspicion accuses, and for which guilt that is just.
ACCUSED = (
    (r"\boracle\b", {"oracle"}),
    (r"\bthe log\b", {"harness"}),
    (r"\bruntime\b", {"runtime"}),
    (r"\bgolden\b", {"golden"}),
    (r"\btokenizer\b", {"runtime"}),
    (r"\bscheduler\b", {"runtime"}),
    (r"\bsampler\b", {"runtime", "oracle"}),
    (r"\bmodel file\b", {"file"}),
    (r"\bmodel code\b", {"model code"}),
    (r"\bkernels?\b", {"kernel"}),
    (r"\bpackets?\b", {"packets", "runtime", "driver"}),
    (r"\b(?:t1|t2|t_cpu_native)\b", {"kernel", "runtime", "packets", "driver"}),
    (r"\b(?:decode|state)\b", {"runtime", "kernel", "model code"}),
    (r"\b(?:KV cache|keys and values|positions|aliasing|barrier|near tie)\b", {"runtime", "kernel"}),
    (r"\bwhat they share\b", {"kernel", "runtime", "packets", "driver"}),
)
_SUSPICION = re.compile(r"^suspect\s+(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FaultScore:
    score: str
    why: str  # for what is not named: what was not found, or what was accused


def score_output(fault: Fault, outputs: Sequence[CommandOutput]) -> FaultScore:
    text = "\n".join(item.text for item in outputs)
    if not any(item.exit not in (0, NOTHING_RAN) for item in outputs):
        return FaultScore("missed", f"exit {outputs[0].exit}: nothing failed")
    if wrong := next(accused_parts(fault, text), ""):
        return FaultScore("misleading", wrong)
    if TRACEBACK in text:
        return FaultScore("detected", "a traceback")
    if lacking := [regex for regex in fault.place if not re.search(regex, text)]:
        return FaultScore("detected", f"no word of {lacking[0]}")
    if lacking := [regex for regex in fault.named if not re.search(regex, text)]:
        return FaultScore("located", f"no word of {lacking[0]}")
    return FaultScore("named", "")


def accused_parts(fault: Fault, text: str) -> Iterator[str]:
    for regex in fault.innocent:
        if match := re.search(regex, text):
            yield match[0]
    for line in _SUSPICION.findall(text):
        what = line.rpartition("suspect ")[2]  # behind what was seen
        just = [fault.guilty in fair for regex, fair in ACCUSED if re.search(regex, what)]
        if just and not any(just):
            yield f"suspect {what}"
