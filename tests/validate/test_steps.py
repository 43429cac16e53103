"""Steps that the host builds wrong are named as such: every tier is fed the same ones, and none is to blame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from seen import Validate, ValidateOutput

from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.engine.runner import StepBlock
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.sched.plan import StepPlan

IDS = ",".join(str(3 * index + 1) for index in range(20))  # two pages
Parts = dict[str, np.ndarray]
Tables = list[dict[int, int]]  # what changes, by page group
Change = Callable[[Tables, Parts], None]


@pytest.fixture
def tiny_path(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, "qwen35", layers=4)
    return str(path)


@pytest.fixture
def change_built_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """built(change): from here on every step's counts and parts are changed before they are set."""

    def set_change(change: Change) -> None:
        real = StepBlock.fill

        def build_changed(self: StepBlock, plan: StepPlan) -> None:
            valid = {"token_id": plan.tokens, "position": plan.tokens, "logit_row": plan.rows}
            valid |= {"state_source": plan.sequences, "state_target": plan.sequences}
            change(plan.table_changes, {name: getattr(plan, name)[:count] for name, count in valid.items()})
            real(self, plan)

        monkeypatch.setattr(StepBlock, "fill", build_changed)

    return set_change


def judge_model(validate: Validate, model: str) -> ValidateOutput:
    return validate("--model", model, "--tokens", IDS, "--steps", "1", "--no-cache")


@pytest.mark.rest
def test_correct_steps_produce_no_results(run_validate: Validate, tiny_path: str) -> None:
    seen = judge_model(run_validate, tiny_path)
    assert seen.exit == 0 and not [result for result in seen.results if result["kind"] == "step"]


def delay_positions(tables: Tables, parts: Parts) -> None:
    parts["position"][1:] += 1


def use_first_row(tables: Tables, parts: Parts) -> None:
    parts["logit_row"][1:] -= 1


def use_one_page(tables: Tables, parts: Parts) -> None:
    tables[0] = dict.fromkeys(tables[0], 0)


def use_old_state(tables: Tables, parts: Parts) -> None:
    parts["state_source"][:] = parts["state_target"]


def use_zero_row(tables: Tables, parts: Parts) -> None:
    parts["state_target"][:] = 0


def use_other_ids(tables: Tables, parts: Parts) -> None:
    parts["token_id"][0] += 1


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (delay_positions, "position[1] is 2, expected 1"),
        (use_first_row, "logit_row[1] is 0, expected 1"),
        (use_one_page, "place 1 is 0, which place 0 has, expected a page of its own"),
        (use_old_state, "state_source[0] is 1, expected 0"),
        (use_zero_row, "state_target[0] is 0, expected 1"),
        (use_other_ids, "token_id[0] is 2, expected 1"),
    ],
)
@pytest.mark.slow(keep=3)
def test_step_part_unlike_the_request_is_named(
    change: Change, message: str, change_built_steps: Callable[[Change], None], run_validate: Validate,
    tiny_path: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    change_built_steps(change)
    seen = judge_model(run_validate, tiny_path)
    assert seen.exit == 1
    [wrong, *_] = [result for result in seen.results if result["kind"] == "step"]
    assert wrong["cause"].startswith("step 0 as the host built it: ") and wrong["cause"].endswith(message)
    out = capsys.readouterr().out
    assert "suspect    t_cpu" in out and "suspect the runtime that builds steps" in out


def test_page_never_sent_to_the_device_is_named(
    monkeypatch: pytest.MonkeyPatch, run_validate: Validate, tiny_path: str
) -> None:
    real = Engine._cover

    def forget_page(self: Engine, sequence: Sequence, tokens: int, plan: StepPlan) -> None:
        real(self, sequence, tokens, plan)
        for location in [location for location in plan.table_changes[0] if location]:
            plan.table_changes[0].pop(location)

    monkeypatch.setattr(Engine, "_cover", forget_page)
    causes = [
        result["cause"] for result in judge_model(run_validate, tiny_path).results if result["kind"] == "step"
    ]
    assert causes and "slot 0, place 1 is never sent to the device" in causes[0]
