"""What the words that a fault left are worth: named, located, detected, missed or misleading.

Only failing lines count: lines of a command that failed, without passed results, progress, skips, and without what
the same command prints on the unmodified tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fault_row import Fault
from fault_walk import CommandOutput

SCORES = ("named", "located", "detected", "missed", "misleading")
NOT_PLANTED = "not planted"  # the corpus is behind the code
REFUSED = "refused"  # the row's words are those of a healthy run, so finding them proves nothing
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
# What a line of a probe or a hang report accuses. There, "the kernel" is Linux.
BLAMED = (
    (r"\bdoorbell", {"driver", "runtime"}),
    (r"\b(?:firmware|hardware|board|cooler|riser|power cable)\b", set[str]()),
    (r"\bpackets?\b", {"packets", "runtime", "driver"}),
    (r"\b(?:queue|EOP|wptr|rptr|ring|request|struct|ioctl)\b", {"driver", "packets", "runtime"}),
    (r"\b(?:coheren|cache|HDP|write.?back|mapping|mapped|page|fault)", {"driver", "packets", "runtime", "kernel"}),
    (r"\b(?:shader|wave|code object|LDS)", {"kernel", "runtime", "packets"}),
)
_SUSPICION = re.compile(r"^suspect\s+(.*)$", re.MULTILINE)
_BLAME = re.compile(r"^(?:\s+(?:cause|advice)\s+|.*\bnot reached within [\d.]+ s: )(.*)$", re.MULTILINE)
_FIRST_BAD = re.compile(r"^first bad\s+((?!.*rules of its san).*\bnode (?!tokenizer|draws).*)$", re.MULTILINE)
_UNCOUNTED = re.compile(
    r"\s(?:pass|skip)\s|\bpass$|^(?:progress|device|kernel|firmware|tier|shortcut|reference|pass|PASS)\s"
)
_VARYING = re.compile(r"0x[0-9a-f]+|\d[\d.e+-]*")


@dataclass(frozen=True, slots=True)
class FaultScore:
    score: str
    why: str  # for what is not named: what was not found, or what was accused


def list_failing_lines(outputs: Sequence[CommandOutput], healthy: str = "") -> list[str]:
    """Return the lines that can count as a finding. `healthy`: the output of the same commands on the unmodified
    tree; its lines do not count, whatever their numbers.
    """
    known = {_VARYING.sub("#", line.strip()) for line in healthy.splitlines()}
    return [
        line
        for item in outputs
        if item.exit not in (0, NOTHING_RAN)
        for line in item.text.splitlines()
        if not _UNCOUNTED.search(line) and _VARYING.sub("#", line.strip()) not in known
    ]


def is_matched_by_healthy_run(fault: Fault, healthy: str) -> bool:
    """Return whether a healthy run already contains all words that name the fault."""
    return all(re.search(regex, healthy) for regex in fault.named)


def score_output(fault: Fault, outputs: Sequence[CommandOutput], healthy: str = "") -> FaultScore:
    if is_matched_by_healthy_run(fault, healthy):
        return FaultScore(REFUSED, f"a healthy run matches {' and '.join(fault.named)}")
    text = "\n".join(list_failing_lines(outputs, healthy))
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
    """Return the innocent parts that `suspect`, `cause`, `advice`, `first bad` and hang lines accuse. A line that
    also names the guilty part is just.
    """
    for regex in fault.innocent:
        if match := re.search(regex, text):
            yield match[0]
    for line in _SUSPICION.findall(text):
        what = line.rpartition("suspect ")[2]  # behind what was seen
        if not is_just(fault, what, ACCUSED):
            yield f"suspect {what}"
    for line in _BLAME.findall(text):
        if not is_just(fault, line, BLAMED):
            yield f"cause {line}"
    places = _FIRST_BAD.findall(text)  # nodes, one for each pair of tiers: just if one of them is
    if places and not any(re.search(regex, line) for line in places for regex in (*fault.place, *fault.named)):
        yield f"first bad {places[0]}"


def is_just(fault: Fault, line: str, table: Sequence[tuple[str, set[str]]]) -> bool:
    """Return whether an accusation names nothing of the table, or something that the guilty part may be."""
    just = [fault.guilty in fair for regex, fair in table if re.search(regex, line)]
    return not just or any(just)
