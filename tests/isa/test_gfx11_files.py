"""gfx11 is a row, an encoding or a table: the files whose code names it, so that no other one compares chips."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import zinc_rt

ROOT = Path(zinc_rt.__file__).parent
NAMED = re.compile(r"gfx_?11", re.IGNORECASE)
VERSIONS = (11, 11.5)
FILES = {
    "rows of chips and their rules": ["isa/target.py", "isa/wave_rules.py", "sim/chips.py", "sim/profiles.py"],
    "encodings of instructions": ["isa/decoder.py", "isa/encodings/immediates.py", "isa/rows.py"],
    "packets, registers and their bits": [
        "pm4/codec.py", "pm4/gcr.py", "pm4/generation.py", "pm4/lint_dispatches.py", "pm4/packets/data.py",
        "pm4/packets/sync.py", "pm4/registers.py", "sim/tables/amdgpu.py", "sim/tables/caches.py",
        "sim/tables/layout.py",
        "sim/tables/registers.py", "sim/tables/sdma_packets.py",
    ],
    "a table of packet bits by generation": [
        "backends/amd/command_stream.py", "backends/amd/packet_list.py", "backends/amd/ring.py",
        "launching/dispatch.py",
    ],
    "a kernel set": [
        "backends/vulkan/radv.py", "cli/vulkan_radv.py", "kernels/gfx1100/table.py", "kernels/radv/gfx1100.py",
        "kernels/sets.py",
    ],
    "a difference between kernels": ["kmd/userq_availability.py", "sim/driver/kfd_queues.py"],
}  # fmt: skip


def names_gfx11(node: ast.AST) -> bool:
    """Return whether a node is a name, a string without spaces or a comparison that names the generation."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.keyword(arg=str(name)):
            return NAMED.search(name) is not None
        case ast.Constant(value=str(text)):
            return NAMED.search(text) is not None and not any(map(str.isspace, text))
        case ast.Compare(left=left, comparators=others):
            return any(isinstance(item, ast.Constant) and item.value in VERSIONS for item in (left, *others))
    return False


def test_only_these_files_name_gfx11() -> None:
    named = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")  # without the folders that are links
        if any(map(names_gfx11, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert named == {name for names in FILES.values() for name in names}
