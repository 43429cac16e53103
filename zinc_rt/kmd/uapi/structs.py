"""C structs as tables, and the ioctls that use them."""

from __future__ import annotations

import struct as packing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

_CODES = {"u8": "B", "u16": "H", "s32": "i", "u32": "I", "s64": "q", "u64": "Q"}


@dataclass(frozen=True, slots=True)
class StructField:
    """A member of a struct. `at` gives a union member's offset; other members follow in order, aligned as on
    x86-64.

    `c` is the member's path in the header if it differs from the name.
    """

    name: str
    kind: str
    count: int = 1
    at: int | None = None
    c: str = ""

    @property
    def item_bytes(self) -> int:
        return packing.calcsize("<" + _CODES[self.kind])

    @property
    def size_bytes(self) -> int:
        return self.item_bytes * self.count

    @property
    def c_path(self) -> str:
        return self.c or self.name


u16 = partial(StructField, kind="u16")
u32 = partial(StructField, kind="u32")
s32 = partial(StructField, kind="s32")
u64 = partial(StructField, kind="u64")
s64 = partial(StructField, kind="s64")


class Struct:
    """A C struct or union: fields in order, offsets by C's rules for x86-64."""

    def __init__(self, c_name: str, *fields: StructField) -> None:
        self.c_name = c_name
        self.fields: dict[str, StructField] = {}
        self.offsets: dict[str, int] = {}
        end = size = 0
        align = 1
        for struct_field in fields:
            offset = struct_field.at if struct_field.at is not None else end + -end % struct_field.item_bytes
            if struct_field.name in self.fields or offset % struct_field.item_bytes:
                raise ValueError(f"{c_name}.{struct_field.name}: declared twice or not aligned")
            self.fields[struct_field.name], self.offsets[struct_field.name] = struct_field, offset
            end = offset + struct_field.size_bytes
            size = max(size, end)
            align = max(align, struct_field.item_bytes)
        self.size_bytes = size + -size % align

    def __repr__(self) -> str:
        return f"<{self.c_name}, {self.size_bytes} bytes>"

    def new(self, **values: int | tuple[int, ...]) -> StructBytes:
        """Return a zeroed struct with these fields set."""
        record = StructBytes(self, bytearray(self.size_bytes))
        for name, value in values.items():
            record[name] = value
        return record

    def read(self, raw: bytes | bytearray | memoryview) -> StructBytes:
        """Copy a struct as the driver does: bytes missing in `raw` are zero, bytes after this struct are
        dropped.
        """
        body = bytearray(raw[: self.size_bytes])
        return StructBytes(self, body + bytes(self.size_bytes - len(body)))


class StructBytes:
    """A struct's bytes with access to fields by name: `record["queue_id"]`. Number arrays are tuples
    (`numbers`).
    """

    __slots__ = ("raw", "struct")

    def __init__(self, struct: Struct, raw: bytearray) -> None:
        if len(raw) != struct.size_bytes:
            raise ValueError(f"{struct.c_name} has {struct.size_bytes} bytes, not {len(raw)}")
        self.struct = struct
        self.raw = raw

    def __getitem__(self, name: str) -> int:
        numbers = self.numbers(name)
        if len(numbers) != 1:
            raise ValueError(f"{self.struct.c_name}.{name} is an array: use numbers()")
        return numbers[0]

    def numbers(self, name: str) -> tuple[int, ...]:
        struct_field = self.struct.fields[name]
        return packing.unpack_from(
            f"<{struct_field.count}{_CODES[struct_field.kind]}", self.raw, self.struct.offsets[name]
        )

    def __setitem__(self, name: str, value: int | tuple[int, ...]) -> None:
        struct_field = self.struct.fields[name]
        numbers = value if isinstance(value, tuple) else (value,)
        try:
            packing.pack_into(
                f"<{struct_field.count}{_CODES[struct_field.kind]}", self.raw, self.struct.offsets[name], *numbers
            )
        except packing.error as error:
            raise ValueError(f"{self.struct.c_name}.{name} ({struct_field.kind}) cannot hold {value!r}") from error

    def as_dict(self) -> dict[str, int | tuple[int, ...]]:
        return {name: self.numbers(name) if f.count > 1 else self[name] for name, f in self.struct.fields.items()}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items() if value)
        return f"{self.struct.c_name}({shown})"


# asm-generic/ioctl.h, as x86-64 has it: 8 bits number, 8 bits type, 14 bits size, 2 bits direction
_NONE, _WRITE, _READ = 0, 1, 2
_DIRECTIONS = {"": _NONE, "w": _WRITE, "r": _READ, "rw": _WRITE | _READ}


def encode_ioctl(direction: str, type_: str, number: int, size_bytes: int) -> int:
    """Return the number of an ioctl (_IOC). `direction` is the caller's: "w" it writes the argument, "r" it reads
    it."""
    return _DIRECTIONS[direction] << 30 | size_bytes << 16 | ord(type_) << 8 | number


@dataclass(frozen=True, slots=True)
class Ioctl:
    name: str  # the macro's
    direction: str
    type_: str
    number: int
    struct: Struct
    request: int = field(init=False)

    def __post_init__(self) -> None:
        request = encode_ioctl(self.direction, self.type_, self.number, self.struct.size_bytes)
        object.__setattr__(self, "request", request)


def index_by_key(declared: Mapping[str, object]) -> dict[tuple[str, int], Ioctl]:
    """Return a module's ioctls by the driver's dispatch key: type and number, never the size."""
    ioctls = [value for value in declared.values() if isinstance(value, Ioctl)]
    table = {(ioctl.type_, ioctl.number): ioctl for ioctl in ioctls}
    if len(table) != len(ioctls):
        raise ValueError("duplicate ioctl type and number")
    return table
