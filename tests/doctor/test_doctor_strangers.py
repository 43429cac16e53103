"""Machines of other people's making (strangers.yaml) are understood as well as those of the corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import diagnose
from zinc_rt.host.files import load_yaml

DOCUMENT = load_yaml(Path(__file__).with_name("strangers.yaml").read_text(encoding="utf-8"))
MACHINES = {row["name"]: row for row in DOCUMENT["machines"]}


def machine_files(row: dict[str, Any]) -> dict[str, bytes]:
    start = {} if row.get("alone") else DOCUMENT["plain"]
    kept = {path: text for path, text in start.items() if not path.startswith(tuple(row.get("without", ())))}
    return {path: text.encode() for path, text in {**kept, **row.get("files", {})}.items()}


@pytest.mark.parametrize("name", MACHINES)
def test_third_party_machine_gets_expected_diagnosis(name: str) -> None:
    diagnosis = diagnose(MachineCapture(machine_files(MACHINES[name])))
    assert (diagnosis.first.id if diagnosis.first else None) == MACHINES[name].get("first")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_log_in_another_encoding_is_read(encoding: str) -> None:
    log = "amdgpu 0000:03:00.0: MES failed to respond to msg=ADD_QUEUE\n"
    diagnosis = diagnose(MachineCapture({"kernel.log": log.encode(encoding)}))
    assert diagnosis.first is not None and diagnosis.first.id == "log.mes"
