"""The sealed forecasts: the seal, the page, targets beyond the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zinc_rt.host.errors import UsageError
from zinc_rt.perf.predict import forecasts
from zinc_rt.perf.predict.forecasts import DEVICES, LOADS, MODELS, PAGE
from zinc_rt.perf.predict.forecasts_page import text_of
from zinc_rt.perf.predict.outlook import Outlook
from zinc_rt.perf.predict.sealed import committed, forecast, seal_of


def test_committed_page_is_that_of_the_sealed_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == text_of(committed())
    assert len(committed()["rows"]) == len(DEVICES) * len(MODELS) * len(LOADS)


def test_a_changed_row_breaks_the_seal() -> None:
    document = dict(committed())
    rows = [dict(row) for row in document["rows"]]
    rows[0]["dispatches"] += 1
    assert seal_of(document | {"rows": rows}) != document["seal"]


def test_no_forecast_exceeds_its_bounds() -> None:
    for row in committed()["rows"]:
        if row["likely"] is not None:
            assert row["low"] <= row["likely"] <= row["high"] < min(row["bytes_bound"], row["flops_bound"])


def test_targets_beyond_the_bytes_are_unreachable() -> None:
    one = forecast("R9700", "35B-A3B", "decode")
    for target in (220.0, 240.0):
        outlook = Outlook(target, one)
        assert not outlook.reachable and "fewer bytes" in outlook.text
    assert Outlook(one.low or 0.0, one).verdict == "expected"
    assert Outlook(140.0, one).reachable
    assert Outlook(140.0, replace(one, likely=None, note="does not fit")).text.endswith("(does not fit)")


def test_unknown_forecast_and_bad_date_are_rejected() -> None:
    with pytest.raises(KeyError):
        forecast("R9700", "70B", "decode")
    assert forecasts.main(["--date", "tomorrow"]) == UsageError.exit_code
