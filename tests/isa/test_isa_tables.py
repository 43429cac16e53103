"""The tables: every fact of a row is one that something reads, and facts agree with each other."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from zinc_rt.isa import decode, target_of
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.lint.counters import COUNTERS
from zinc_rt.isa.report import UNITS
from zinc_rt.isa.rows import ENCODINGS, FLOWS, SEGMENTS, InstructionRow, make_rows
from zinc_rt.sim.shader.translate.semantics import EMIT

TABLES = ("scalar", "vector", "packed", "vopd", "memory", "graphics")


def every_row(generation: float) -> list[InstructionRow]:
    return [
        row
        for table in TABLES
        for written in import_module(f"zinc_rt.isa.tables.{table}").ROWS
        for encoding in (SEGMENTS if written == "VMEM" else (written,))
        for row in make_rows(table, encoding, generation).values()
    ]


@pytest.mark.parametrize("generation", [11, 12])
def test_every_fact_is_known(generation: int) -> None:
    result = every_row(generation)
    assert len(result) > 1200
    assert {row.encoding for row in result} <= ENCODINGS.keys()
    assert {row.unit for row in result} <= {*UNITS, "atomic", "cache"}
    assert {row.flow for row in result} <= {"", *FLOWS}
    assert {row.counter for row in result} <= {"", *COUNTERS}
    assert {name for row in result for name in row.waits} <= {"all", "legacy", "vector", "lgkm", *COUNTERS}
    assert {name for row in result for name in row.reads} <= {"scc", "vcc", "exec", "m0", "dst"}
    assert {name for row in result for name in row.writes} <= {"scc", "exec", "src"}
    assert {name for row in result for name in row.limits} <= {"permlane", "one_scalar"}


def test_all_encodings_of_an_instruction_have_same_facts() -> None:
    by_name: dict[str, set[tuple[object, ...]]] = {}
    for row in every_row(12):
        if row.pipe == "valu":
            by_name.setdefault(row.name, set()).add((row.unit, row.reads, row.writes, row.flow, row.limits))
    assert not {name: facts for name, facts in by_name.items() if len(facts) > 1}


def test_unit_and_control_flow_facts_agree() -> None:
    for row in every_row(12):
        assert (row.unit == "wait") == row.mnemonic.startswith("s_wait"), row
        assert (row.flow == "conditional") == row.mnemonic.startswith("s_cbranch"), row
        assert not row.waits or row.unit == "wait", row
        assert ("exec" in row.writes) == any(word in row.name for word in ("cmpx", "saveexec", "wrexec")), row


def test_every_simulated_instruction_has_a_row() -> None:
    rows = {row.name for isa in (11, 11.5, 12) for row in every_row(isa)}
    assert EMIT.keys() - rows == {"flat_atomic_csub_u32"}, "FLAT lacks it"


def test_rows_cover_llvm_vectors(data_dir: Path) -> None:
    file = data_dir / "gfx12" / "gfx1201_w32.tsv"
    if not file.is_file():
        pytest.skip(f"{file} is absent")
    target = target_of("gfx1201")
    lines = [line.split("\t")[0] for line in file.read_text().splitlines() if not line.startswith("#")]
    mnemonics = {text.row.mnemonic for raw in lines if (text := decode(bytes.fromhex(raw), 0, target)) is not None}
    unseen = {row.mnemonic for row in every_row(12)} - mnemonics
    assert len(mnemonics) > 1300 and len(unseen) < 20, sorted(unseen)


def test_illegal_memory_has_no_row() -> None:
    assert find_control_flow(bytes(8), target_of("gfx1201")).blocks[0].illegal_at == 0
