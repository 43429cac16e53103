"""The sealed forecasts: the seal, the page, targets beyond the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zinc_rt.host.errors import UsageError
from zinc_rt.perf.gate import command as gate_command
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.predict import forecasts
from zinc_rt.perf.predict.forecasts import DEVICES, LOADS, PAGE
from zinc_rt.perf.predict.forecasts_page import format_page, targets_table
from zinc_rt.perf.predict.outlook import Outlook, outlook_of, outlooks
from zinc_rt.perf.predict.sealed import MODELS, compute_seal, find_forecast, read_committed
from zinc_rt.perf.structure.lab import Lab


def test_committed_page_matches_the_sealed_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == format_page(read_committed())
    assert len(read_committed()["rows"]) == len(DEVICES) * len(MODELS) * len(LOADS)


def test_a_changed_row_breaks_the_seal() -> None:
    document = dict(read_committed())
    rows = [dict(row) for row in document["rows"]]
    rows[0]["dispatches"] += 1
    assert compute_seal(document | {"rows": rows}) != document["seal"]


def test_no_forecast_exceeds_its_bounds() -> None:
    for row in read_committed()["rows"]:
        if row["likely"] is not None:
            assert row["low"] <= row["likely"] <= row["high"] < min(row["bytes_bound"], row["flops_bound"])


def test_targets_above_the_bandwidth_bound_are_unreachable() -> None:
    one = find_forecast("R9700", "35B-A3B", "decode")
    for target in (220.0, 240.0):
        outlook = Outlook(target, one)
        assert not outlook.reachable and "fewer bytes" in outlook.text
    assert Outlook(one.low or 0.0, one).verdict == "expected"
    assert Outlook(140.0, one).reachable
    assert Outlook(140.0, replace(one, likely=None, note="does not fit")).text.endswith("(does not fit)")


def test_unknown_forecast_and_bad_date_are_rejected() -> None:
    with pytest.raises(KeyError):
        find_forecast("R9700", "70B", "decode")
    assert forecasts.main(["--date", "tomorrow"]) == UsageError.exit_code


def test_readme_has_the_targets_next_to_the_sealed_forecasts() -> None:
    table = targets_table()
    assert table in (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "| decode | M1 140, M2 165, M3 195 | M4 220, M5 240 |" in table


def test_each_speed_criterion_has_the_forecast_of_its_own_model_and_load() -> None:
    sealed = {criterion.name: outlook.forecast for criterion, outlook in outlooks()}
    assert (sealed["M2/prefill-dense"].model, sealed["M2/prefill-dense"].load) == ("8B", "prompt of 512")
    assert sealed["M3/aggregate-16"].load == "16 slots" and sealed["M1/decode"].device == "R9700"
    without = {"M3/aggregate-64", "M2/prefill-gemma", "M2/ttft", "M3/fairness", "M5/power", "M7/decode", "M1/bits"}
    assert not without & set(sealed)
    known = map(find_milestone, ("M1", "M2", "M3", "M5", "M7"))
    criteria = {criterion.name for milestone in known for criterion in milestone.criteria}
    assert without <= criteria, "these criteria exist"


def test_gate_shows_target_forecast_limits_and_condition(capsys: pytest.CaptureFixture[str]) -> None:
    with Lab(device="cpu") as lab:  # measures nothing
        (blocked,) = evaluate(find_milestone("M4"), lab, GateInput(), only="decode")
    criterion = next(item for item in find_milestone("M4").criteria if item.id == "decode")
    outlook = outlook_of(criterion)
    assert outlook is not None and blocked.measure["forecast"] == outlook.as_dict()
    assert blocked.status == "blocked", "a forecast is no evidence"
    gate_command._print(blocked, None)
    output = " ".join(capsys.readouterr().out.split())
    assert outlook.text in output and outlook.text.startswith("target 220, forecast ")
    assert "unreachable; needs at least" in output
