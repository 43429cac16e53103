"""Field declarations of packet classes: one line per field, from which codec.py generates encoder and decoder.

    @packet(0x22, dwords=5)
    class CondExec(Packet):
        address: int = address(1)                       # dwords 1 and 2
        exec_count: int = bits(4, 13, 0)
        cache_policy: int = bits(3, 26, 25, default=0)

Dword 0 is the header; bit ranges are [high:low], inclusive. Bits without a field are kept in `reserved`, so that
decoding followed by encoding reproduces the dwords exactly, and the linter can check these bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from zinc_rt.pm4.bits import Bits
from zinc_rt.pm4.generation import BOTH, Generation

Names = Mapping[int, str]

# Names of the values of fields that several packets share. Source: PAL's MEC packet headers.
CACHE_POLICY = {0: "lru", 1: "stream", 2: "noa", 3: "bypass"}  # gfx11
TEMPORAL = {0: "rt", 1: "nt", 2: "ht", 3: "lu"}  # gfx12
CACHE = (CACHE_POLICY, TEMPORAL)
CACHE_LABELS = ("cache_policy", "temporal")

FUNCTIONS = {0: "always", 1: "<", 2: "<=", 3: "==", 4: "!=", 5: ">=", 6: ">"}  # unsigned


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
    """The location of a field, lowest bits first, and the names of its values."""

    spans: tuple[Span, ...]
    on: tuple[Generation, ...] = BOTH
    names: tuple[Names, Names] | None = None  # gfx11, gfx12
    complete: bool = True  # unnamed values are reserved
    labels: tuple[str, str] | None = None  # where the generations use different names
    is_address: bool = False
    inner: Mapping[Generation, tuple[Bits, ...]] | None = None  # if the field consists of bit fields itself
    payload: str = ""  # of a tuple: its layout in the dwords from spans[0] on; see codec.py
    optional: bool = False  # if None, its dwords, the packet's last, are omitted

    def values(self, generation: Generation) -> Names | None:
        return None if self.names is None else self.names[generation == Generation.GFX12]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a packet class: its attribute name and its location."""

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
    inner: Mapping[Generation, tuple[Bits, ...]] | None = None,
) -> Any:
    """Declare bits [high:low] of one dword. `values` are all allowed values, `known` some; pairs are (gfx11,
    gfx12)."""
    named = known if values is None else values
    names = named if isinstance(named, tuple) or named is None else (named, named)
    span = Span(dword, high, high if low is None else low)
    location = Place((span,), on, names, complete=known is None, labels=labels, inner=inner)
    return field(default=default, metadata={"place": location})


def word(dword: int, *, default: Any = MISSING, inner: Mapping[Generation, tuple[Bits, ...]] | None = None) -> Any:
    """Declare one whole dword."""
    return bits(dword, 31, 0, default=default, inner=inner)


def pair(dword: int, *, high_bits: int = 32, default: Any = MISSING) -> Any:
    """Declare 64 bits (or 32 + `high_bits`), low dword first."""
    spans = (Span(dword, 31, 0), Span(dword + 1, high_bits - 1, 0))
    return field(default=default, metadata={"place": Place(spans)})


def address(dword: int, *, high_bits: int = 32, default: Any = MISSING, optional: bool = False) -> Any:
    """Declare a GPU VA in bytes, low dword first. Low bits that alignment requires to be 0 are kept for the
    linter."""
    spans = (Span(dword, 31, 0), Span(dword + 1, high_bits - 1, 0))
    location = Place(spans, is_address=True, optional=optional)
    return field(default=default, metadata={"place": location})


def payload(dword: int, kind: str = "values", *, default: Any = MISSING) -> Any:
    """Declare all dwords from `dword` to the packet's end: `values`, or groups of one of the kinds in codec.py."""
    return field(default=default, metadata={"place": Place((Span(dword, 31, 0),), payload=kind)})
