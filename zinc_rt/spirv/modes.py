"""Float controls: execution modes that depend on the device and are added to a kernel at load time.

The committed files have none: the device reports its modes (VkPhysicalDeviceFloatControlsProperties), and a module
with a mode that the device lacks is invalid there. Core since SPIR-V 1.4.
"""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.host.errors import InputError
from zinc_rt.spirv.module import HEADER_WORDS, decode_words, encode_words
from zinc_rt.spirv.opcodes import Opcode

WIDTH = 32  # width of the floats to which the modes apply
MODES = {  # name: its capability and its mode (specification, 3.31 and 3.6)
    "DenormPreserve": (4464, 4459),
    "SignedZeroInfNanPreserve": (4466, 4461),
    "RoundingModeRTE": (4467, 4462),
}
_BEFORE_MODES = frozenset(
    {Opcode.Capability, Opcode.Extension, Opcode.ExtInstImport, Opcode.MemoryModel, Opcode.EntryPoint}
)


def add_modes(data: bytes, modes: Sequence[str]) -> bytes:
    """Return the module with these modes for 32-bit floats, by their names in MODES; unmodified without modes.

    Raise InputError for an unknown mode, and for a module without an entry point.
    """
    if unknown := [name for name in modes if name not in MODES]:
        raise InputError(f"unknown float mode {unknown[0]}: expected a subset of {', '.join(MODES)}")
    words = decode_words(data)
    entry = 0
    after_capabilities = offset = HEADER_WORDS
    while offset < len(words) and (opcode := words[offset] & 0xFFFF) in _BEFORE_MODES and words[offset] >> 16:
        if opcode == Opcode.EntryPoint:
            entry = words[offset + 2]
        offset += words[offset] >> 16
        if opcode == Opcode.Capability:
            after_capabilities = offset
    if not entry:
        raise InputError("not a kernel: the SPIR-V has no entry point")
    asked: list[int] = []
    output: list[int] = []
    for capability, mode in (MODES[name] for name in modes):
        asked += (2 << 16 | Opcode.Capability, capability)
        output += (4 << 16 | Opcode.ExecutionMode, entry, mode, WIDTH)
    return encode_words(
        [*words[:after_capabilities], *asked, *words[after_capabilities:offset], *output, *words[offset:]]
    )
