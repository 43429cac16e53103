"""Expressions of a debugger: registers and their lanes, LDS, arguments, memory, and comparisons of them.

    v3  v3[5]  v3:f32[0..8]  v3.l:f16  v[2:3]  s4  s[0:1]  exec  vcc  scc  m0  ttmp9
    lds[0..8]  lds:f32[3]  x[5]  x[2, 0..4]  x:u32[0..4]  @v1[3]  *0x7f0000001000:f32[0..4]  *s[2:3]:u32[0]

Ranges exclude their end. `@` names an argument that is called like a register.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import UsageError
from zinc_rt.kmd.driver import SideChannel
from zinc_rt.launching.debugging.prepared import PreparedLaunch
from zinc_rt.launching.located import PlacedBuffer, find_nearest_buffer
from zinc_rt.launching.values import parse_type
from zinc_rt.sim.shader.emit.debug import ANY, IN_LDS, IN_MEMORY, IN_STATE
from zinc_rt.sim.shader.emit.slots import register_name
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, M0, SCC, TTMP0, VCC_LO, VGPR_LIMIT
from zinc_rt.sim.shader.run.debugger import WaveView

MAX_VALUES = 1024  # of one expression
DEFAULT_VALUES = 16  # of memory without an index
SGPRS = 106
_REGISTER = re.compile(
    r"(?:(?P<file>v|s|ttmp)(?P<number>\d+)(?:\.(?P<half>[lh]))?|(?P<files>v|s|ttmp)\[(?P<first>\d+):(?P<last>\d+)\]"
    r"|(?P<special>vcc_lo|vcc_hi|vcc|exec_lo|exec_hi|exec|scc|m0))(?![\w.])"
)
_ADDRESS = re.compile(r"\*(?:(?P<number>0x[0-9a-fA-F]+|\d+)|(?P<pair>s\[\d+:\d+\]|v\[\d+:\d+\]\[\d+\]))")
_NAME = re.compile(r"@?[A-Za-z_][\w.$]*")
_TAIL = re.compile(r"(?::(?P<type>\w+))?\s*(?:\[(?P<index>[^\]]*)\])?")
_COMPARISON = re.compile(r"(.+?)\s*(==|!=|<=|>=|<|>)\s*(.+)")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
FORM = "expected a register (v3, v3[5], s4, s[0:1], exec, vcc, scc, m0), lds[I], an argument (x[I]) or *ADDRESS"


@dataclass(frozen=True, slots=True)
class DebugValue:
    """The values of an expression. `labels`: the lane or index of each, "" for one scalar. `defined`: whether it
    was written. `active`: whether EXEC has the lane; None for values that are not lanes."""

    name: str
    values: np.ndarray
    labels: tuple[str, ...]
    defined: np.ndarray
    active: np.ndarray | None = None
    in_hex: bool = False
    written: str = ""  # what the text "-" stands for
    note: str = ""  # of one value: the element of an argument that it points to

    def text(self, index: int) -> str:
        """Return one value as text: hexadecimal for registers without a type."""
        if not self.defined[index]:
            return "-"
        return format_value(self.values[index], in_hex=self.in_hex)

    def to_plain(self) -> list[Any]:
        """Return the values for JSON: None for those that were never written."""
        numbers = self.values.astype(np.float64) if self.values.dtype.kind in "fV" else self.values
        pairs = zip(numbers.tolist(), self.defined, strict=True)
        return [item if defined else None for item, defined in pairs]


def format_value(value: Any, *, in_hex: bool) -> str:
    return f"{int(value):#x}" if in_hex else str(value)


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """A value of up to 8 bytes that can be watched: the arguments for WaveDebugger.watch, and its type."""

    base: int
    offset: int
    size_bytes: int
    wave: int
    group: int
    dtype: np.dtype[Any]
    in_hex: bool

    def text(self, raw: int) -> str:
        """Return the text of the value with these bits."""
        data = raw.to_bytes(8, "little")[: self.size_bytes]
        return format_value(np.frombuffer(data, self.dtype)[0], in_hex=self.in_hex)


class StateReader:
    """Evaluates expressions at a stop. `wave`: the selected one, None after the end of the launch."""

    def __init__(self, prepared: PreparedLaunch, wave: WaveView | None, vgprs: int) -> None:
        self._prepared, self._wave, self._vgprs = prepared, wave, vgprs

    def read(self, text: str) -> DebugValue:
        """Return the values of an expression. Raise UsageError if it is not an expression, or uses a name that
        does not exist.
        """
        return self._read(text)[0]

    def place(self, text: str) -> WatchPlace:
        """Return where one value is. Raise UsageError for several values, or one that cannot be watched."""
        shown, location = self._read(text)
        if location is None or len(shown.values) != 1:
            raise UsageError(
                f"watch {text}: expected one value of at most 8 bytes: an element of an argument or of LDS, one "
                "lane of a 32-bit register, or a scalar register"
            )
        return location

    def is_true(self, condition: str) -> bool:
        """Return whether a comparison is true or a single value is not zero. A value that was never written is
        neither true nor false.
        """
        match = _COMPARISON.fullmatch(condition.strip())
        if match is None:
            value = self._read_integer(condition)
            return value is not None and bool(value != 0)
        left, sign, right = match.groups()
        one, other = self._read_integer(left), self._evaluate_literal(right, left)
        return one is not None and other is not None and bool(_OPERATORS[sign](one, other))

    def _read_integer(self, text: str) -> Any:
        shown = self.read(text)
        if len(shown.values) != 1:
            raise UsageError(
                f"{text.strip()}: has {len(shown.values)} values, but a condition needs one, like {text}[0]"
            )
        return shown.values[0] if shown.defined[0] else None

    def _evaluate_literal(self, text: str, left: str) -> Any:
        try:
            number: float = int(text, 0)
        except ValueError:
            try:
                number = float(text)
            except ValueError:
                return self._read_integer(text)
        dtype = self.read(left).values.dtype
        return int(number) % (1 << 8 * dtype.itemsize) if dtype.kind == "u" and number < 0 else number

    # --- parts

    def _read(self, text: str) -> tuple[DebugValue, WatchPlace | None]:
        text = text.strip()
        for pattern, reader in (
            (_REGISTER, self._read_register),
            (_ADDRESS, self._read_address),
            (_NAME, self._read_named),
        ):
            match = pattern.match(text)
            tail = _TAIL.fullmatch(text, match.end()) if match is not None else None
            if match is not None and tail is not None:
                return reader(match, tail["type"], tail["index"], text)
        raise UsageError(f"{text or 'nothing'}: {FORM}")

    def _read_register(
        self, match: re.Match[str], kind: str | None, index: str | None, text: str
    ) -> tuple[DebugValue, WatchPlace | None]:
        wave = self._require_wave(text)
        keys = self._register_keys(match, text)
        if not wave.has_started:
            raise UsageError(f"{text}: wave {wave.number} has not started", next="break in it: break LINE wave N")
        vector = keys[0] < VGPR_LIMIT
        lanes = wave.lanes if vector else 1
        pairs = [wave.register(key) for key in keys]
        words = np.stack([values for values, _ in pairs], axis=1)
        undefined = np.stack([bits for _, bits in pairs], axis=1)
        dtype, half = self._find_register_type(match, kind, len(keys), text)
        if dtype.itemsize == 2:
            shift = 16 * (half == "h")
            words, undefined = ((item >> shift).astype(np.uint16) for item in (words, undefined))
        values = np.ascontiguousarray(words).view(dtype)
        columns = values.shape[1]
        known = (undefined == 0).reshape(lanes, columns, -1).all(axis=2)
        in_hex = kind is None
        if columns > 1 and not vector:
            names = keys if columns == len(keys) else keys[::2]
            labels = tuple(register_name(key) for key in names)
            return DebugValue(text, values[0], labels, known[0], in_hex=in_hex, written="never written"), None
        if columns > 1:
            raise UsageError(f"{text}: {len(keys)} registers need a 64-bit type; or print them one by one")
        if not vector:
            if index is not None:
                raise UsageError(f"{text}: a scalar register has no lanes")
            location = WatchPlace(
                IN_STATE, wave.offset_of(keys[0], 0), 1 if keys[0] == VGPR_LIMIT + SCC else dtype.itemsize,
                wave.index, wave.group, np.dtype(np.uint8) if keys[0] == VGPR_LIMIT + SCC else dtype, in_hex,
            )  # fmt: skip
            shown = DebugValue(text, values[:, 0], ("",), known[:, 0], in_hex=in_hex, written="never written")
            return self._add_pointed_element(shown), location if len(keys) == 1 else None
        chosen = _parse_index(index, lanes, f"{text}: wave{lanes} has lanes 0 to {lanes - 1}")
        active = np.array([bool(wave.exec >> lane & 1) for lane in chosen])
        labels = tuple(map(str, chosen))
        shown = DebugValue(text, values[chosen, 0], labels, known[chosen, 0], active, in_hex, "never written")
        if len(keys) > 1:
            return self._add_pointed_element(shown), None
        offset = wave.offset_of(keys[0], chosen[0]) + 2 * (half == "h")
        return shown, WatchPlace(IN_STATE, offset, dtype.itemsize, wave.index, wave.group, dtype, in_hex)

    def _add_pointed_element(self, shown: DebugValue) -> DebugValue:
        """Note the element at the address, if the value is one in 64 bits."""
        if len(shown.values) != 1 or shown.values.dtype != np.uint64 or not shown.defined[0]:
            return shown
        pairs = self._prepared.buffers.items()
        placed = [PlacedBuffer(name, buffer.gpu_va, value.array) for name, (buffer, value) in pairs]
        nearest = find_nearest_buffer(placed, int(shown.values[0]))
        return shown if nearest is None else replace(shown, note=nearest.element(int(shown.values[0])))

    def _register_keys(self, match: re.Match[str], text: str) -> list[int]:
        if match["special"]:
            pair = self._require_wave(text).lanes == 64
            first, count = {
                "vcc": (VCC_LO, 1 + pair), "vcc_lo": (VCC_LO, 1), "vcc_hi": (VCC_LO + 1, 1),
                "exec": (EXEC_LO, 1 + pair), "exec_lo": (EXEC_LO, 1), "exec_hi": (EXEC_HI, 1),
                "m0": (M0, 1), "scc": (SCC, 1),
            }[match["special"]]  # fmt: skip
            return [VGPR_LIMIT + first + index for index in range(count)]
        first = int(match["number"] or match["first"])
        last = int(match["number"] or match["last"])
        kind = match["file"] or match["files"]
        limit = {"v": self._vgprs, "s": SGPRS, "ttmp": 16}[kind]
        if not first <= last < limit:
            raise UsageError(f"{text}: the kernel only has {kind}0 to {kind}{limit - 1}")
        base = {"v": 0, "s": VGPR_LIMIT, "ttmp": VGPR_LIMIT + TTMP0}[kind]
        return [base + index for index in range(first, last + 1)]

    def _find_register_type(
        self, match: re.Match[str], kind: str | None, count: int, text: str
    ) -> tuple[np.dtype[Any], str | None]:
        half = match["half"]
        if kind is None:
            return np.dtype(np.uint16 if half else np.uint64 if count == 2 else np.uint32), half
        dtype = parse_type(text, kind)
        if dtype.itemsize == 2 and half is None:
            raise UsageError(f"{text}: {kind} has 16 bits: name a half, like v3.l:{kind} or v3.h:{kind}")
        sizes = (2,) if half else (4, 8)
        if dtype.itemsize not in sizes or (dtype.itemsize == 8 and count % 2):
            raise UsageError(f"{text}: {kind} does not fit into {32 * count // (2 if half else 1)} bits")
        return dtype, half

    def _read_named(
        self, match: re.Match[str], kind: str | None, index: str | None, text: str
    ) -> tuple[DebugValue, WatchPlace | None]:
        name = match[0].removeprefix("@")
        buffers = self._prepared.buffers
        if name == "lds" and not match[0].startswith("@"):
            return self._read_lds(kind, index, text)
        if name not in buffers:
            scalar = next((item for item in self._prepared.kernel.shown if item.name == name), None)
            if scalar is not None:
                raise UsageError(f"{name} is not a buffer: it is at byte {scalar.offset} of the kernarg segment")
            known = [*buffers, "lds"]
            raise UsageError(
                f"{name}: no argument with that name{suggest_word(name, known)}. Buffers: {', '.join(buffers)}"
            )
        buffer, value = buffers[name]
        raw = self._read_memory(buffer.gpu_va, value.array.nbytes)
        stored = self._read_stored(buffer.gpu_va, value.array.nbytes) if not value.read else None
        array = (
            raw.view(value.array.dtype).reshape(value.array.shape) if kind is None else _view_as(raw, kind, text)
        )
        return self._read_elements(
            text, array, index, stored, (IN_MEMORY, buffer.gpu_va, ANY, ANY), "never written"
        )

    def _read_lds(self, kind: str | None, index: str | None, text: str) -> tuple[DebugValue, WatchPlace | None]:
        wave = self._require_wave(text)
        data, stored = wave.lds()
        if not data.size:
            raise UsageError(f"{text}: the workgroup has no LDS")
        if not wave.has_started:
            raise UsageError(f"{text}: wave {wave.number} has not started")
        array = _view_as(data, kind or "u32", text)
        where = (IN_LDS, 0, ANY, wave.group)
        return self._read_elements(text, array, index, stored, where, "never written", in_hex=kind is None)

    def _read_address(
        self, match: re.Match[str], kind: str | None, index: str | None, text: str
    ) -> tuple[DebugValue, WatchPlace | None]:
        if match["number"]:
            va = int(match["number"], 0)
        else:
            pair = self._read_integer(match["pair"])
            if pair is None:
                raise UsageError(f"{text}: {match['pair']} was never written")
            va = int(pair)
        dtype = parse_type(text, kind or "u32")
        region = next(
            (
                region
                for region in self._prepared.regions
                if region[1] <= va and va + dtype.itemsize <= region[1] + region[2]
            ),
            None,
        )
        if region is None:
            listed = ", ".join(
                f"{name} {index:#x} to {index + size:#x}" for name, index, size in self._prepared.regions
            )
            raise UsageError(f"{text}: {va:#x} is outside the memory of the launch: {listed}")
        size = region[1] + region[2] - va
        array = _view_as(self._read_memory(va, size), kind or "u32", text)
        return self._read_elements(text, array, index, None, (IN_MEMORY, va, ANY, ANY), "", in_hex=kind is None)

    def _read_elements(
        self,
        text: str,
        array: np.ndarray,
        index: str | None,
        stored: np.ndarray | None,
        where: tuple[int, int, int, int],
        written: str,
        *,
        in_hex: bool = False,
    ) -> tuple[DebugValue, WatchPlace | None]:
        chosen = _choose_indices(index, array.shape, text)
        labels = tuple(", ".join(map(str, item)) for item in chosen)
        flat = [int(np.ravel_multi_index(item, array.shape)) for item in chosen]
        size = array.itemsize
        values = array.reshape(-1)[flat]
        known = np.ones(len(flat), bool)
        if stored is not None:
            whole = stored[: len(stored) // size * size].reshape(-1, size)
            known = np.logical_and.reduce(whole, axis=1)[flat]
        shown = DebugValue(text, values, labels, known, None, in_hex, written)
        base, offset, wave, group = where
        if size > 8 or len(flat) != 1:
            return shown, None
        return shown, WatchPlace(base, offset + flat[0] * size, size, wave, group, array.dtype, in_hex)

    # --- memory

    def _require_wave(self, text: str) -> WaveView:
        if self._wave is None:
            raise UsageError(f"{text}: no wave is running", next="back or restart, then print it")
        return self._wave

    def _read_memory(self, va: int, size_bytes: int) -> np.ndarray:
        import ctypes

        if not size_bytes:
            return np.zeros(0, np.uint8)
        return np.frombuffer(ctypes.string_at(va, size_bytes), np.uint8)

    def _read_stored(self, va: int, size_bytes: int) -> np.ndarray | None:
        side = self._prepared.driver
        if not isinstance(side, SideChannel) or not size_bytes:
            return None
        bits = np.frombuffer(side.initialised(va, size_bytes), np.uint8)
        return np.unpackbits(bits, count=size_bytes, bitorder="little").astype(bool)


def _view_as(raw: np.ndarray, kind: str, text: str) -> np.ndarray:
    dtype = parse_type(text, kind)
    whole = len(raw) // dtype.itemsize * dtype.itemsize
    if not whole:
        raise UsageError(f"{text}: has {len(raw)} bytes, but {kind} needs {dtype.itemsize}")
    return raw[:whole].view(dtype)


def _choose_indices(index: str | None, shape: Sequence[int], text: str) -> list[tuple[int, ...]]:
    """Return the indices in the text between [ and ]. Without it, the first DEFAULT_VALUES."""
    count = int(np.prod(shape))
    if index is None:
        return [tuple(map(int, np.unravel_index(index, shape))) for index in range(min(count, DEFAULT_VALUES))]
    parts = index.split(",")
    if len(parts) == 1 and len(shape) > 1:
        message = f"{text}: it has {count} elements"
        return [tuple(map(int, np.unravel_index(at, shape))) for at in _parse_index(index, count, message)]
    if len(parts) != len(shape):
        raise UsageError(f"{text}: got {len(parts)} indices for {len(shape)} axes")
    axes = [
        _parse_index(part, size, f"{text}: that axis has {size} elements")
        for part, size in zip(parts, shape, strict=True)
    ]
    if np.prod([len(axis) for axis in axes]) > MAX_VALUES:
        raise UsageError(f"{text}: cannot show more than {MAX_VALUES} values")
    grids = np.meshgrid(*axes, indexing="ij")
    return [tuple(map(int, item)) for item in zip(*(grid.reshape(-1) for grid in grids), strict=True)]


def _parse_index(index: str | None, count: int, message: str) -> list[int]:
    """Parse an index like `5` or a range like `0..8`, below `count`."""
    if index is None:
        return list(range(count))
    first, dots, end = index.partition("..")
    try:
        start = int(first, 0) if first.strip() else 0
        stop = (int(end, 0) if end.strip() else count) if dots else start + 1
    except ValueError:
        raise UsageError(f"[{index}]: expected a number, or a range like 0..8") from None
    if not 0 <= start < stop <= count:
        raise UsageError(message)
    if stop - start > MAX_VALUES:
        raise UsageError(f"[{index}]: cannot show more than {MAX_VALUES} values")
    return list(range(start, stop))
