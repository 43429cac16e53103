"""The comparison of servers: what is measured of a running server, the table, and wrong usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.perf.command import main
from zinc_rt.perf.serving import measure
from zinc_rt.perf.serving.command import OWN, _make_table
from zinc_rt.perf.serving.measure import FIGURES, ComparedServer, Measured
from zinc_rt.perf.stream_clients import StreamTimes
from zinc_rt.validate.judge.engines import ENGINES

MODEL = FOLDER / "qwen3-q.gguf"


@pytest.mark.rest
def test_every_measure_of_the_own_server_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"PROMPT": 4, "ANSWER": 6, "LONG_PROMPT": 40, "FIRST_TOKENS": 1, "LONG_PROMPTS": 1}.items():
        monkeypatch.setattr(measure, name, value)
    out = tmp_path / "serving.json"
    alone = ["--alone", "--rounds", "1", "--ours", "--tier t_cpu"]
    assert main(["serving", "--model", str(MODEL), *alone, "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    values = {result["id"]: result["measure"]["values"] for result in report["results"]}
    assert set(values) == {f"{OWN}/{row.id}" for row in FIGURES}
    assert all(len(value) == 1 and value[0] > 0 for value in values.values())
    assert "--tier t_cpu" in report["details"]["servers"][OWN] and "load_average" in report["details"]["machine"]


def test_ratio_is_above_one_where_ours_is_better() -> None:
    ours, theirs = (
        Measured(ComparedServer(name, ENGINES["ours"]), values={row.id: [value] * 3 for row in FIGURES})
        for name, value in ((OWN, 10.0), ("llama-server", 20.0))
    )
    ratios = {row.id: line[-1] for row, line in zip(FIGURES, _make_table([ours, theirs]).rows, strict=True)}
    assert ratios["first"] == "2.00" and ratios["speed-16"] == "0.50"


def test_gaps_are_between_the_events_of_a_stream() -> None:
    assert StreamTimes([100.0, 110.0, 140.0]).gaps_ms == [10.0, 30.0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--rounds", "0"], "expected 1 or more"),
        (["--theirs", "-ngl 0"], "llama-server is not on PATH"),
        (["--alone", "--theirs", "-ngl 0"], "--theirs has no effect with --alone"),
    ],
)
def test_wrong_usage_is_rejected(
    more: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["serving", "--model", str(MODEL), *more]) == 2
    assert message in capsys.readouterr().err
