"""Structural criteria on what runs here: what there is passes, a runtime that broke its word fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from zinc_rt.engine import Engine
from zinc_rt.perf.gate import Given, evaluate
from zinc_rt.perf.lab import Lab
from zinc_rt.perf.milestones import find_milestone, milestones
from zinc_rt.perf.structure import MEASURES
from zinc_rt.report import Result
from zinc_rt.runner import Runner, StepBlock, StepHandle
from zinc_rt.settings import Settings


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(device="sim") as opened:
        yield opened


def decided(lab: Lab, name: str) -> Result:
    milestone, _, only = name.partition("/")
    (result,) = evaluate(find_milestone(milestone), lab, Given(), only=only)
    return result


def test_every_structural_measure_exists_and_is_used() -> None:
    named = {each.measure for m in milestones() for each in m.criteria if each.type == "structural"}
    assert named == set(MEASURES)


@pytest.mark.parametrize("name", ["opcodes", "verifier", "every-op", "token-for-token"])
def test_m0_holds(lab: Lab, name: str) -> None:
    assert decided(lab, f"M0/{name}").status == "pass"


@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_a_token_costs_one_submission_on_the_simulated_device(lab: Lab, tier: str) -> None:
    result = decided(lab, "M1/one-submit" if tier == "t2" else "M2/one-submit")
    assert result.status == "pass" and result.measure["value"] == 1
    assert result.measure["simulated"] and "simulated device" in result.reason
    assert result.measure["detail"]["submissions"] == [1] * 8
    assert min(result.measure["detail"]["dwords"]) > 0, "counted from the queues' write pointers"


def test_a_second_submission_a_token_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runner.submit

    def twice(self: Runner, block: StepBlock) -> StepHandle:
        self.collect(real(self, block))
        return real(self, block)

    monkeypatch.setattr(Runner, "submit", twice)
    result = decided(lab, "M1/one-submit")
    assert (result.status, result.measure["value"]) == ("fail", 2)


def test_a_prompt_that_goes_in_two_passes_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.engine.CAPACITIES", (1, 16))
    result = decided(lab, "M2/one-pass")
    assert (result.status, result.measure["value"]) == ("fail", 2)


def test_tiers_that_part_in_one_bit_fail(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Engine.forward

    def off_by_one(self: Engine, tokens: Any, **options: Any) -> np.ndarray:
        logits = real(self, tokens, **options)
        if self.backend.spec.tier == "t2":
            logits.view(np.uint32)[0, 0] ^= 1
        return logits

    monkeypatch.setattr(Engine, "forward", off_by_one)
    assert (decided(lab, "M2/tiers-agree").status, decided(lab, "M2/tiers-agree").measure["value"]) == ("fail", 1)


def test_logits_of_nothing_are_no_agreement(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "forward", lambda self, tokens, **options: np.zeros((1, 8), np.float32))
    result = decided(lab, "M2/tiers-agree")
    assert result.status == "blocked" and "constant" in result.reason


def test_under_a_clamp_no_structure_is_proved() -> None:
    with Lab(device="sim", settings=Settings(lm_head_rows=16)) as lab:
        results = [decided(lab, f"M0/{each.id}") for each in find_milestone("M0").criteria[:5]]
    assert {result.status for result in results} == {"blocked"}
    assert all("LM head capped" in result.reason for result in results)


def test_what_is_not_built_is_blocked_by_name(lab: Lab) -> None:
    for name in ("M2/metal", "M3/scheduler", "M4/wmma", "M5/zero-submit", "M7/tier", "M8/tier"):
        result = decided(lab, name)
        assert result.status == "blocked" and "in this version" in result.reason, name


def test_a_crash_fails_its_own_criterion_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(Engine, "graph", crash)
    assert decided(lab, "M0/verifier").status == "fail"
    assert decided(lab, "M0/opcodes").status == "pass"
