"""Findings of a launch in an author's terms: source line, argument and index, work-items."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.launching.code_object import CodeImage
from zinc_rt.launching.finding_groups import FindingGroup, count_rules

NEAR_BYTES = 1 << 16  # an address this close to a buffer, or its size, counts as an index of it


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBuffer:
    """The buffer of an argument in GPU memory. `array` gives its type and shape."""

    name: str
    va: int
    array: np.ndarray

    def measure_distance(self, address: int) -> int:
        """Return the number of bytes from the buffer to this address; 0 inside."""
        return max(self.va - address, address - (self.va + max(self.array.nbytes, 1) - 1), 0)

    def element(self, address: int) -> str:
        """Describe the element at this address, inside or outside, like x[1000] of 1000 elements."""
        index, byte = divmod(address - self.va, self.array.itemsize)
        array, shown = self.array, str(index)
        if array.ndim > 1 and 0 <= index < array.size:
            shown = ", ".join(str(axis) for axis in np.unravel_index(index, array.shape))
        size = " x ".join(map(str, array.shape)) if array.ndim > 1 else str(array.size)
        of_byte = f"byte {byte} of " if byte else ""
        return f"{of_byte}{self.name}[{shown}] of {size} element{'s' if array.size != 1 else ''}"


def locate_groups(
    groups: Iterable[FindingGroup], image: CodeImage, buffers: Iterable[PlacedBuffer]
) -> tuple[FindingGroup, ...]:
    """Add source line and accessed element to findings, and merge those of one rule, source line and argument: an
    unrolled loop has one instruction for each copy."""
    placed = tuple(buffers)
    merged: dict[tuple[object, ...], FindingGroup] = {}
    for group in groups:
        with_line, argument = _locate_group(group, image, placed)
        key: tuple[object, ...] = (
            group.rule,
            with_line.kernel,
            with_line.line,
            argument,
            find_access_kind(group.instruction),
        )
        if not with_line.line or group.pc is None:
            key = (len(merged),)
        before = merged.get(key)
        merged[key] = with_line if before is None else replace(before, count=before.count + with_line.count)
    return tuple(merged.values())


def _locate_group(
    group: FindingGroup, image: CodeImage, buffers: tuple[PlacedBuffer, ...]
) -> tuple[FindingGroup, str]:
    """Return the finding with line and element, and the name of the argument."""
    kernel = group.kernel.partition("+")[0]
    described = replace(group, kernel=kernel, tool=RULES[group.rule].tool)
    if group.pc is None:
        return described, ""
    known = image.kernels.get(kernel)
    entry = known.entry_at if known is not None else 0
    described = replace(described, line=image.line_at(entry + group.pc))
    if group.other is not None:
        described = replace(described, other=replace(group.other, line=image.line_at(entry + group.other.pc)))
    if group.address is None:
        return described, ""
    kind = find_access_kind(group.instruction)
    if group.rule == "page-fault":
        described = replace(described, detail=group.detail.partition(", ")[2])  # without the kind of access
    if group.instruction.startswith("ds_"):
        return replace(described, access=f"{kind} of LDS byte {group.address}", detail=""), "LDS"
    nearest = find_nearest_buffer(buffers, group.address)
    if nearest is None:
        what = "a null pointer" if group.address < 1 << 16 else "an address outside of every argument"
        return replace(described, access=f"{kind} of 0x{group.address:x}, {what}"), ""
    return replace(described, access=f"{kind} of {nearest.element(group.address)}"), nearest.name


def find_nearest_buffer(buffers: Iterable[PlacedBuffer], address: int) -> PlacedBuffer | None:
    """Return the buffer that an address belongs to, or None if it is far from all buffers."""
    nearest = min(buffers, key=lambda buffer: buffer.measure_distance(address), default=None)
    if nearest is None or nearest.measure_distance(address) > max(NEAR_BYTES, nearest.array.nbytes):
        return None
    return nearest


def find_access_kind(instruction: str) -> str:
    """Return load, store or atomic, from the mnemonic."""
    mnemonic = instruction.partition(" ")[0]
    return next((kind for kind in ("store", "atomic") if kind in mnemonic), "load")


def strip_parameter_types(kernel: str) -> str:
    """Return the name of a C++ function without its parameter types: saxpy for _Z5saxpyPfPKffi."""
    mangled = re.match(r"_Z(\d+)(\w+)", kernel)
    return mangled[2][: int(mangled[1])] if mangled is not None else kernel


def format_finding(group: FindingGroup, wave: int, *, verbose: bool = False) -> list[str]:
    """Return the text of a finding: the location and the error, then the work-items and the instruction. `wave`:
    the wave size. `verbose` adds the device's own sentence, with the packet."""
    from zinc_rt.sim.shader.checks.finding_text import (  # late: a card has no such findings
        format_lanes,
        format_waves,
    )

    kernel = strip_parameter_types(group.kernel)
    where = group.line or (f"{kernel}+{group.pc:#x}" if group.pc is not None else "")
    what = ": ".join(item for item in (group.access, group.detail) if item)
    if group.pc is None:
        what = group.first
    first = ": ".join(item for item in (where, group.rule, what) if item)
    times = f" ({group.count} times)" if group.count > 1 else ""
    lines = [f"{first} [{group.tool}]{times}"]
    if group.pc is not None:
        parts = [kernel]
        if group.workgroup is not None:
            parts += [f"workgroup {group.workgroup}", f"wave {group.wave}"]
        if group.lanes:
            parts.append(format_lanes(group.lanes, wave))
        parts.append(f"pc {group.pc:#x} `{group.instruction}`")
        lines.append("    " + ", ".join(parts))
    if group.other is not None:
        other = group.other
        where = f" at {other.line}" if other.line else ""
        waves = format_waves(other.wave, other.workgroup)
        lines.append(f"    races with the {other.kind}{where}, {waves}, pc {other.pc:#x} `{other.instruction}`")
    if verbose:
        lines.append(f"    {group.first}")
    return lines


def format_remarks(remarks: Iterable[FindingGroup]) -> str:
    """Return one line with the number of remarks of each rule, or ""."""
    counts = count_rules(remarks)
    listed = ", ".join(f"{count} x {rule}" for rule, count in counts.items())
    return f"remarks: {listed}; -v lists them" if counts else ""
