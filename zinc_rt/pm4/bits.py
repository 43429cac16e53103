"""Named bit ranges of a dword: registers, GCR_CNTL, the dispatch initiator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zinc_rt.host.errors import UsageError


@dataclass(frozen=True, slots=True)
class Bits:
    """A field `name` in bits [high:low]. `values` names its possible values, if known."""

    name: str
    high: int
    low: int
    values: Mapping[int, str] | None = None

    @property
    def mask(self) -> int:
        return ((1 << (self.high - self.low + 1)) - 1) << self.low

    def of(self, dword: int) -> int:
        return (dword & self.mask) >> self.low


def parse_bit_table(text: str) -> tuple[Bits, ...]:
    """Parse a text like `"A 5:0, B 6"` into Bits, lowest first."""
    rows = []
    for part in text.split(","):
        name, location = part.split()
        high, _, low = location.partition(":")
        rows.append(Bits(name, int(high), int(low or high)))
    return tuple(sorted(rows, key=lambda row: row.low))


def combine_masks(fields: Iterable[Bits]) -> int:
    """Return the mask of all named bits."""
    mask = 0
    for field in fields:
        mask |= field.mask
    return mask


def pack(fields: Iterable[Bits], **values: int) -> int:
    """Pack `values` into a dword, all other bits 0. Raise UsageError for an unknown name or a value that does not
    fit."""
    rows = {field.name: field for field in fields}
    dword = 0
    for name, value in values.items():
        if name not in rows:
            raise UsageError(f"no field {name}", next=f"the fields are {', '.join(rows)}")
        row = rows[name]
        if value < 0 or value << row.low & ~row.mask:
            raise UsageError(f"{name} = {value:#x} does not fit into bits {row.high}:{row.low}")
        dword |= value << row.low
    return dword


def describe(fields: Iterable[Bits], dword: int) -> str:
    """Return a text like `A=1 B=name(2)` of every nonzero field, followed by the set bits without a field."""
    shown = []
    named = 0
    for field in fields:
        named |= field.mask
        value = field.of(dword)
        if value == 0:
            continue
        name = (field.values or {}).get(value)
        text = f"{value:#x}" if value > 9 else str(value)
        shown.append(f"{field.name}={name}({text})" if name else f"{field.name}={text}")
    if dword & ~named:
        shown.append(f"reserved={dword & ~named:#x}")
    return " ".join(shown)
