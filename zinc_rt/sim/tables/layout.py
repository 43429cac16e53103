"""Format of the packet tables, and views that read packets from dwords.

    COND_EXEC 0x22 5
        address 1+2; cache_policy 3[26:25]; exec_count 4[13:0]

A row has a name, an opcode and sizes: the possible numbers of dwords (`2 4`), or the minimum and the increment
(`3+1`). They are followed by `gfx11` or `gfx12` if only that chip has the packet. A line with `#` is a comment;
indented lines are the packet's fields:

    name 3[26:25]       bits of dword 3; `3[20]` one bit; `3` the whole dword. Dword 0 is the header
    name 1+2            64 bits, low dword first; `2+3/40` their lowest 40
    name values 2..     all dwords from 2 on, one number per dword; `pairs`, `packed`, `fences`: in groups
    ... = 0 2 5         all permitted values; `~ 0 2` some of them. gfx11's follow `|`; `@12`: only on gfx12

Reading packets is the inner loop of the simulated command processor. A view is therefore a class with slots,
generated from text once per row, like a dataclass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.pm4.generation import BOTH, GFX11, GFX12, Generation

U32 = 0xFFFFFFFF
_PLACE = re.compile(r"(\d+)(?:\+\d+(?:/(\d+))?|\[(\d+)(?::(\d+))?\])?")


@dataclass(frozen=True, slots=True)
class TableField:
    """`width` bits from `low` in `dword`, continued in the next one; with `group`: the rest of the packet."""

    name: str
    dword: int
    low: int
    width: int
    group: str = ""
    values: frozenset[int] | None = None
    values_gfx11: frozenset[int] | None = None
    complete: bool = True
    gfx12_only: bool = False

    def allowed(self, generation: Generation) -> frozenset[int] | None:
        return self.values_gfx11 if generation is Generation.GFX11 else self.values


@dataclass(frozen=True, slots=True)
class PacketRow:
    """A packet. `grows`: the dwords by which a longer packet grows, 0 if `sizes` lists all."""

    name: str
    opcode: int
    sizes: tuple[int, ...]
    grows: int
    fields: tuple[TableField, ...]
    on: tuple[Generation, ...]

    def takes(self, length_dw: int) -> bool:
        if length_dw in self.sizes:
            return True
        more = length_dw - self.sizes[-1]
        return bool(self.grows) and more > 0 and more % self.grows == 0

    def format_sizes(self) -> str:
        """Return `5`, `2 or 4`, or `3 or more`."""
        text = " or ".join(map(str, self.sizes))
        if not self.grows:
            return text
        return f"{text} or more" if self.grows == 1 else f"{text} + a multiple of {self.grows}"


def parse_rows(text: str) -> tuple[PacketRow, ...]:
    result: list[tuple[str, str]] = []  # the row's first line, its fields
    for line in filter(None, map(str.rstrip, text.split("\n"))):
        if line.startswith(" "):
            head, fields = result.pop()
            result.append((head, fields + line))
        elif not line.startswith("#"):
            result.append((line, ""))
    return tuple(_parse_row(*item) for item in result)


def _parse_row(head: str, fields: str) -> PacketRow:
    name, opcode, *sizes = head.split()
    on = _ONLY.get(sizes[-1], BOTH)
    size, _, grows = " ".join(size for size in sizes if size not in _ONLY).partition("+")
    result = [_parse_field(part) for part in fields.split(";") if part.strip()]
    return PacketRow(name, int(opcode, 0), tuple(map(int, size.split())), int(grows or 0), tuple(result), on)


_ONLY = {"gfx11": GFX11, "gfx12": GFX12}


def _parse_field(text: str) -> TableField:
    gfx12_only = "@12" in text
    head, mark, values = re.split(r"([=~])|$", text.replace("@12", ""), maxsplit=1)
    name, *location = head.split()
    if len(location) == 2:
        return TableField(name, int(location[1].removesuffix("..")), 0, 0, group=location[0])
    match = _PLACE.fullmatch(location[0])
    assert match is not None, text
    dword, total, high, low = match.groups()
    newer, _, older = (values or "").partition("|")
    allowed = frozenset(int(part, 0) for part in newer.split()) if mark else None
    allowed_gfx11 = frozenset(int(part, 0) for part in older.split()) if older else allowed
    if high is not None:
        bit, width = int(low or high), int(high) - int(low or high) + 1
    else:
        bit, width = 0, int(total or 64) if "+" in location[0] else 32
    return TableField(name, int(dword), bit, width, "", allowed, allowed_gfx11, mark != "~", gfx12_only)


View = Any
"""A packet as `view` reads it: the fields of its row are attributes."""

MakeView = Callable[[Sequence[int], int], Any]
"""(words, index of the header) -> a view: its row's fields as attributes (None where the size leaves one out),
`name`, `dwords`, and `odd` where reserved bits are set or values have no meaning. All dwords must be there."""


def find_reserved(of: PacketRow, length_dw: int, generation: Generation) -> dict[int, int]:
    """Return the bits without a field, by dword; in the header, those below the opcode."""
    named = [0xFFFFFF00] + [0] * (length_dw - 1)
    for field in _find_present(of, length_dw, generation):
        if field.group:
            named[field.dword :] = [U32] * (length_dw - field.dword)
        else:
            mask = (1 << field.width) - 1 << field.low
            named[field.dword] |= mask & U32
            if mask >> 32:
                named[field.dword + 1] |= mask >> 32
    return {dword: ~mask & U32 for dword, mask in enumerate(named) if mask != U32}


def _find_present(of: PacketRow, length_dw: int, generation: Generation) -> list[TableField]:
    fields = [field for field in of.fields if not (field.gfx12_only and generation is not Generation.GFX12)]
    return [field for field in fields if field.dword < length_dw or field.group]


def select_fields(of: PacketRow, length_dw: int, generation: Generation) -> MakeView:
    """Return the class that reads a packet of this size."""
    present = _find_present(of, length_dw, generation)
    used = [field.name for field in of.fields]
    fixed = min((field.dword for field in present if field.group), default=length_dw)
    loads = [f"w{dword}" for dword in range(fixed)]
    lines = [
        "class View:",
        f" __slots__ = ({''.join(f'{name!r}, ' for name in [*used, 'odd'])})",
        f" name = {of.name!r}",
        f" dwords = {length_dw}",
        " def __init__(self, words, index):",
        f"  {', '.join(loads)}, = words[index:index + {fixed}]",
    ]
    odd = [f"w{dword} & {mask:#x}" for dword, mask in find_reserved(of, length_dw, generation).items()]
    scope: dict[str, Any] = {}
    for field in present:
        lines.append(f"  self.{field.name} = {_format_expression(field, length_dw)}")
        allowed = field.allowed(generation)
        if allowed is not None and len(allowed) < 1 << field.width:
            scope[f"allowed_{field.name}"] = allowed
            odd.append(f"self.{field.name} not in allowed_{field.name}")
    lines += [f"  self.{name} = None" for name in used if name not in {field.name for field in present}]
    lines.append(f"  self.odd = {' or '.join(odd) or 'False'}")
    exec(compile("\n".join(lines), f"<view of {of.name}>", "exec"), scope)
    view: MakeView = scope["View"]
    return view


def _format_expression(field: TableField, length_dw: int) -> str:
    if field.group:
        return _GROUPS[field.group].format(first=f"index + {field.dword}", end=f"index + {length_dw}")
    low = f"w{field.dword} >> {field.low}" if field.low else f"w{field.dword}"
    if field.width <= 32:
        return f"{low} & {(1 << field.width) - 1:#x}" if field.low + field.width < 32 else low
    high = field.width - 32
    upper = f"w{field.dword + 1}" if high == 32 else f"(w{field.dword + 1} & {(1 << high) - 1:#x})"
    return f"{low} | {upper} << 32"


_GROUPS: Mapping[str, str] = {
    "values": "tuple(words[{first}:{end}])",
    # (register, value), a dword each
    "pairs": "tuple(zip(words[{first}:{end}:2], words[{first} + 1:{end}:2]))",
    # (register, value), two at a time: registers in the halves of one dword, then their values
    "packed": "tuple([two for a, b, c in zip(words[{first}:{end}:3], words[{first} + 1:{end}:3], "
    "words[{first} + 2:{end}:3]) for two in ((a & 0xffff, b), (a >> 16, c))])",
    # (VA, value), 64 bits each, low dwords first
    "fences": "tuple([(a | b << 32, c | d << 32) for a, b, c, d in zip(words[{first}:{end}:4], "
    "words[{first} + 1:{end}:4], words[{first} + 2:{end}:4], words[{first} + 3:{end}:4])])",
}
