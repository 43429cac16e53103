"""Every rule finds what it is about, not what comes near, and nothing on a silent machine (rule_examples.yaml)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sick_machines as corpus

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import diagnose
from zinc_rt.doctor.rules import hung
from zinc_rt.doctor.rules.table import RULES
from zinc_rt.host.files import load_yaml

EXAMPLES: dict[str, Any] = {
    row["rule"]: row
    for row in load_yaml(Path(__file__).with_name("rule_examples.yaml").read_text(encoding="utf-8"))
}
NOTES = {rule.id for rule in RULES if rule.severity == "note"}


def has_finding(rule_example: dict[str, Any], change: dict[str, Any]) -> bool:
    files = dict(corpus.load_base(rule_example.get("base", "r9700-ubuntu")).files)
    gone = change.get("gone")
    files = {path: data for path, data in files.items() if not (gone and re.search(gone, path))}
    lines = f"{change.get('log', '')}\n" * change.get("times", 1)
    if lines.strip():
        log = files.get("kernel.log", b"").decode()
        if "clear" in change:
            log = re.sub(change["clear"], "", log)
        files["kernel.log"] = (log + lines).encode()
    for path, (old, new) in change.get("sub", {}).items():
        files[path] = files[path].replace(old.encode(), new.encode())
    files |= {path: text.encode() for path, text in change.get("set", {}).items()}
    diagnosis = diagnose(MachineCapture(files, change.get("unreadable", {})))
    # a finding that this machine does not suffer from is a note
    ids = {f.id for f in diagnosis.findings if f.severity != "note" or f.id in NOTES}
    return rule_example["rule"] in ids


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.rest(keep=20)
def test_rule_matches_its_machine_but_not_a_similar_one(name: str) -> None:
    row = EXAMPLES[name]
    assert has_finding(row, row["positive"]), "positive"
    assert not has_finding(row, row["near"]), "near miss"


def test_every_rule_has_an_example() -> None:
    assert {rule.id for rule in RULES} - {rule.id for rule in hung.RULES} == set(EXAMPLES)
