"""Example machines as texts (example_machines/*.txt); for each rule a change of one that the rule is about, and a
near miss (rule_examples.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import diagnose
from zinc_rt.doctor.rules.table import RULES
from zinc_rt.host.files import load_yaml

FOLDER = Path(__file__).parent
BASES = sorted(path.stem for path in (FOLDER / "example_machines").glob("*.txt"))
NOTES = {rule.id for rule in RULES if rule.severity == "note"}


@dataclass(frozen=True, slots=True)
class BaseMachine:
    """A healthy machine: its files, and the values that differ between machines."""

    name: str
    about: str
    variables: Mapping[str, str]
    files: Mapping[str, bytes]


@cache
def load_base(name: str) -> BaseMachine:
    """Read a machine: `=== path` begins a file; `=== variables` holds what sicknesses may name in braces."""
    text = (FOLDER / "example_machines" / f"{name}.txt").read_text(encoding="utf-8")
    head, *sections = re.split(r"^=== (.+)\n", text, flags=re.M)
    files = dict(zip(sections[::2], sections[1::2], strict=True))
    variables = load_yaml(files.pop("variables"))
    return BaseMachine(name, head.strip("# \n"), variables, {path: text.encode() for path, text in files.items()})


@cache
def load_rule_examples() -> dict[str, dict[str, Any]]:
    """Return the examples by rule; rules of --hung have none."""
    rows = load_yaml((FOLDER / "rule_examples.yaml").read_text(encoding="utf-8"))
    return {row["rule"]: row for row in rows}


def has_finding(rule_example: Mapping[str, Any], change: Mapping[str, Any]) -> bool:
    """Return whether the example's rule has a finding on its base machine with this change."""
    files = dict(load_base(rule_example.get("base", "r9700-ubuntu")).files)
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
