"""PM4 packets of the compute engine as data: build, encode, decode, disassemble, lint; gfx11 and gfx12.

    from zinc_rt.pm4 import Generation, Sh, decode, lint
    from zinc_rt.pm4.packets import DispatchDirect, SetShReg

    words = SetShReg(Sh.PGM_LO, (va >> 8 & 0xFFFFFFFF, va >> 40)).words(Generation.GFX12)

Building raises EncodeError if a field does not fit; decoding never raises. Import the linter and the disassembler
explicitly: zinc_rt.pm4.lint, zinc_rt.pm4.disassemble.
"""

from zinc_rt.pm4.decode import BadPacket, DecodedPacket, decode, decode_stream
from zinc_rt.pm4.generation import Generation, generation_of
from zinc_rt.pm4.opcodes import BAD_OPCODE
from zinc_rt.pm4.packet import EncodeError, Packet
from zinc_rt.pm4.registers import Sh

__all__ = [
    "BAD_OPCODE",
    "BadPacket",
    "DecodedPacket",
    "EncodeError",
    "Generation",
    "Packet",
    "Sh",
    "decode",
    "decode_stream",
    "generation_of",
]
