"""Every instruction that the engine executes has a class with a source, and the page lists the same."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from zinc_rt.cli.isa import main
from zinc_rt.cli.isa_support import build_page
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.rows import InstructionRow, strip_suffix
from zinc_rt.isa.target import DEFAULT_ARCH, target_of
from zinc_rt.sim.shader.alu import transcendental
from zinc_rt.sim.shader.translate.evidence import (
    CLASSES,
    REFUSED,
    find_basis,
    find_evidence,
    list_decoded_rows,
    list_support,
    read_rows,
)
from zinc_rt.sim.shader.translate.semantics import EMIT

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def decoded_row(mnemonic: str) -> InstructionRow:
    return next(row for _, row in list_decoded_rows(target_of(DEFAULT_ARCH)) if row.name == mnemonic)


def test_captured_instructions_are_those_of_the_captures() -> None:
    rows = (HERE / "instruction_rows.txt").read_text().splitlines()
    named = {strip_suffix(row.split("|")[1].split()[0]) for row in rows if row.count("|") >= 3 and row[0] != "#"}
    dots = re.findall(r"(?m)^(dot2|wmma) (\w+)$", (HERE / "silicon_rows.txt").read_text())
    named |= {f"v_dot2_f32_{kind}" if what == "dot2" else f"v_wmma_f32_16x16x16_{kind}" for what, kind in dots}
    listed = {name for row, patterns in read_rows(12) if row.kind == "captured" for name in patterns}
    approximate = {name for name in named if find_evidence(name).kind == "approximate"}
    assert listed == (named & {strip_suffix(name) for name in EMIT}) - approximate


def test_every_pattern_names_an_instruction_of_the_engine() -> None:
    names = {strip_suffix(name) for name in EMIT}
    unused = [
        pattern
        for generation in (11, 12)
        for _, patterns in read_rows(generation)
        for pattern in patterns
        if not any(fnmatchcase(n, pattern) for n in names)
    ]
    assert not unused and {row.kind for row, _ in read_rows(12)} == set(CLASSES)


def test_transcendental_functions_are_approximate_and_integers_are_not() -> None:
    assert {find_evidence(name).kind for name in transcendental.EMIT} == {"approximate"}
    for name in ("v_add_nc_u32", "s_and_b64", "global_load_b128", "ds_swizzle_b32", "v_mov_b32", "s_barrier_wait"):
        assert find_evidence(name).kind == "manual"
    for name in ("v_add_f64", "v_pk_add_f16", "v_cmp_lt_f32", "global_atomic_add_f32", "s_fmac_f32"):
        assert find_evidence(name).kind == "ieee"
    assert find_evidence("v_exp_f32_e64") == find_evidence("v_exp_f32") and not find_evidence("v_exp_f32").exact


def test_dual_instruction_is_as_certain_as_its_less_certain_part() -> None:
    both = Instruction(decoded_row("v_dual_mov_b32"), (), (), (0,))
    assert find_basis(both).kind == "manual"
    assert (
        find_basis(replace(both, second=replace(both, row=decoded_row("v_dual_max_num_f32")))).kind == "captured"
    )
    assert find_basis(replace(both, row=decoded_row("v_exp_f32"), second=both)).kind == "approximate"


def test_support_lists_every_instruction_of_the_engine_and_refuses_the_rest_by_name() -> None:
    rows = {row.mnemonic: row for row in list_support(target_of(DEFAULT_ARCH))}
    older = {row.mnemonic for chip in ("gfx1100", "gfx1151") for row in list_support(target_of(chip))}
    assert len(rows) > 1200 and EMIT.keys() - rows.keys() - older == {"flat_atomic_csub_u32"}, "FLAT lacks it"
    for name in ("image_load", "image_sample", "v_interp_p10_f32", "image_bvh_intersect_ray"):
        assert rows[name].kind == REFUSED and rows[name].why


def test_results_captured_on_gfx12_are_assumed_on_gfx11() -> None:
    rows = {row.mnemonic: row.kind for row in list_support(target_of("gfx1100"))}
    assert rows["v_wmma_f32_16x16x16_f16"] == rows["v_dot2_f32_f16"] == "assumed"
    assert rows["v_wmma_i32_16x16x16_iu8"] == "manual" and rows["v_add_f32"] == "ieee"
    assert rows["lds_direct_load"] == REFUSED and "captured" not in rows.values()
    assert "s_add_f32" not in rows and "s_add_f32" in {row.mnemonic for row in list_support(target_of("gfx1151"))}


def test_page_is_generated_from_the_tables() -> None:
    assert (ROOT / "docs" / "support.md").read_text() == build_page(DEFAULT_ARCH), (
        "zinc-rt isa support --page docs/support.md"
    )


def test_unknown_instruction_is_an_error(capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["support", "v_nope*"]) == 2
    assert "gfx1201 has no instruction v_nope*" in capsys.readouterr().err
    assert main(["support", "v_exp_f32"]) == 0
    assert "approximate" in capsys.readouterr().out
