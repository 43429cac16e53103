"""Instruction forms: what kernels share, and what is compiled again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from shader_launch import parse_dwords
from support import Counts

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import Instruction, decode
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.target import make_default_target
from zinc_rt.kernels.gfx1201.table import load, names
from zinc_rt.sim.shader.emit.float_mode import FloatMode
from zinc_rt.sim.shader.emit.form import NotShared
from zinc_rt.sim.shader.emit.helpers import KernelModule, SharedHelpers
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import VGPR_LIMIT, Checks, KernelVariant
from zinc_rt.sim.shader.run import forms, helpers
from zinc_rt.sim.shader.run.kernels import CompiledKernels, choose_variant
from zinc_rt.sim.shader.translate.forms import Situation, emit_form, exact_shape, shape_of

ONE = parse_dwords("""
    7e0a02ff 00001234           ; v_mov_b32_e32 v5, 0x1234
    100c0b05                    ; v_mul_f32_e32 v6, v5, v5
    ee068000 03000000 00000806  ; global_store_b32 v6, v6, s[0:1] offset:8
    bfb00000                    ; s_endpgm
""")
OTHER = parse_dwords("""
    7e1202ff 00abcdef           ; v_mov_b32_e32 v9, 0xabcdef
    10141309                    ; v_mul_f32_e32 v10, v9, v9
    ee068004 05000000 0000400a  ; global_store_b32 v10, v10, s[4:5] offset:64
    bfb00000                    ; s_endpgm
""")
APART = parse_dwords("""
    7e0a02ff 00001234           ; v_mov_b32_e32 v5, 0x1234
    100c0f05                    ; v_mul_f32_e32 v6, v5, v7
    bfb00000                    ; s_endpgm
""")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of forms that were compiled, by compilation. No form is in memory at first."""
    counts: list[int] = []
    compile_forms = forms.compile_forms

    def counted(text: str) -> bytes:
        counts.append(text.count('i32 @"form.'))
        return compile_forms(text)

    monkeypatch.setattr(forms, "compile_forms", counted)
    forget(monkeypatch)
    yield counts


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process like a new one."""
    monkeypatch.setattr(forms, "_kinds", {})
    monkeypatch.setattr(forms, "_libraries", {})
    monkeypatch.setattr(helpers, "_loaded", {})


def variant(program: bytes, level: str = "full") -> KernelVariant:
    return KernelVariant(program, make_default_target(), True, Checks(level), 16, 8)


def instruction(text: str) -> Instruction:
    decoded = decode(parse_dwords(text), 0, make_default_target())
    assert decoded is not None
    return decoded


def test_registers_offsets_and_literals_are_not_part_of_a_form(tmp_path: Path, compiled: list[int]) -> None:
    kernels = CompiledKernels(ObjectCache(tmp_path), quick=True)
    kernels.of(variant(ONE))
    assert len(compiled) == 1
    kernels.of(variant(OTHER))
    assert len(compiled) == 1, "all its forms are there"
    kernels.of(variant(APART))
    assert compiled[1:] == [2], "the product of a register that is not written, and that it is not"


def test_another_process_takes_forms_from_disk_and_compiles_lost_ones(
    tmp_path: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    CompiledKernels(ObjectCache(tmp_path), quick=True).of(variant(ONE))
    forget(monkeypatch)
    CompiledKernels(ObjectCache(tmp_path), quick=True).of(variant(OTHER))
    assert len(compiled) == 1
    for path in tmp_path.iterdir():
        if b"form.0" in path.read_bytes() and b'"effects"' not in path.read_bytes():
            path.unlink()  # the library, not the catalogue
    forget(monkeypatch)
    kernels = CompiledKernels(ObjectCache(tmp_path), quick=True)
    assert kernels.of(variant(OTHER)).records and kernels.compiled == 1
    assert len(compiled) == 2


def test_checks_and_launch_mode_are_part_of_a_form(tmp_path: Path, compiled: list[int]) -> None:
    kernels = CompiledKernels(ObjectCache(tmp_path), quick=True)
    for level in ("off", "fast", "full"):
        kernels.of(variant(ONE, level))
    assert len(compiled) == 3


def test_overlapping_registers_are_one_group() -> None:
    plain, equal = (
        shape_of(instruction("060c0b04")),
        shape_of(instruction("060c0b05")),
    )  # v_add_f32 v6, v4 or v5, v5
    assert plain is not None and equal is not None
    assert plain.key != equal.key
    assert sorted(plain.starts) == [4, 5, 6] and sorted(equal.starts) == [5, 6]


def test_sets_of_registers_move_between_form_and_instruction() -> None:
    shape = shape_of(instruction("060c0b04"))
    assert shape is not None
    vcc = 1 << VGPR_LIMIT + 106
    registers = 1 << 4 | 1 << 6 | vcc
    assert shape.placed(shape.taken(registers)) == registers
    assert shape.taken(1 << 7) == 0, "the instruction does not have it"


@pytest.mark.rest
def test_form_key_identifies_the_code(slow_counts: Counts) -> None:
    """Instructions of one form have the same function, whatever their registers; alone they have one too."""
    target, seen = make_default_target(), dict[tuple[object, ...], str]()
    mode = Situation(full=False, mode=FloatMode(0xF0))
    repeated = 0
    for name in names()[:: slow_counts(24, 1)]:
        zrt = load(name)
        launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 0), vgprs=zrt.vgprs)
        kernel = choose_variant(launch, target, zrt.code, Checks("full"))
        for _, item in find_control_flow(kernel.code, kernel.target, 0, running=True).instructions():
            shape = shape_of(item) or exact_shape(item, kernel.vgprs, False)
            module = KernelModule("forms", SharedHelpers(lambda name: True))
            try:
                emit_form(module, "form", shape, kernel, mode)
            except NotShared:
                continue
            repeated += shape.key in seen
            assert seen.setdefault(shape.key, str(module)) == str(module), item.text
    assert repeated > len(seen) > 10
