"""A queue's registers, by absolute dword address, as the SET packets change them.

Reset values: 0, but CU masks all ones, as the kernel's MQD code leaves them (kfd_mqd_manager_v12.c).
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.interruptions import Illegal
from zinc_rt.sim.tables.registers import (
    BY_ADDRESS,
    CONFIG,
    CU_MASKS,
    PGM_HI,
    PGM_LO,
    SH,
    UCONFIG,
    register_at,
    register_name,
)

# Registers anybody may set, by offset from SH's base -> the bits no field has; the quick way for SET_SH_REG.
OPEN_SH: Mapping[Generation, Mapping[int, int]] = {
    generation: {
        address - SH.base: ~register.bits[generation] & 0xFFFFFFFF
        for address, register in BY_ADDRESS.items()
        if SH.base <= address < SH.end and generation in register.bits and not register.privileged
    }
    for generation in Generation
}


class RegisterFile:
    """What was written to SH and UCONFIG; nothing else can be."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.open_sh = OPEN_SH[generation]
        self.sh: dict[int, int] = dict.fromkeys(CU_MASKS, 0xFFFFFFFF)  # by offset from SH.base
        self.uconfig: dict[int, int] = {}  # by offset from UCONFIG.base

    def read(self, address: int) -> int:
        """0 where nothing was written. Raises Illegal for a register user queues may not see."""
        if SH.base <= address < SH.end:
            return self.sh.get(address - SH.base, 0)
        if UCONFIG.base <= address < UCONFIG.end:
            return self.uconfig.get(address - UCONFIG.base, 0)
        raise Illegal(f"{register_name(address, self.generation)} is privileged: a user's queue may not read it")

    def write(self, address: int, value: int) -> str | None:
        """None, or what is unverified about it. Raises Illegal for a privileged register or one out of range."""
        register = register_at(address, self.generation)
        if register is not None and register.privileged:
            raise Illegal(f"{register.name} is privileged: only the kernel writes it")
        if SH.base <= address < SH.end:
            self.sh[address - SH.base] = value
        elif UCONFIG.base <= address < UCONFIG.end:
            self.uconfig[address - UCONFIG.base] = value
        elif CONFIG.base <= address < CONFIG.end:
            raise Illegal(f"{register_name(address, self.generation)} is privileged: only the kernel writes it")
        else:
            raise Illegal(f"register {address:#x} lies outside SH and UCONFIG")
        if register is None:
            return f"{register_name(address, self.generation)} has no name here: what it does is unverified"
        return None

    def program_va(self) -> int:
        return (self.sh.get(PGM_LO, 0) | (self.sh.get(PGM_HI, 0) & 0xFF) << 32) << 8
