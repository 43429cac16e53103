"""The operand kinds of the tables: how fields become operands.

| kind | operand |
|---|---|
| b32 i64 f64 f16 i16 h2 y2 p2 | any source of that type (constants.TYPES) |
| s32 s64 sf16 si16 | a scalar source |
| S1 S2 | a scalar register, no constant |
| V1 V4 … | that many vector registers, in a source field |
| C8 H8 Y8 … | the same or a constant: b32, f16, y16 |
| VL SL | a vector register or LDS; a scalar source or LDS |
| M | a lane mask that is read |
| v1 v4 … | a field that names that many vector registers |
| V8/4 … | 8 in wave32, 4 in wave64 |
| h1 hf hi | halves in the short encodings: v0.l to v127.h, as a field, an f16 and an i16 source |
| hv | a source that is such a half, no constant |
| l1 lf li ly | the same in VOP3: v0.l to v255.h, where bit 9 selects the half; ly is a y16 source |
| t1 t16 ti16 | h1, hf and hi in fake true16: v0 to v127 stand for their lower halves; beyond is illegal |
| T1 | t1 as a source, which draws a remark beyond v127 |
| w1 wf wi wy | l1 to ly in fake true16: a register's text does not show the half |
| d1 d2 | a field that names scalar registers |
| D1 DX D0 MD | a scalar destination where a vector one usually is: any, no EXEC, no M0, a lane mask |
| vcc | VCC, which no field names |
| K k | the literal, in hex, or as a constant |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from zinc_rt.isa.encodings import constants, source
from zinc_rt.isa.operand import Kind, Operand, make_half, make_vgpr
from zinc_rt.isa.target import Target

Decoder = Callable[[int, int], Operand | None]  # field, literal

# kind: type, whether constants are allowed, width, register class
_SOURCES: dict[str, tuple[str, bool, int, str]] = {
    **{kind: (kind, True, 0, "") for kind in ("b32", "i64", "f64", "f16", "i16", "h2", "y2", "p2")},
    "s32": ("b32", True, 1, "SReg_32"),
    "s64": ("i64", True, 2, ""),
    "sf16": ("f16", True, 1, "SReg_32"),
    "si16": ("i16", True, 1, "SReg_32"),
    "S1": ("b32", False, 1, "SReg_32"),
    "S2": ("b32", False, 2, ""),
    "VL": ("b32", False, 1, "VRegOrLds_32"),
    "SL": ("b32", True, 1, "SRegOrLds_32"),
    "D1": ("b32", False, 1, ""),
    "D2": ("b32", False, 2, ""),
    "DX": ("b32", False, 1, "SReg_32_XEXEC"),
    "D0": ("b32", False, 1, "SReg_32_XM0"),
}


_ACCUMULATORS = {"V": ("b32", False), "C": ("b32", True), "H": ("f16", True), "Y": ("y16", True)}


_HALF_SOURCES = ("hf", "hi", "hv", "lf", "li", "ly", "t16", "ti16", "wf", "wi", "wy")


def accepts_literal(kind: str) -> bool:
    """Return whether code 255 in such a field selects a literal dword."""
    return kind in _SOURCES or kind in ("M", "MD", *_HALF_SOURCES) or kind[0] in _ACCUMULATORS


def _decode_short_half(field: int, literal: int) -> Operand | None:
    return make_half(field & 127, field >> 7 & 1)


def _decode_long_half(field: int, literal: int) -> Operand | None:
    return make_half(field & 255, field >> 9)


def _decode_short_whole(register_class: str) -> Decoder:
    def decode(field: int, literal: int) -> Operand | None:
        if field < 128 or register_class:
            return make_half(field, 0, whole=True, rejected_by="" if field < 128 else register_class)
        return None

    return decode


def _decode_long_whole(field: int, literal: int) -> Operand | None:
    return make_half(field & 255, field >> 9, whole=True)


def _make_half_source(kind: str, halves: Decoder, constants_ok: bool = True, register_class: str = "") -> Decoder:
    other = _make_source((kind, constants_ok, 1, register_class))

    def decode(field: int, literal: int) -> Operand | None:
        code = field & 0x1FF
        return halves(code - 256 | field & 0x200, literal) if code >= 256 else other(code, literal)

    return decode


def _make_source(spec: tuple[str, bool, int, str]) -> Decoder:
    kind, constants_ok, width, register_class = spec

    def decode(field: int, literal: int) -> Operand | None:
        if field == source.LITERAL:
            return source.make_literal(literal, kind, constants_ok)
        return source.make_source(field, kind, constants_ok, width, register_class)

    return decode


_HALVES: dict[str, Decoder] = {
    "h1": _decode_short_half,
    "hv": _make_half_source("b32", _decode_short_half, constants_ok=False, register_class="VGPR_16_Lo128"),
    "hf": _make_half_source("f16", _decode_short_half),
    "hi": _make_half_source("i16", _decode_short_half),
    "l1": _decode_long_half,
    "lf": _make_half_source("f16", _decode_long_half),
    "li": _make_half_source("i16", _decode_long_half),
    "ly": _make_half_source("y16", _decode_long_half),
    "t1": _decode_short_whole(""),
    "T1": _decode_short_whole("VGPR_32_Lo128"),
    "t16": _make_half_source("f16", _decode_short_whole("VS_32_Lo128")),
    "ti16": _make_half_source("i16", _decode_short_whole("VS_32_Lo128")),
    "w1": _decode_long_whole,
    "wf": _make_half_source("f16", _decode_long_whole),
    "wi": _make_half_source("i16", _decode_long_whole),
    "wy": _make_half_source("y16", _decode_long_whole),
}


@cache
def make_decoder(kind: str, target: Target) -> Decoder:
    """Return a function that makes an operand from a field of this kind. It returns None if LLVM rejects the
    value."""
    if kind in ("M", "MD"):
        return _make_source(("b32", False, target.mask_width, ""))
    if kind in _SOURCES:
        return _make_source(_SOURCES[kind])
    if kind == "vcc":
        return lambda field, literal: source.make_scalar(106, target.mask_width)
    if kind == "k":
        return lambda field, literal: Operand(
            Kind.LITERAL, constants.format_misplaced(literal), source.LITERAL, 1, literal
        )
    if kind == "K":
        return lambda field, literal: Operand(Kind.LITERAL, f"{literal:#x}", source.LITERAL, 1, literal)
    if kind in _HALVES:
        return _HALVES[kind]
    widths = kind[1:].split("/")
    width = int(widths[0] if target.wave == 32 else widths[-1])
    if kind[0] in _ACCUMULATORS:
        of_type, constants_ok = _ACCUMULATORS[kind[0]]
        return _make_source((of_type, constants_ok, width, "VGPR_32" if width == 1 else f"VReg_{32 * width}"))
    if kind[0] == "d":
        return lambda field, literal: source.make_scalar(field, width)
    if kind[0] == "v":
        return lambda field, literal: make_vgpr(field, width)
    raise KeyError(kind)
