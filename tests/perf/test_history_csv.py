"""A history as CSV: a row an entry, its figures and its context by column."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from zinc_rt.perf import command as perf
from zinc_rt.perf.history.chain import append_entry

Capture = pytest.CaptureFixture[str]


def write_history(folder: Path) -> Path:
    path = folder / "history.jsonl"
    for number, figures in enumerate(({"decode": 10.5, "ttft": 0.25}, {"ttft": 0.5}, {"decode": 11.0})):
        report = {
            "command": "perf bench",
            "device": {"tier": "t2", "name": "a card, with a comma", "simulated": False},
            "model": {"sha256": "ab" * 32},
            "results": [],
            "details": {"number": number},
        }
        append_entry(path, "perf bench", report, figures)
    return path


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_entry_is_a_row(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "h.csv"
    assert perf.main(["history", str(write_history(tmp_path)), "--csv", str(out)]) == 0
    result = read_rows(out)
    assert [item["decode"] for item in result] == ["10.5", "", "11.0"] and result[1]["ttft"] == "0.5"
    assert {(item["tier"], item["device"]) for item in result} == {("t2", "a card, with a comma")}
    assert [item["sequence"] for item in result] == ["1", "2", "3"] and result[0]["at"]
    assert f"wrote     {out}, 3 rows\n" in capsys.readouterr().out


def test_single_figure_selects_only_its_entries(tmp_path: Path) -> None:
    out = tmp_path / "h.csv"
    assert perf.main(["history", str(write_history(tmp_path)), "--csv", str(out), "--figure", "decode"]) == 0
    assert [row["decode"] for row in read_rows(out)] == ["10.5", "11.0"] and "ttft" not in read_rows(out)[0]


def test_unmeasured_figure_yields_header_only(tmp_path: Path) -> None:
    out = tmp_path / "h.csv"
    perf.main(["history", str(write_history(tmp_path)), "--csv", str(out), "--figure", "nothing"])
    assert read_rows(out) == [] and out.read_text().startswith("sequence,at,report")


def test_missing_pandas_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    path = write_history(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert perf.main(["history", str(path), "--csv", str(tmp_path / "h.csv")]) == 2
    assert "pandas is not installed\n  next: pip install 'zinc-rt[report]'" in capsys.readouterr().err
    assert not (tmp_path / "h.csv").exists()


def test_missing_folder_is_reported_before_any_work(tmp_path: Path, capsys: Capture) -> None:
    assert perf.main(["history", str(write_history(tmp_path)), "--csv", "/missing/h.csv"]) == 2
    assert "the folder /missing does not exist" in capsys.readouterr().err
