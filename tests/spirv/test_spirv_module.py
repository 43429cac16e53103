"""The reader: what a module holds, and damage told in one sentence."""

from __future__ import annotations

import random

import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.kernels.spirv.table import module as committed
from zinc_rt.spirv.module import decode_text, encode_text, encode_words, read_module
from zinc_rt.spirv.opcodes import Opcode

ADD = committed("add")


def test_module_is_parsed_into_its_instructions() -> None:
    module = read_module(ADD)
    assert module.instructions[0].opcode == Opcode.Capability
    assert sum(1 + len(instruction.operands) for instruction in module.instructions) + 5 == len(module.words)
    assert encode_words(module.words) == ADD
    assert "main" in [function.name for function in module.functions]
    assert len(list(module.of(Opcode.FAdd))) == 1


def test_instruction_has_type_result_and_inputs() -> None:
    module = read_module(ADD)
    (add,) = module.of(Opcode.FAdd)
    assert module.definitions[add.type or 0].opcode == Opcode.TypeFloat
    assert module.definitions[add.result or 0] is add
    assert all(module.definitions[id].opcode == Opcode.Load for id in add.inputs)
    assert next(module.of(Opcode.Store)).result is None
    assert str(add).startswith("OpFAdd ")


def test_string_round_trips_through_words() -> None:
    for text in ("", "a", "abc", "abcd", "süß"):
        assert decode_text(encode_text(text)) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has 0 bytes, expected whole words"),
        (ADD[:-1], "expected whole words"),
        (ADD[:16], "has 16 bytes, expected whole words and at least 5"),
        (ADD[::-1], "expected SPIR-V's 0x07230203"),
        (ADD[:20] + b"\0\0\0\0" + ADD[24:], "word 5: opcode 0 has length 0 words"),
        (ADD[:20] + b"\x2b\0\xff\xff" + ADD[24:], "OpConstant has length 65535 words"),
        (ADD[:20] + b"\x2b\0\x01\0" + ADD[24:], "OpConstant has too few operands: 0"),
    ],
)
def test_damage_is_reported_with_its_offset(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_module(data, "add.spv")


def test_damaged_module_is_read_or_rejected() -> None:
    chance = random.Random(1)
    for _ in range(300):
        data = bytearray(ADD)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            module = read_module(bytes(data))
        except InputError:
            continue
        assert module.instructions and module.functions is not None
