"""Findings by rule, kernel and instruction; what has no place in code by its sentence without its numbers."""

from __future__ import annotations

from io import StringIO

from zinc_rt.cli.sim import SHOWN_OF_RULE, show
from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.launching.finding_groups import count_rules, group_findings
from zinc_rt.sim.interfaces import CodePlace, DeviceFinding


def make_finding(
    rule: str, sentence: str, pc: int | None = None, *, error: bool = False, count: int = 1
) -> DeviceFinding:
    load = "global_load_b32 v0, v1, s[0:1]"
    location = None if pc is None else CodePlace("scale", pc, load, (0, 0, 0), 1, count=count)
    return DeviceFinding(Severity.ERROR if error else Severity.FINDING, rule, 0, 0, sentence, place=location)


def test_findings_are_grouped_by_rule_kernel_and_instruction() -> None:
    loads = [
        make_finding("out-of-bounds", f"scale: out-of-bounds at pc 0x10 `…`, wave {wave}", 0x10)
        for wave in range(4)
    ]
    more = make_finding("out-of-bounds", "scale: out-of-bounds 60 more times at pc 0x10 `…`", 0x10, count=60)
    other = make_finding("out-of-bounds", "scale: out-of-bounds at pc 0x18 `…`", 0x18)
    groups = group_findings([*loads, other, more])
    assert [(group.pc, group.count) for group in groups] == [(0x10, 64), (0x18, 1)]
    assert groups[0].first == loads[0].sentence and groups[0].kernel == "scale"


def test_hazards_differing_only_in_numbers_are_grouped() -> None:
    hazards = [make_finding("missing-barrier", f"dispatch {n} reads 0x{n * 64:x} of out") for n in range(900)]
    stops = make_finding("missing-barrier", "DMA_DATA 3 reads 0x40 of out", error=True)
    groups = group_findings([*hazards, stops])
    assert [(group.count, group.error) for group in groups] == [(900, False), (1, True)]
    assert groups[0].pc is None and groups[0].first == hazards[0].sentence


def test_empty_findings_give_no_groups() -> None:
    assert group_findings([]) == ()


def test_repeated_findings_of_one_rule_are_truncated() -> None:
    result = group_findings(
        [make_finding("sgpr-read", f"sgpr-read at pc {pc:#x}", pc) for pc in range(0, 2000, 4) for _ in range(3)]
    )
    out = StringIO()
    show(result + group_findings([make_finding("missing-barrier", "dispatch 3")]), out)
    lines = out.getvalue().splitlines()
    assert len(lines) == SHOWN_OF_RULE + 2
    assert lines[0].startswith("zinc-rt sim: 3 x sgpr-read: sgpr-read at pc 0x0")
    assert lines[-1] == f"zinc-rt sim: {3 * 492} x sgpr-read more, in 492 other places; --json F has them all"
    assert count_rules(result) == {"sgpr-read": 1500}
