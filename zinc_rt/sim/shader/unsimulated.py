"""The instructions that the shader engine does not run, by name: the one table of them.

A launch refuses a kernel that can reach one (launching), a wave that reaches one ends with this reason
(translate), and docs/support.md lists them (translate/evidence.py). Every other instruction has an emit function.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.rows import InstructionRow
from zinc_rt.isa.target import Target

ENCODINGS = {
    "VIMAGE": "images and ray tracing",
    "VSAMPLE": "images",
    "VINTERP": "interpolation of pixel shaders",
    "VDSDIR": "parameters of pixel shaders",
    "EXP": "exports of graphics shaders",
    "LDSDIR": "LDS direct loads",
    "MIMG": "images and ray tracing",
}
NAMES = {
    "s_rfe_b64": "trap handlers",
    "s_endpgm_saved": "context save",
    "s_subvector_loop_*": "loops over halves of a wave",
    "s_cbranch_cdbg*": "branches of debuggers",
    "s_endpgm_ordered_ps_done": "ordered pixel shaders",
    "ds_gws_*": "global wave synchronisation",
    "ds_ordered_count": "the global data share",
    "ds_*_gs_reg_rtn": "graphics shaders",
    "buffer_load_lds_*": "loads from memory to LDS",
    "s_atc_probe*": "address translation probes",
    "ds_bvh_stack_*": "ray tracing",
    "buffer_*_format_*": "buffer formats",
    "tbuffer_*_format_*": "buffer formats",
    "global_*_block": "loads and stores of register blocks",
    "scratch_*_block": "loads and stores of register blocks",
    "global_atomic_ordered_add_b64": "ordered atomics",
}
"""Patterns of mnemonics without the suffix of their encoding."""


def find_reason(row: InstructionRow) -> str:
    """Return the kind of unsupported instructions that a row belongs to, or "" if the engine supports it."""
    return ENCODINGS.get(row.encoding) or find_reason_of_name(row.name)


@cache
def find_reason_of_name(name: str) -> str:
    """Return the kind of an instruction that the engine does not support although it supports others of the
    encoding.
    """
    return next((kind for pattern, kind in NAMES.items() if fnmatchcase(name, pattern)), "")


def list_unsimulated(code: bytes, target: Target, entry: int = 0) -> dict[str, str]:
    """Return the reachable instructions that the engine does not support: mnemonic -> kind, in code order.

    A wave that reaches such an instruction ends with the finding `illegal`.
    """
    reachable = sorted(
        find_control_flow(code, target, entry, running=True).instructions(), key=lambda instruction: instruction[0]
    )
    return {item.row.name: kind for _, item in reachable if (kind := find_reason(item.row))}
