"""What the build and the loader do to a module: decorations, alignments, float modes."""

from __future__ import annotations

import pytest
from spirv.spirv_edits import edit_module, encode_instruction, remove_instruction

from zinc_rt.host.errors import InputError
from zinc_rt.kernels.spirv.table import module as committed
from zinc_rt.spirv.build import ALIGNED, NO_CONTRACTION, finish_module
from zinc_rt.spirv.modes import MODES, add_modes
from zinc_rt.spirv.module import GENERATOR, encode_words, read_module
from zinc_rt.spirv.opcodes import ROUNDED, Opcode

NORM = committed("rms_norm")


def test_every_float_operation_is_decorated_once() -> None:
    bare = edit_module(NORM, remove_instruction(Opcode.Decorate, NO_CONTRACTION))
    assert not read_module(bare).find_decorated(NO_CONTRACTION)
    module = read_module(finish_module(bare))
    decorated = [item.operands[0] for item in module.of(Opcode.Decorate) if item.operands[1] == NO_CONTRACTION]
    assert sorted(decorated) == sorted(item.operands[1] for item in module.of(*ROUNDED))


def test_finishing_a_finished_module_changes_nothing() -> None:
    assert finish_module(NORM) == NORM


def test_generator_is_cleared_and_the_source_is_recorded() -> None:
    words = list(read_module(NORM).words)
    words[GENERATOR] = 0x8000B
    module = read_module(finish_module(encode_words(words), "of here"))
    assert module.words[GENERATOR] == 0
    assert "of here" in module.processed


def test_address_loads_are_8_byte_aligned() -> None:
    def restore_generator(each):  # type: ignore[no-untyped-def]
        loads = each.opcode == Opcode.Load and each.operands[3:4] == (ALIGNED,)
        return encode_instruction(Opcode.Load, *each.operands[:4], 4) if loads else None

    module = read_module(finish_module(edit_module(NORM, restore_generator)))
    loads = [item for item in module.of(Opcode.Load) if item.operands[3:4] == (ALIGNED,)]
    of_addresses = [load for load in loads if module.definitions[load.operands[0]].opcode == Opcode.TypePointer]
    assert of_addresses and {load.operands[4] for load in of_addresses} == {8}
    assert {load.operands[4] for load in loads if load not in of_addresses} == {4}


def test_empty_module_is_rejected() -> None:
    with pytest.raises(InputError, match="not a kernel"):
        finish_module(NORM[:20])
    with pytest.raises(InputError, match="not a kernel"):
        add_modes(NORM[:20], ("DenormPreserve",))


def test_float_modes_add_capabilities_and_32_bit_execution_modes() -> None:
    module = read_module(add_modes(NORM, tuple(MODES)))
    capabilities = [item.operands[0] for item in module.of(Opcode.Capability)]
    operands = [item.operands for item in module.of(Opcode.ExecutionMode)]
    entry = next(module.of(Opcode.EntryPoint)).operands[1]
    for capability, mode in MODES.values():
        assert capabilities.count(capability) == 1
        assert (entry, mode, 32) in operands
    assert add_modes(NORM, ()) == NORM
    order = [instruction.opcode for instruction in module.instructions]
    last = max(i for i, opcode in enumerate(order) if opcode == Opcode.Capability)
    assert set(order[: last + 1]) == {Opcode.Capability}
    offset = [i for i, opcode in enumerate(order) if opcode == Opcode.ExecutionMode]
    assert offset == list(range(offset[0], offset[0] + len(offset))) and order[offset[0] - 1] == Opcode.EntryPoint


def test_unknown_mode_is_reported() -> None:
    with pytest.raises(InputError, match="unknown float mode RTZ: expected a subset of DenormPreserve"):
        add_modes(NORM, ("RTZ",))
