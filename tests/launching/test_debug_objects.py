"""The debugger on code objects of clang, of both wave sizes: results and findings are those of launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from code_objects import code_object

import zinc_rt
from zinc_rt.launching.debugging.session import DebugSession
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.values import inout, out

CASES: dict[str, dict[str, Any]] = {
    "saxpy": {
        "grid": 2,
        "block": 100,
        "args": {
            "y": inout(np.ones(180, np.float32)),
            "x": np.arange(180, dtype=np.float32),
            "a": np.float32(3),
            "n": np.int32(190),
        },
    },
    "gather": {"grid": 2, "block": 64, "args": {"out": out(128, np.int32), "step": np.int32(3)}},
    "reverse": {"grid": 2, "block": 64, "args": {"out": out(128, np.int32), "in": np.arange(128, dtype=np.int32)}},
}
OUTPUT = {"saxpy": "y", "gather": "out", "reverse": "out"}


def sorted_rules(findings: tuple[FindingGroup, ...]) -> list[tuple[str, str, str]]:
    return sorted((finding.rule, finding.access, finding.instruction) for finding in findings)


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("kernel", CASES)
@pytest.mark.parametrize("wave", [32, 64])
def test_outputs_and_findings_are_those_of_launch(kernel: str, wave: int) -> None:
    case, code = CASES[kernel], code_object(f"gfx1201_{wave}")
    seen: list[tuple[list[Any], list[tuple[str, str, str]]]] = []

    def run_session(session: DebugSession) -> None:
        size = case["args"][OUTPUT[kernel]].array.size
        for _ in range(2):
            stop = session.go_on()
            seen.append(
                (
                    session.make_reader().read(f"{OUTPUT[kernel]}[0..{size}]").to_plain(),
                    sorted_rules(stop.findings),
                )
            )
            session.step_back()

    zinc_rt.launch(code, kernel, device="sim", debugger=DebugSession(run_session), **case)
    result = zinc_rt.launch(code, kernel, device="sim", **case)
    assert seen == [(result.outputs[OUTPUT[kernel]].tolist(), sorted_rules(result.findings))] * 2
    assert bool(result.findings) == (kernel == "saxpy"), "it reads beyond the end"


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("options", [{"coherence": "caches"}, {"reorder": 3}, {"sanitizer": "off"}], ids=str)
def test_options_of_launch(options: dict[str, Any]) -> None:
    steps: list[int] = []
    values: list[Any] = []

    def run_session(session: DebugSession) -> None:
        steps.append(session.go_on().step)
        session.step_back(5)
        values.append(session.make_reader().read("v0").to_plain())
        session.restart()
        steps.append(session.go_on().step)

    args = CASES["reverse"]
    zinc_rt.launch(
        code_object("gfx1201_64"), "reverse", device="sim", debugger=DebugSession(run_session), **options, **args
    )
    assert steps[0] == steps[1] > 10 and len(values[0]) == 64


def test_execution_masks_of_64_lanes() -> None:
    seen: list[tuple[int, list[bool]]] = []

    def run_session(session: DebugSession) -> None:
        session.add_breakpoint("", session.code.find_ends, wave=1)
        session.go_on()
        assert session.wave is not None
        active = session.make_reader().read("v0").active
        assert active is not None
        seen.append((session.wave.exec.bit_length(), active.tolist()))
        seen.append((int(session.make_reader().read("exec").values[0]).bit_length(), []))

    zinc_rt.launch(
        code_object("gfx1201_64"), "saxpy", device="sim", debugger=DebugSession(run_session), **CASES["saxpy"]
    )
    assert seen[0][0] <= 36 and len(seen[0][1]) == 64 and seen[1][0] == seen[0][0]
