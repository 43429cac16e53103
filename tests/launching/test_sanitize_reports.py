"""The reports of a program under `zinc-rt sanitize`: written as JSON lines, read back as they were."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from zinc_rt.launching.finding_groups import FindingGroup, RacingPlace
from zinc_rt.launching.triton_startup import read_reports

RACE = FindingGroup(
    "race", 4, "first", False, "kernel", 0x548, "buffer_store_b128", (1, 0, 0), 1, line="a.py:250",
    other=RacingPlace("store", 0x548, "buffer_store_b128", (0, 0, 0), 0, "a.py:250"),
)  # fmt: skip


def test_race_is_read_back_with_its_other_access(tmp_path: Path) -> None:
    row = {"kernel": "kernel", "code_object": "one", "findings": [asdict(RACE)], "remarks": []}
    other = {**row, "code_object": "two", "findings": []}
    lines = [json.dumps(item) for item in (row, other, other)]
    (tmp_path / "1.jsonl").write_text("\n".join([*lines, lines[0][:40]]))  # the last one was cut off by a crash
    report = read_reports(tmp_path)
    assert report.findings == (RACE,) and report.remarks == ()
    assert report.launches == 3 and report.kernels["kernel"].code_objects == {"one", "two"}
