from __future__ import annotations

import re
from pathlib import Path

from ir_text_reader import parse_text

from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.serial import HEADER, MAGIC, VERSION
from zinc_rt.ir.verify import verify_graph

DOC = (Path(__file__).parents[2] / "docs" / "ir.md").read_text(encoding="utf-8")


def test_doc_opcode_table_matches_the_opcode_table():
    rows = re.findall(r"^\| (\d+) \| ([A-Z0-9_]+) \| (\S.*) \|$", DOC, re.MULTILINE)
    assert [(int(number), name) for number, name, _ in rows] == [(op.value, op.name) for op in Op]
    assert set(OPS) == set(Op)


def test_doc_describes_the_current_byte_format():
    assert f"magic `{MAGIC[:3].decode()}\\0`, version {VERSION}" in DOC
    assert f"A header of {HEADER.itemsize} bytes" in DOC


def test_doc_example_in_text_format_is_a_valid_graph():
    verify_graph(parse_text(DOC.split("```")[1].lstrip("\n")))
