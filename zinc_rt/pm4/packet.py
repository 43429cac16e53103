"""How a packet class says where its fields lie: one line a field, from which codec.py makes encoder and decoder.

    @packet(Op.COND_EXEC, dwords=5)
    class CondExec(Packet):
        address: int = address(1)                       # dwords 1 and 2
        exec_count: int = bits(4, 13, 0)
        cache_policy: int = bits(3, 26, 25, default=0)

Dword 0 is the header; bit ranges are [high:low], inclusive. Bits no field has are kept in `reserved`, so that
decoding and encoding again gives the same dwords whatever they were, and the linter sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Self

from zinc_rt.errors import InputError
from zinc_rt.pm4.generation import BOTH, Generation
from zinc_rt.pm4.opcodes import Opcode

Names = Mapping[int, str]
U32 = 0xFFFFFFFF


class EncodeError(InputError):
    """A packet's field does not fit its bits, or the chip has no such field."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bits [high:low] of one dword of the packet."""

    dword: int
    high: int
    low: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low


@dataclass(frozen=True, slots=True)
class Place:
    """Where a field lies, lowest bits first, and what its values are called."""

    spans: tuple[Span, ...]
    on: tuple[Generation, ...] = BOTH
    names: tuple[Names, Names] | None = None  # gfx11, gfx12
    complete: bool = True  # a value without a name is reserved
    labels: tuple[str, str] | None = None  # where the generations call it differently
    is_address: bool = False
    payload: str = ""  # of a tuple: how it lies in the dwords from spans[0] on; see codec.py
    optional: bool = False  # None leaves out its dwords, the packet's last

    def values(self, generation: Generation) -> Names | None:
        return None if self.names is None else self.names[generation == Generation.GFX12]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a packet class: its attribute's name and its place."""

    name: str
    place: Place

    def label(self, generation: Generation) -> str:
        return self.name if self.place.labels is None else self.place.labels[generation == Generation.GFX12]


def bits(
    dword: int,
    high: int,
    low: int | None = None,
    *,
    default: Any = MISSING,
    on: tuple[Generation, ...] = BOTH,
    values: Names | tuple[Names, Names] | None = None,
    known: Names | None = None,
    labels: tuple[str, str] | None = None,
) -> Any:
    """Bits [high:low] of one dword. `values` are all it may hold, `known` only some; pairs are (gfx11, gfx12)."""
    named = known if values is None else values
    names = named if isinstance(named, tuple) or named is None else (named, named)
    span = Span(dword, high, high if low is None else low)
    place = Place((span,), on, names, complete=known is None, labels=labels)
    return field(default=default, metadata={"place": place})


def word(dword: int, *, default: Any = MISSING) -> Any:
    """One whole dword."""
    return bits(dword, 31, 0, default=default)


def pair(dword: int, *, high_bits: int = 32, default: Any = MISSING) -> Any:
    """64 bits (or 32 + `high_bits`), low dword first."""
    spans = (Span(dword, 31, 0), Span(dword + 1, high_bits - 1, 0))
    return field(default=default, metadata={"place": Place(spans)})


def address(dword: int, *, high_bits: int = 32, default: Any = MISSING, optional: bool = False) -> Any:
    """A GPU VA in bytes, low dword first. The bits that alignment makes 0 are kept, for the linter to see."""
    spans = (Span(dword, 31, 0), Span(dword + 1, high_bits - 1, 0))
    place = Place(spans, is_address=True, optional=optional)
    return field(default=default, metadata={"place": place})


def payload(dword: int, kind: str = "values", *, default: Any = MISSING) -> Any:
    """Everything from `dword` to the packet's end: `values`, or groups of one of the kinds in codec.py."""
    return field(default=default, metadata={"place": Place((Span(dword, 31, 0),), payload=kind)})


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet. Subclasses are made by `codec.packet`, which also makes `words` and `read`."""

    # (dword, bits) that no field has; nonzero ones only, in order. Dword 0 is the header's low byte.
    reserved: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)

    OP: ClassVar[Opcode]
    NAME: ClassVar[str]
    ON: ClassVar[tuple[Generation, ...]]
    DWORDS: ClassVar[tuple[int, ...]]  # the sizes it can have, smallest first
    GROUP: ClassVar[int] = 0  # dwords that a longer one grows by; 0 where the size is fixed
    FIELDS: ClassVar[tuple[Field, ...]]

    def words(self, generation: Generation) -> list[int]:
        """The packet's dwords, header first. Raises EncodeError where a field does not fit."""
        raise NotImplementedError

    @classmethod
    def read(cls, words: Sequence[int], offset: int, length: int, generation: Generation) -> Self:
        """The packet in words[offset : offset + length], a size this class takes."""
        raise NotImplementedError

    @classmethod
    def takes(cls, length: int) -> bool:
        """Whether a packet of this class can have `length` dwords."""
        if length in cls.DWORDS:
            return True
        return bool(cls.GROUP) and length > cls.DWORDS[-1] and (length - cls.DWORDS[-1]) % cls.GROUP == 0

    @classmethod
    def sizes(cls) -> str:
        """`5`, `2 or 4`, `3 or more`, in words."""
        text = " or ".join(map(str, cls.DWORDS))
        if not cls.GROUP:
            return text
        return f"{text} or more" if cls.GROUP == 1 else f"{text} + a multiple of {cls.GROUP}"
