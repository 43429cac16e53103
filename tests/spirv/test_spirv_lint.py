"""Every rule of the lint: a kernel that breaks it is named, and its kin that does not is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from spirv.spirv_edits import (
    edit_module,
    encode_instruction,
    float_constant,
    insert_before,
    remove_instruction,
    replace_first,
)

from zinc_rt.kernels.spirv import compile as compiler
from zinc_rt.kernels.spirv.table import module as committed
from zinc_rt.spirv.build import NO_CONTRACTION
from zinc_rt.spirv.lint import RULES, lint_module
from zinc_rt.spirv.modes import add_modes
from zinc_rt.spirv.module import read_module
from zinc_rt.spirv.opcodes import Opcode

ADD, NORM = committed("add"), committed("rms_norm")
needs_glslang = pytest.mark.skipif(
    not compiler.is_available(), reason='no compiler: extra "glsl" is not installed'
)


def lint_rules(data: bytes) -> list[str]:
    """The rules that have a remark."""
    return [remark.rule for remark in lint_module(read_module(data))]


def test_unmodified_modules_have_no_remarks() -> None:
    assert lint_rules(ADD) == lint_rules(NORM) == []


def test_sum_without_no_contraction_is_reported() -> None:
    stripped = edit_module(ADD, remove_instruction(Opcode.Decorate, NO_CONTRACTION))
    (remark,) = lint_module(read_module(stripped))
    assert remark.rule == "no-contraction"
    assert "OpFAdd" in remark.where and "in main" in remark.where
    assert "zinc-rt vulkan compile" in str(remark)


@pytest.mark.parametrize("bits", [0x00000000, 0x80000000])
def test_zero_addend_is_reported(bits: int) -> None:
    zero, data = float_constant(ADD, bits)
    folds = edit_module(
        data, replace_first(Opcode.FAdd, lambda item: encode_instruction(item.opcode, *item.operands[:3], zero))
    )
    assert lint_rules(folds) == ["folded-operand"]


def test_factor_one_is_reported_but_addend_one_is_not() -> None:
    one, data = float_constant(ADD, 0x3F800000)
    adds = edit_module(
        data, replace_first(Opcode.FAdd, lambda item: encode_instruction(item.opcode, *item.operands[:3], one))
    )
    assert lint_rules(adds) == []
    scales = edit_module(
        data, replace_first(Opcode.FAdd, lambda item: encode_instruction(Opcode.FMul, *item.operands[:3], one))
    )
    assert lint_rules(scales) == ["folded-operand"]


def test_subtracting_or_comparing_a_value_with_itself_is_reported() -> None:
    def repeat_operand(opcode: int) -> bytes:
        def change_operand(instruction):  # type: ignore[no-untyped-def]
            return encode_instruction(opcode, *instruction.operands[:3], instruction.operands[2])

        return edit_module(ADD, replace_first(Opcode.FAdd, change_operand))

    assert lint_rules(repeat_operand(Opcode.FSub)) == ["folded-operand"]
    assert lint_rules(repeat_operand(Opcode.FUnordNotEqual)) == ["nan-compare"]


def test_division_is_allowed_in_one_place() -> None:
    assert "OpFDiv" in str([str(item) for item in read_module(NORM).of(Opcode.FDiv)])
    divides = replace_first(Opcode.FAdd, lambda item: encode_instruction(Opcode.FDiv, *item.operands))
    assert lint_rules(edit_module(ADD, divides)) == ["division"]


@pytest.mark.parametrize(
    ("number", "advice"), [(40, "fmax_"), (50, "a product and a sum"), (27, "fexp_"), (4, "")]
)
def test_imprecise_extended_instructions_are_reported(number: int, advice: str) -> None:
    change = replace_first(
        Opcode.ExtInst, lambda e: encode_instruction(e.opcode, *e.operands[:3], number, *e.operands[4:])
    )
    (remark,) = lint_module(read_module(edit_module(NORM, change)))
    assert remark.rule == "ext-inst" and advice in remark.advice


def test_square_root_is_allowed_in_one_place() -> None:
    def rename_function(instruction):  # type: ignore[no-untyped-def]
        moved = instruction.opcode == Opcode.Name and b"fsqrt_" in b"".join(
            w.to_bytes(4, "little") for w in instruction.operands
        )
        return () if moved else None

    assert lint_rules(edit_module(NORM, rename_function)) == ["ext-inst"]


@pytest.mark.parametrize(
    ("opcode", "problem"),
    [(229, "an atomic"), (349, "a group operation"), (148, "OpDot"), (156, "OpIsNan"), (95, "")],
)
def test_opcodes_used_by_no_kernel_are_reported(opcode: int, problem: str) -> None:
    change = replace_first(Opcode.FAdd, lambda item: encode_instruction(opcode, *item.operands))
    remarks = lint_module(read_module(edit_module(ADD, change)))
    assert [remark.rule for remark in remarks] == ["opcode"] and problem in remarks[0].message


def test_capabilities_and_modes_are_set_only_by_the_loader() -> None:
    half = insert_before(Opcode.Capability, *encode_instruction(Opcode.Capability, 9))
    assert lint_rules(edit_module(ADD, half)) == ["capability"]
    assert set(lint_rules(add_modes(ADD, ("RoundingModeRTE",)))) == {"capability", "workgroup"}


def test_descriptor_bindings_are_reported() -> None:
    bound = insert_before(Opcode.Decorate, *encode_instruction(Opcode.Decorate, 1, 33, 0))
    assert lint_rules(edit_module(ADD, bound)) == ["descriptor"]


def test_device_dependent_built_ins_are_reported() -> None:
    def change_workgroup(instruction):  # type: ignore[no-untyped-def]
        named = instruction.opcode == Opcode.Decorate and instruction.operands[1:] == (11, 26)
        return encode_instruction(Opcode.Decorate, instruction.operands[0], 11, 36) if named else None

    assert lint_rules(edit_module(ADD, change_workgroup)) == ["built-in"]


def test_device_dependent_sizes_are_reported() -> None:
    wide = replace_first(Opcode.ExecutionMode, lambda e: encode_instruction(e.opcode, *e.operands[:2], 256, 1, 1))
    assert lint_rules(edit_module(ADD, wide)) == ["workgroup"]
    module = read_module(NORM)
    array = next(item for item in module.of(Opcode.TypeArray) if module.constant(item.operands[2]) == 33)
    big = replace_first(Opcode.Constant, lambda item: encode_instruction(item.opcode, *item.operands))
    assert lint_rules(edit_module(NORM, big)) == []

    def lengthen_array(instruction):  # type: ignore[no-untyped-def]
        return (
            encode_instruction(instruction.opcode, *instruction.operands[:2], 4097)
            if instruction.result == array.operands[2]
            else None
        )

    remarks = lint_module(read_module(edit_module(NORM, lengthen_array)))
    assert [remark.message for remark in remarks] == [
        "16388 bytes of shared memory: not every device has more than 16384"
    ]


HEAD = '#version 460\n#extension GL_GOOGLE_include_directive : require\n#include "kernel.glsl"\n'
LOOPS = {
    "unrolled": ("[[unroll]] for (int i = 0; i < 4; i++) t[i] = args.x.v[i];", True),
    "plain": ("for (int i = 0; i < 4; i++) t[i] = args.x.v[i];", False),
    "by a lane": ("t[lane & 3u] = args.x.v[0];", False),
    "by twice a counter": ("[[unroll]] for (int i = 0; i < 2; i++) t[2 * i + 1] = args.x.v[i];", True),
    "around a plain loop": (
        "[[unroll]] for (int i = 0; i < 4; i++) for (uint j = 0u; j < args.n; j++) t[i] = args.x.v[j];",
        False,
    ),
    "around an unrolled loop": (
        "[[unroll]] for (int i = 0; i < 2; i++) [[unroll]] for (int j = 0; j < 2; j++) t[2*i+j] = args.x.v[0];",
        True,
    ),
    "around a call that loops": ("[[unroll]] for (int i = 0; i < 4; i++) t[i] = total(uint(i));", False),
    "set as a whole": ("t = float[4](1.5, 2.5, 3.5, 4.5); t[lane & 3u] = args.x.v[0];", True),
}


@pytest.mark.rest(keep=1)
@needs_glslang
@pytest.mark.parametrize("name", LOOPS)
def test_private_arrays_are_reported(name: str, tmp_path: Path) -> None:
    body, fine = LOOPS[name]
    total = (
        "float total(uint n) { float s = args.x.v[0]; for (uint i = 1u; i < n; i++) s += args.x.v[i]; return s; }"
    )
    path = tmp_path / "array.comp"
    path.write_text(
        f"{HEAD}KERNARG(F32 x; F32RW y; uint n;)\n{total}\n"
        f"void main() {{ float t[4]; {body}\n args.y.v[0] = t[0] + t[1] + t[2] + t[3] + total(args.n); }}\n"
    )
    if fine:
        assert compiler.compile_source(compiler.GlslSource(path))
        return
    with pytest.raises(compiler.InputError, match="private-array"):
        compiler.compile_source(compiler.GlslSource(path))


BARRIERS = {
    "for all": ("barrier();", True),
    "in a lane's branch": ("if (lane < 4u) barrier();", False),
    "in a workgroup's branch": ("if (gl_WorkGroupID.x < args.n) barrier();", True),
    "in a row's branch": ("if (gl_GlobalInvocationID.y < args.n) barrier();", True),
    "behind a lane's return": ("if (gl_GlobalInvocationID.x >= args.n) return; barrier();", False),
    "behind a workgroup's return": ("if (gl_WorkGroupID.x >= args.n) return; barrier();", True),
    "in a loop by arguments": ("for (uint i = 0u; i < args.n; i++) barrier();", True),
    "in a loop by a load for all": ("for (uint i = 0u; i < args.x.v[gl_WorkGroupID.x]; i++) barrier();", True),
    "in a loop by a lane's load": ("for (uint i = 0u; i < args.x.v[lane]; i++) barrier();", False),
    "in a loop from a lane": ("for (uint i = lane; i < args.n; i += LANES) barrier();", False),
    "in a loop that a lane leaves": (
        "for (uint i = 0u; i < args.n; i++) { if (args.x.v[lane] == i) break; barrier(); }",
        False,
    ),
    "in a loop that a lane goes on with": (
        "for (uint i = 0u; i < args.n; i++) { if (args.x.v[lane] == i) continue; barrier(); }",
        False,
    ),
    "by what a lane stored": ("uint k = 0u; if (lane > 2u) k = 1u; if (k == 0u) barrier();", False),
    "by shared memory for all": ("if (words[0] == 0u) barrier();", True),
    "by a lane's shared memory": ("if (words[lane] == 0u) barrier();", False),
    "by one condition of two": ("if (args.n > 3u && lane > 3u) barrier();", False),
    "by a lane's argument": ("if (twice(lane) > 3u) barrier();", False),
    "by an argument for all": ("if (twice(args.n) > 3u) barrier();", True),
    "in a function, for all": ("meet();", True),
    "in a function, for a lane": ("if (lane < 4u) meet();", False),
    "by what a function gave out": ("uint k; give(k); if (k > 3u) barrier();", False),
}
FUNCTIONS = """
shared uint words[32];
uint twice(uint n) { return n + n; }
void give(out uint n) { n = lane; }
void meet() { barrier(); }
"""


@pytest.mark.rest(keep=2)
@needs_glslang
@pytest.mark.parametrize("name", BARRIERS)
def test_misplaced_barriers_are_reported(name: str, tmp_path: Path) -> None:
    body, fine = BARRIERS[name]
    path = tmp_path / "barrier.comp"
    path.write_text(
        f"{HEAD}KERNARG(U32 x; U32RW y; uint n;)\n{FUNCTIONS}\n"
        f"void main() {{ words[lane] = args.n; {body}\n args.y.v[lane] = words[lane]; }}\n"
    )
    result = lint_module(read_module(compiler.build(compiler.GlslSource(path))))
    assert [remark.rule for remark in result] == ([] if fine else ["barrier"])


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spirv.md").read_text()
    assert {f"`{rule}`" for rule in RULES} <= set(page.split())
