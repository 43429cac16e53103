"""One name, one meaning: no class name is defined in two rooms."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from zinc_rt.rooms import HARNESS

ROOT = Path(__file__).resolve().parent.parent
SHARED_TODAY = """
    Access AddressSpace Attention Availability Bench Block Buffer Capture Case Chip Combination Context
    Device Difference Dispatch Emitter Ended Entry Event Events Evidence Expected Fact Facts Fault
    Fence Field Finding Firmware Flow Forms Found Frame Gpu Graph Heads Heap Held Host Ioctl Item
    Kernel Kernels KfdProcess Kind Lane Launch Layout Limits Line Log Machine Matrix Memory Message
    Model Node Op Operand Options Outcome PageFault Part Parts Peer Place Placement Plan Planned
    Pointed Program Queue Ran Record Recorder Region Register Report Request Row Rows Rule Run Runner
    Session Setting Slot Space Span Stage State Step Store Subject Syncobj Table Target Task Timed
    Times Unusable Usage Value Verdict Vocabulary Wanted Weight Weights Work
"""
STILL = frozenset(SHARED_TODAY.split())


def rooms_by_class() -> dict[str, dict[str, str]]:
    """Of every class's name without a leading underscore: the rooms that define it, each with one of its files."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for folder in ("zinc_rt", "ci", *HARNESS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = parts[1] if parts[0] == "zinc_rt" else parts[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].setdefault(room, str(path.relative_to(ROOT)))
    return found


def test_no_class_name_is_used_by_two_rooms_with_two_meanings() -> None:
    shared = {name: rooms for name, rooms in rooms_by_class().items() if len(rooms) > 1}
    assert not shared.keys() - STILL, {name: shared[name] for name in shared.keys() - STILL}
