"""Temporal hints and scopes of gfx12's memory instructions, and their equivalents on gfx11."""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.wave_rules import WaveRules

_HINTS = ("RT", "NT", "HT", None, "NT_RT", "RT_NT", "NT_HT", None)
_SCOPES = ("SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
DEVICE_SCOPE, _SYS = 2, 3
_RETURN, _NON_TEMPORAL, _CASCADE = 1, 2, 4


# Bits of later chips that LLVM shows on gfx12 too.
SCALE_OFFSET = Modifier("scale_offset", "scale_offset", 1)
NON_VOLATILE = Modifier("nv", "nv", 1)


def returns_previous(instruction: Instruction) -> bool:
    """Return whether a vector memory atomic returns the previous value: bit 0 of TH, or GLC on gfx11."""
    hint = instruction.modifier("th")
    if hint is not None:
        return isinstance(hint.value, int) and bool(hint.value & _RETURN)
    return instruction.modifier("glc") is not None


def find_scope(instruction: Instruction, rules: WaveRules) -> int:
    """Return the scope of a memory instruction: 0 a compute unit, 1 a shader engine, 2 the device, 3 the system.

    On gfx11, atomics and loads with GLC have device scope. Every store has, but only that of a volatile store is
    counted here, which LLVM marks with DLC: nothing distinguishes an atomic store from a plain one. The race check
    considers a store atomic if the other access is.
    """
    if rules.has_scopes:
        scope = instruction.modifier("scope")
        return int(scope.value) if scope is not None and isinstance(scope.value, int) else 0
    unit = instruction.row.unit
    bit = "dlc" if unit == "store" else "glc"
    return DEVICE_SCOPE if unit == "atomic" or instruction.modifier(bit) is not None else 0


@cache
def format_policy(kind: str, hint: int, scope: int, non_volatile: int = 0) -> tuple[Modifier, ...]:
    """Return the modifiers for `th`, `scope` and `nv` of a load, a store or an atomic."""
    result = []
    if hint:
        result.append(Modifier("th", f"th:{_format_hint(kind, hint, scope)}", hint))
    if scope:
        result.append(Modifier("scope", f"scope:{_SCOPES[scope]}", scope))
    if non_volatile:
        result.append(NON_VOLATILE)
    return tuple(result)


def _format_hint(kind: str, hint: int, scope: int) -> str:
    if kind == "atomic":
        return f"TH_ATOMIC_{_format_atomic(hint, scope)}"
    if hint == 3:
        last = "BYPASS" if scope == _SYS else "WB" if kind == "store" else "LU"
    elif hint == 7:
        if kind == "load":
            return "0x7"
        last = "NT_WB"
    else:
        last = str(_HINTS[hint])
    return f"TH_{kind.upper()}_{last}"


def _format_atomic(hint: int, scope: int) -> str:
    if hint & _CASCADE:
        return f"CASCADE_{'NT' if hint & _NON_TEMPORAL else 'RT'}" if scope >= DEVICE_SCOPE else f"{hint:#x}"
    parts = (["NT"] if hint & _NON_TEMPORAL else []) + (["RETURN"] if hint & _RETURN else [])
    return "_".join(parts)
