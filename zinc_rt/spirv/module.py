"""A SPIR-V module as data: its instructions in order, and its names.

    module = read(Path("add.spv").read_bytes())      # InputError for bytes that are no whole module
    [each for each in module.instructions if each.opcode == Opcode.FAdd]

The container is that of the specification's section 2.3: five words, then instructions, each with its length in
words and its opcode in the first word. An unknown opcode is not an error here: lint.py checks the opcodes of
kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from zinc_rt.host.errors import InputError
from zinc_rt.spirv.opcodes import TYPELESS, WITHOUT_RESULT, Opcode, find_opcode_name

MAGIC = 0x07230203
HEADER_WORDS = 5
GENERATOR = 2  # the generator word of the header
_KNOWN = frozenset(Opcode)
_LEAST_WITHOUT_RESULT: dict[int, int] = {
    Opcode.Capability: 1, Opcode.EntryPoint: 2, Opcode.ExecutionMode: 2, Opcode.Name: 1, Opcode.MemberName: 2,
    Opcode.Decorate: 2, Opcode.MemberDecorate: 3, Opcode.Store: 2, Opcode.LoopMerge: 3,
}  # fmt: skip
_LEAST: dict[int, int] = {
    Opcode.ExtInst: 4, Opcode.Function: 4, Opcode.FunctionCall: 3, Opcode.Variable: 3, Opcode.Load: 3,
    Opcode.AccessChain: 3, Opcode.Constant: 3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SpirvInstruction:
    """An instruction. `operands`: the words after the first. `at`: the first word's index in the module."""

    opcode: int
    operands: tuple[int, ...]
    at: int

    @property
    def result(self) -> int | None:
        """The id that it defines; None if it defines none, or its opcode is unknown here."""
        if self.opcode in WITHOUT_RESULT or self.opcode not in _KNOWN:
            return None
        return self.operands[0] if self.opcode in TYPELESS else self.operands[1]

    @property
    def type(self) -> int | None:
        """The id of its result's type."""
        if self.opcode in WITHOUT_RESULT or self.opcode in TYPELESS or self.opcode not in _KNOWN:
            return None
        return self.operands[0]

    @property
    def inputs(self) -> tuple[int, ...]:
        """The operands after type and result, ids and literals alike."""
        if self.opcode in WITHOUT_RESULT or self.opcode not in _KNOWN:
            return self.operands
        return self.operands[1:] if self.opcode in TYPELESS else self.operands[2:]

    def __str__(self) -> str:
        return f"{find_opcode_name(self.opcode)} {' '.join(map(str, self.operands))}".strip()


@dataclass(frozen=True, slots=True)
class SpirvFunction:
    """A function. `name` is glslang's: the GLSL name, "(" and its parameters; "main" is the entry point."""

    id: int
    name: str
    instructions: tuple[SpirvInstruction, ...]


@dataclass(frozen=True)
class SpirvModule:
    """A module. `words`: the whole file. `names`: the OpName strings, by id."""

    words: tuple[int, ...]
    instructions: tuple[SpirvInstruction, ...]
    names: dict[int, str] = field(repr=False)

    @cached_property
    def definitions(self) -> dict[int, SpirvInstruction]:
        """Return the defining instruction of each id."""
        pairs = ((instruction.result, instruction) for instruction in self.instructions)
        return {result: item for result, item in pairs if result is not None}

    @cached_property
    def functions(self) -> tuple[SpirvFunction, ...]:
        """Return the functions in file order, each from OpFunction to OpFunctionEnd."""
        bodies: list[SpirvFunction] = []
        body: list[SpirvInstruction] = []
        for instruction in self.instructions:
            if instruction.opcode == Opcode.Function:
                body = []
            body.append(instruction)
            if instruction.opcode == Opcode.FunctionEnd and body[0].opcode == Opcode.Function:
                function_id = body[0].operands[1]
                bodies.append(SpirvFunction(function_id, self.names.get(function_id, ""), tuple(body)))
        return tuple(bodies)

    def of(self, *opcodes: int) -> Iterator[SpirvInstruction]:
        """Return the instructions with one of these opcodes."""
        return (instruction for instruction in self.instructions if instruction.opcode in opcodes)

    def find_decorated(self, decoration: int) -> dict[int, tuple[int, ...]]:
        """Return the ids with a decoration by OpDecorate, with its literals."""
        return {
            item.operands[0]: item.operands[2:]
            for item in self.of(Opcode.Decorate)
            if item.operands[1] == decoration
        }

    def constant(self, id: int) -> int | None:
        """Return the bits of a scalar OpConstant, 32 or 64; None for anything else."""
        definition = self.definitions.get(id)
        if definition is None or definition.opcode != Opcode.Constant:
            return None
        return sum(word << 32 * index for index, word in enumerate(definition.inputs))

    @property
    def processed(self) -> tuple[str, ...]:
        """Return the processing recorded by OpModuleProcessed."""
        return tuple(decode_text(item.operands) for item in self.of(Opcode.ModuleProcessed))


def read_module(data: bytes, source: str = "SPIR-V") -> SpirvModule:
    """Parse the module in `data`. Raise InputError, naming `source`, for an incomplete module."""
    words = decode_words(data, source)
    decoded = tuple(iterate_instructions(words, source))
    names = {item.operands[0]: decode_text(item.operands[1:]) for item in decoded if item.opcode == Opcode.Name}
    return SpirvModule(words, decoded, names)


def decode_words(data: bytes, source: str = "SPIR-V") -> tuple[int, ...]:
    """Return the file's words. Raise InputError if the header is incomplete."""
    if len(data) % 4 or len(data) < 4 * HEADER_WORDS:
        raise InputError(f"{source}: has {len(data)} bytes, expected whole words and at least {HEADER_WORDS}")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if words[0] != MAGIC:
        raise InputError(
            f"{source}: begins with {words[0]:#010x}, expected SPIR-V's {MAGIC:#010x} (little-endian)"
        )
    return words


def encode_words(words: tuple[int, ...] | list[int]) -> bytes:
    """Convert words to bytes; the inverse of words_of."""
    return struct.pack(f"<{len(words)}I", *words)


def iterate_instructions(words: tuple[int, ...], source: str = "SPIR-V") -> Iterator[SpirvInstruction]:
    """Yield the instructions in order. Raise InputError for a length that is invalid or exceeds the file."""
    offset = HEADER_WORDS
    while offset < len(words):
        length, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        if not 0 < length <= len(words) - offset:
            raise InputError(
                f"{source}: word {offset}: {find_opcode_name(opcode)} has length {length} words, but only "
                f"{len(words) - offset} words are left"
            )
        instruction = SpirvInstruction(opcode, words[offset + 1 : offset + length], offset)
        if length - 1 < _count_least_operands(opcode):
            raise InputError(
                f"{source}: word {offset}: {find_opcode_name(opcode)} has too few operands: {length - 1}"
            )
        yield instruction
        offset += length


def _count_least_operands(opcode: int) -> int:
    """Return the minimum number of operands: type and result if present, plus the operands read by this
    package.
    """
    if opcode in WITHOUT_RESULT or opcode not in _KNOWN:
        return _LEAST_WITHOUT_RESULT.get(opcode, 0)
    return 1 if opcode in TYPELESS else _LEAST.get(opcode, 2)


def decode_text(words: tuple[int, ...]) -> str:
    """Decode a literal string: UTF-8 up to its first zero byte."""
    return encode_words(words).partition(b"\0")[0].decode("utf-8", "replace")


def encode_text(text: str) -> tuple[int, ...]:
    """Encode a string as a literal, with its zero byte and padding."""
    data = text.encode() + b"\0"
    return struct.unpack(f"<{-(-len(data) // 4)}I", data + bytes(-len(data) % 4))
