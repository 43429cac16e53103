"""zinc-rt selftest: it passes here, and a broken checker fails it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.perf.gate.milestones import CriterionBound
from zinc_rt.probes.injected import FAULTS
from zinc_rt.trace.recorder import Recorder
from zinc_rt.validate.selftest import checks, command
from zinc_rt.validate.selftest.checks import GROUPS, SelfCheck, list_checks, run_checks

Capture = pytest.CaptureFixture[str]


def find_problems(group: str, name: str = "") -> dict[str, str]:
    selected = [check for check in list_checks() if check.group == group and name in check.name]
    return {check.name: problem for check, problem in run_checks(selected, 1) if problem}


def test_every_group_has_checks_and_names_are_unique() -> None:
    ids = [check.id for check in list_checks()]
    assert len(set(ids)) == len(ids)
    assert {check.group for check in list_checks()} == set(GROUPS)


def test_numbers_and_recorder_pass(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "report.json"
    assert command.main(["--only", "numbers", "--only", "recorder", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert {result["kind"] for result in report["results"]} == {"numbers", "recorder"}
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS  22 checks of checkers, 0 failed")


@pytest.mark.rest
def test_rules_pass_in_both_directions() -> None:
    assert find_problems("doctor") == {}


def always(self: object, value: float) -> bool:
    return True


def add_one(whole: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda *operands: whole(*operands) + 1


def test_broken_arithmetic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CriterionBound, "is_satisfied", always)
    monkeypatch.setattr(checks, "compute_ulp_distance", add_one(checks.compute_ulp_distance))
    assert set(find_problems("numbers")) == {
        "gates at their limit",
        "gates without a number",
        "ulp distance of neighbours",
        "ulp distance across zero",
    }


def test_recorder_that_loses_writes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Recorder._split_write

    def blank_tokens(self: Recorder, *where: Any) -> Any:
        parts, pieces = whole(self, *where)
        at = [part.buffer for part in parts].index("request[slot].token_id")
        begin = sum(part.size_bytes for part in parts[:at])
        changed = bytearray(pieces)
        changed[begin : begin + parts[at].size_bytes] = bytes(parts[at].size_bytes)
        return parts, memoryview(changed)

    monkeypatch.setattr(Recorder, "_split_write", blank_tokens)
    assert "complete log" in find_problems("recorder", "complete")


@pytest.mark.parametrize("never", [True, False])
def test_rule_that_never_or_always_fires_is_named(monkeypatch: pytest.MonkeyPatch, never: bool) -> None:
    monkeypatch.setattr(checks, "has_finding", lambda row, change: not never)
    [problem] = find_problems("doctor", "gpu.gone").values()
    assert ("no finding" if never else "only resembles") in problem


def test_probe_with_another_cause_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = checks.run_injected(next(fault for fault in FAULTS if fault.inject == "old-kfd"))
    monkeypatch.setattr(checks, "run_injected", lambda fault, shared="": result)
    assert find_problems("inject", "old-kfd") == {}
    assert "expected 'suspended'" in find_problems("inject", "counter-stuck")["counter-stuck P08/t1"]


def test_exception_of_a_checker_is_a_problem() -> None:
    def fail() -> str:
        raise ValueError("broken")

    [(_, problem)] = run_checks([SelfCheck("numbers", "x", fail)], 1)
    assert problem == "ValueError: broken"


def test_unknown_group_is_a_usage_error(capsys: Capture) -> None:
    assert command.main(["--only", "everything"]) == 2
    assert "no such group" in capsys.readouterr().err
