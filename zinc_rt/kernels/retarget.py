"""Rewrite the parts of a gfx12 kernel source that macros of another generation cannot express."""

from __future__ import annotations

import re

from zinc_rt.host.errors import InputError

# The registers of gfx12's workgroup ids, by generation: include/gfx11/zrt.inc fills them.
_ID_REGISTERS = {11: {"ttmp7": "s103", "ttmp8": "s104", "ttmp9": "s105"}}
_TTMP = re.compile(r"\bttmp[789]\b")
_PAIR = re.compile(r"s\[([^:\]]+):[^:\]]+\]")
_PARAMETER = re.compile(r"\\\w+")
_STATEMENT = re.compile(r"(\s*)(\w+)\s+([^/#;]*)")
_MODIFIER = re.compile(r"\s*\b(?:scope:SCOPE_\w+|th:TH_\w+)")
_HALVES = {"s_add_nc_u64": ("s_add_u32", "s_addc_u32"), "s_sub_nc_u64": ("s_sub_u32", "s_subb_u32")}


def retarget_line(line: str, generation: int) -> str:
    """Return a line of a source as the lines that this generation needs. Raise InputError if it has no equivalent.

    Workgroup ids are in other registers; GLC replaces scopes; 64-bit additions and scalar loads of three dwords
    become two instructions. SCC, which a 64-bit addition keeps on gfx12, is lost.
    """
    if generation not in _ID_REGISTERS:
        return line
    line = _TTMP.sub(lambda match: _ID_REGISTERS[generation][match[0]], line)
    statement = _STATEMENT.match(line)
    if not statement:
        return line
    indent, name, operands = statement[1], statement[2], [part.strip() for part in statement[3].split(",")]
    if name in _HALVES:
        parts = zip(*(_split_pair(operand, line) for operand in operands), strict=True)
        lines = [f"{half} {', '.join(part)}" for half, part in zip(_HALVES[name], parts, strict=True)]
    elif name == "s_load_b96":
        (first, _), base, offset = _split_pair(operands[0], line), operands[1], operands[2]
        start = first[2:-1]
        lines = [
            f"s_load_b64 s[{start}:{start}+1], {base}, {offset}",
            f"s_load_b32 s[{start}+2], {base}, {offset}+8",
        ]
    elif _MODIFIER.search(statement[3]):
        returns = "th:TH_ATOMIC_RETURN" in line or (
            name.startswith("global_load") and "scope:SCOPE_CU" not in line
        )
        lines = [_MODIFIER.sub("", f"{name} {statement[3].strip()}") + " glc" * returns]
    else:
        return line
    return "\n".join(indent + text for text in lines)


def _split_pair(operand: str, line: str) -> tuple[str, str]:
    """Return the lower and the upper half of a 64-bit operand: a register pair or a small constant."""
    if pair := _PAIR.fullmatch(operand):
        return f"s[{pair[1]}]", f"s[{pair[1]}+1]"
    if _PARAMETER.fullmatch(operand) or operand.startswith(("-", "vcc", "exec")):
        raise InputError(f"cannot split {operand!r} of {line.strip()!r}", next=r"write a pair as s[\n:\n+1]")
    return operand, "0"
