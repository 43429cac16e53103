"""The gfx12 instructions that the shader engine does not run, by name, so that a launch can refuse a kernel."""

from __future__ import annotations

from zinc_rt.isa.control_flow import control_flow
from zinc_rt.isa.rows import InstructionRow
from zinc_rt.isa.target import Target

ENCODINGS = {
    "VIMAGE": "images and ray tracing",
    "VSAMPLE": "images",
    "VINTERP": "interpolation of pixel shaders",
    "VDSDIR": "parameters of pixel shaders",
    "EXP": "exports of graphics shaders",
}
NAMES = {
    "s_rfe_b64": "trap handlers",
    "s_endpgm_saved": "context save",
    "s_atc_probe": "address translation probes",
    "s_atc_probe_buffer": "address translation probes",
}


def reason(row: InstructionRow) -> str:
    """Return the kind of instructions that a row belongs to if the engine does not run them, else ""."""
    return ENCODINGS.get(row.encoding) or NAMES.get(row.name, "")


def unsimulated(code: bytes, target: Target, entry: int = 0) -> dict[str, str]:
    """Return the reachable instructions that the engine does not run: mnemonic -> kind, in code order.

    A wave that reaches one ends with the finding `illegal`.
    """
    reachable = sorted(control_flow(code, target, entry, running=True).instructions(), key=lambda each: each[0])
    return {made.row.name: why for _, made in reachable if (why := reason(made.row))}
