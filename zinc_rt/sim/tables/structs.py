"""Format of the tables of C structs passed to ioctls, and access of the driver to such structs.

    GEM_CLOSE = struct("drm_gem_close", 8, "handle u32 0; pad u32 4")

A row has the struct's name in its header, its size in bytes, and each member with its type and offset on x86-64:

    queue_id u32 52             unsigned, 32 bits, at byte 52; `s64`: signed; `u32*16`: an array of 16
    in.bo_size u64 0            the member's path in the header, for a member of a union or an inner struct
    reset_gpu_id=hw_exception_data.gpu_id u32 12    a name used here, if the last part of the path is ambiguous
    =vram.heap_usage u64 16     named by its whole path
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Way = Literal["in", "out", "both"]  # whose bytes an array's are: the caller's, the kernel's


@dataclass(frozen=True, slots=True)
class Member:
    """`count` numbers of `size_bytes` each, from byte `offset` on. `c`: the path in the header, if not the
    name."""

    offset: int
    size_bytes: int
    c: str = ""
    count: int = 1
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """The array at the pointer in member `pointer`, with the element count in member `count`; "" is one element.

    `per` > 1: the count is in smaller units, that many per element. `only_if`: a member, and the value with which
    `pointer` is a pointer.
    """

    pointer: str
    count: str
    element_bytes: int
    way: Way
    per: int = 1
    only_if: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class CarriedArray:
    """One array of one call: `size_bytes` at `address` in the caller's process."""

    array: Array
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StructLayout:
    """A C struct: its name in the header, its size, its members and the arrays they point to."""

    c_name: str
    size_bytes: int
    fields: Mapping[str, Member]
    arrays: tuple[Array, ...] = ()

    def new(self, **values: int | tuple[int, ...]) -> Fields:
        """Return a zeroed struct with these members set."""
        fields = Fields(self, bytearray(self.size_bytes))
        for name, value in values.items():
            fields[name] = value
        return fields

    def read(self, raw: bytes | bytearray | memoryview) -> Fields:
        """Return a copy; bytes missing in `raw` are zero, and bytes beyond the struct are dropped."""
        return Fields(self, bytearray(raw[: self.size_bytes]).ljust(self.size_bytes, b"\0"))

    def list_pointers(self, fields: Fields) -> list[CarriedArray]:
        """Return the arrays of a call with their current counts, without null and empty arrays."""
        result = []
        for array in self.arrays:
            if array.only_if is not None and fields[array.only_if[0]] != array.only_if[1]:
                continue
            count = fields[array.count] if array.count else 1
            size_bytes = count // array.per * array.element_bytes
            if fields[array.pointer] and size_bytes:
                result.append(CarriedArray(array, fields[array.pointer], size_bytes))
        return result


def parse_struct(c_name: str, size_bytes: int, members: str, *arrays: Array) -> StructLayout:
    """Parse a row. `c_name` is the tag of the struct, or `union ` followed by the tag of the union."""
    c_type = c_name if c_name.startswith("union ") else f"struct {c_name}"
    return StructLayout(c_type, size_bytes, dict(map(_parse_member, members.split(";"))), arrays)


def _parse_member(text: str) -> tuple[str, Member]:
    head, kind, offset = text.split()
    name, renamed, path = head.rpartition("=")
    width, _, count = kind.partition("*")
    if renamed and not name:
        name, path = path, ""
    elif not renamed:
        name, path = path.rpartition(".")[2], path if "." in path else ""
    return name, Member(int(offset), int(width[1:]) // 8, path, int(count or 1), width[0] == "s")


class Fields:
    """A struct's bytes, with members by name: `fields["queue_id"]`."""

    __slots__ = ("layout", "raw")

    def __init__(self, layout: StructLayout, raw: bytearray) -> None:
        self.layout = layout
        self.raw = raw

    def __getitem__(self, name: str) -> int:
        member = self.layout.fields[name]
        raw = self.raw[member.offset : member.offset + member.size_bytes]
        return int.from_bytes(raw, "little", signed=member.signed)

    def __setitem__(self, name: str, value: int | tuple[int, ...]) -> None:
        """Store a member. Raises OverflowError for a value that does not fit: an error in the device, not
        in its caller."""
        member = self.layout.fields[name]
        offset = member.offset
        for number in value if isinstance(value, tuple) else (value,):
            self.raw[offset : offset + member.size_bytes] = number.to_bytes(
                member.size_bytes, "little", signed=member.signed
            )
            offset += member.size_bytes


@dataclass(frozen=True, slots=True)
class IoctlRow:
    """`direction` is the caller's: "w" passes the argument, "r" returns it."""

    name: str
    type_: str
    number: int
    direction: str
    layout: StructLayout | None = None

    @property
    def writes(self) -> bool:
        """Return whether the kernel copies the argument back."""
        return "r" in self.direction


# asm-generic/ioctl.h on x86-64: number [7:0], type [15:8], size [29:16], direction [31:30]
def make_request_key(request: int) -> tuple[str, int]:
    """Return the part of the request that the kernel dispatches on, without size and direction
    (kfd_chardev.c, drm_ioctl.c)."""
    return chr(request >> 8 & 0xFF), request & 0xFF


def decode_size_bytes(request: int) -> int:
    """Return the size of the caller's struct."""
    return request >> 16 & 0x3FFF


def by_key(*ioctls: IoctlRow) -> dict[tuple[str, int], IoctlRow]:
    return {(ioctl.type_, ioctl.number): ioctl for ioctl in ioctls}
