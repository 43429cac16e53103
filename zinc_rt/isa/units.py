"""Which part of a compute unit an instruction occupies, and how many bytes it moves."""

from __future__ import annotations

from zinc_rt.isa.effects import Effects
from zinc_rt.isa.instruction import Instruction

UNITS = ("valu", "vopd", "trans", "matrix", "salu", "smem", "load", "store", "lds", "wait", "branch", "other")
"""valu, vopd, trans and matrix are disjoint; load and store are vector memory; other is s_delay_alu and such."""

_TRANS = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_s_")
_NO_WORK = ("s_delay_alu", "s_clause", "s_nop", "s_endpgm", "s_code_end", "s_setprio", "s_sleep", "s_version")
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "96": 12, "128": 16, "256": 32, "512": 64}


def unit_of(instruction: Instruction, found: Effects) -> str:
    """Which of UNITS an instruction occupies."""
    mnemonic = instruction.mnemonic
    if found.unit == "valu":
        if instruction.second is not None:
            return "vopd"
        if mnemonic.startswith(("v_wmma", "v_swmmac")):
            return "matrix"
        return "trans" if mnemonic.startswith(_TRANS) else "valu"
    if found.unit == "salu":
        if mnemonic.startswith("s_wait"):
            return "wait"
        if mnemonic.startswith(_NO_WORK):
            return "other"
        return "branch" if mnemonic.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc")) else "salu"
    if found.unit == "vmem":
        return "load" if found.writes else "store"
    return {"smem": "smem", "ds": "lds"}.get(found.unit, "other")


def access_bytes(instruction: Instruction) -> int:
    """Bytes a lane, or a scalar load, moves to or from memory or LDS. 0 for what moves none."""
    mnemonic = instruction.mnemonic
    if mnemonic.startswith(("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")) or "prefetch" in mnemonic:
        return 0
    for part in reversed(mnemonic.split("_")):
        if part[1:] in _BYTES and part[0] in "buif":
            return _BYTES[part[1:]] * (2 if "_2addr_" in mnemonic else 1)
    return 0
