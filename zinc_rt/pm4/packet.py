"""The base class of packets: their dwords, and the state of the command processor (CP) that they access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self, TypeVar

from zinc_rt.host.errors import InputError
from zinc_rt.pm4.fields import Field
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.registers import Space

AccessKind = Literal["read", "write", "execute"]


class EncodeError(InputError):
    """A packet's field does not fit its bits, or the chip has no such field."""


@dataclass(frozen=True, slots=True)
class Access:
    """An access of the CP to `size_bytes` at `va`, a multiple of `align`; `dword` is the VA's position in the
    packet."""

    va: int
    size_bytes: int
    kind: AccessKind
    align: int
    dword: int


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """A register set by a packet: absolute dword address, value, and the value's dword in the packet."""

    address: int
    value: int
    dword: int


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet. Subclasses are made by `codec.packet`, which also makes `words` and `read`."""

    # (dword, bits) outside all fields; nonzero ones only, in order. Dword 0 is the header's low byte.
    reserved: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    OP: ClassVar[int]
    NAME: ClassVar[str]
    ON: ClassVar[tuple[Generation, ...]]
    DWORDS: ClassVar[tuple[int, ...]]  # the possible sizes, smallest first
    GROUP: ClassVar[int] = 0  # step of the sizes above the smallest; 0 if the size is fixed
    FIELDS: ClassVar[tuple[Field, ...]]
    SPACE: ClassVar[Space | None] = None  # the register space that it sets
    PRIVILEGED: ClassVar[bool] = False  # for the driver's own queues
    RESERVED_HINTS: ClassVar[Mapping[int, str]] = {}  # dword -> advice for its reserved bits

    def words(self, generation: Generation) -> list[int]:
        """Return the packet's dwords, header first. Raise EncodeError if a field does not fit."""
        raise NotImplementedError

    @classmethod
    def read(cls, words: Sequence[int], offset: int, length: int, generation: Generation) -> Self:
        """Decode the packet in words[offset : offset + length]. The length must be valid for this class."""
        raise NotImplementedError

    @classmethod
    def takes(cls, length: int) -> bool:
        """Return whether a packet of this class can have `length` dwords."""
        if length in cls.DWORDS:
            return True
        return bool(cls.GROUP) and length > cls.DWORDS[-1] and (length - cls.DWORDS[-1]) % cls.GROUP == 0

    @classmethod
    def sizes(cls) -> str:
        """Return the valid sizes as a text: `5`, `2 or 4`, `3 or more`."""
        text = " or ".join(map(str, cls.DWORDS))
        if not cls.GROUP:
            return text
        return f"{text} or more" if cls.GROUP == 1 else f"{text} + a multiple of {cls.GROUP}"

    def accesses(self) -> Iterator[Access]:
        """Return the memory that the CP itself reads, writes or executes for this packet, without accesses by
        shaders."""
        return iter(())

    def register_writes(self) -> Iterator[RegisterWrite]:
        """Return the registers that this packet sets, in order."""
        return iter(())

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        """Return the errors specific to this packet; lint.py checks the rules for every packet."""
        return iter(())

    def payload_texts(self) -> Iterator[tuple[int, str]]:
        """Return the dword and the text of each payload item, as the disassembler shows it."""
        for packet_field in self.FIELDS:
            if packet_field.place.payload:
                first = packet_field.place.spans[0].dword
                yield from (
                    (first + i, f"[{i}] = {item:#x}") for i, item in enumerate(getattr(self, packet_field.name))
                )


BY_OPCODE: dict[int, list[type[Packet]]] = {}
"""Every packet class, by opcode: `codec.packet` enters it here where the class is defined."""

P = TypeVar("P", bound=Packet)


def register(cls: type[P]) -> type[P]:
    """Register a packet class for decoding."""
    BY_OPCODE.setdefault(cls.OP, []).append(cls)
    return cls
