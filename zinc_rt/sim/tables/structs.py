"""Rows of the C structs that ioctls carry: a member's offset and width in bytes, as x86-64 lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Way = Literal["in", "out", "both"]  # whose bytes an array's are: the caller's, the kernel's


@dataclass(frozen=True, slots=True)
class Member:
    """`count` numbers of `size_bytes` each, from byte `offset` on. `c`: its header's path, if not the name."""

    offset: int
    size_bytes: int
    c: str = ""
    count: int = 1
    signed: bool = False


def u16(offset: int, c: str = "") -> Member:
    return Member(offset, 2, c)


def u32(offset: int, c: str = "", count: int = 1) -> Member:
    return Member(offset, 4, c, count)


def s32(offset: int, c: str = "") -> Member:
    return Member(offset, 4, c, signed=True)


def u64(offset: int, c: str = "", count: int = 1) -> Member:
    return Member(offset, 8, c, count)


def s64(offset: int, c: str = "") -> Member:
    return Member(offset, 8, c, signed=True)


@dataclass(frozen=True, slots=True)
class Array:
    """What the pointer in member `pointer` shows: as many elements as member `count` says.

    `per` > 1: the count is of smaller units, that many to an element.
    """

    pointer: str
    count: str
    element_bytes: int
    way: Way
    per: int = 1


@dataclass(frozen=True, slots=True)
class CarriedArray:
    """One array of one call: `size_bytes` at `address` in the caller's process."""

    array: Array
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StructLayout:
    c_name: str
    size_bytes: int
    fields: Mapping[str, Member]
    arrays: tuple[Array, ...] = ()

    def new(self, **values: int | tuple[int, ...]) -> Fields:
        """Zeroed, then these members set."""
        made = Fields(self, bytearray(self.size_bytes))
        for name, value in values.items():
            made[name] = value
        return made

    def read(self, raw: bytes | bytearray | memoryview) -> Fields:
        """A copy; what `raw` lacks is zero, what it has beyond this struct is dropped."""
        return Fields(self, bytearray(raw[: self.size_bytes]).ljust(self.size_bytes, b"\0"))

    def pointed(self, fields: Fields) -> list[CarriedArray]:
        """The arrays that a call points to, by the counts it carries now; null and empty ones are none."""
        found = []
        for array in self.arrays:
            size_bytes = fields[array.count] // array.per * array.element_bytes
            if fields[array.pointer] and size_bytes:
                found.append(CarriedArray(array, fields[array.pointer], size_bytes))
        return found


class Fields:
    """A struct's bytes, its members by name: `fields["queue_id"]`."""

    __slots__ = ("layout", "raw")

    def __init__(self, layout: StructLayout, raw: bytearray) -> None:
        self.layout = layout
        self.raw = raw

    def __getitem__(self, name: str) -> int:
        member = self.layout.fields[name]
        raw = self.raw[member.offset : member.offset + member.size_bytes]
        return int.from_bytes(raw, "little", signed=member.signed)

    def __setitem__(self, name: str, value: int | tuple[int, ...]) -> None:
        """Raises OverflowError for a value that does not fit: a fault of the device, not of its caller."""
        member = self.layout.fields[name]
        at = member.offset
        for number in value if isinstance(value, tuple) else (value,):
            self.raw[at : at + member.size_bytes] = number.to_bytes(
                member.size_bytes, "little", signed=member.signed
            )
            at += member.size_bytes


@dataclass(frozen=True, slots=True)
class IoctlRow:
    """`direction` is the caller's: "w" it passes the argument, "r" it gets it back."""

    name: str
    type_: str
    number: int
    direction: str
    layout: StructLayout | None = None

    @property
    def writes(self) -> bool:
        """The kernel copies the argument back."""
        return "r" in self.direction


# asm-generic/ioctl.h on x86-64: number [7:0], type [15:8], size [29:16], direction [31:30]
def request_key(request: int) -> tuple[str, int]:
    """What the kernel dispatches on: never the size or the direction (kfd_chardev.c, drm_ioctl.c)."""
    return chr(request >> 8 & 0xFF), request & 0xFF


def request_size_bytes(request: int) -> int:
    """The size of the caller's struct."""
    return request >> 16 & 0x3FFF


def by_key(*ioctls: IoctlRow) -> dict[tuple[str, int], IoctlRow]:
    return {(each.type_, each.number): each for each in ioctls}
