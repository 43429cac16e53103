"""Linter rules for registers that a packet sets."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.pm4.bits import combine_masks
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint_rules import Complaint
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.registers import PGM_RSRC1, SH, USER_DATA_COUNT, Sh, register_at

_RSRC1, _RSRC2 = SH.base + Sh.PGM_RSRC1, SH.base + Sh.PGM_RSRC2
_USER_DATA = SH.base + Sh.USER_DATA_0


def lint_registers(packet: Packet, generation: Generation) -> Iterator[Complaint]:
    space = packet.SPACE
    assert space is not None
    for write in packet.register_writes():
        register = register_at(write.address, generation)
        if not space.base <= write.address < space.end:
            text = (
                f"{packet.NAME} offset {write.address - space.base:#x}: expected below {space.end - space.base:#x}"
            )
            hint = f"the field is relative to {space.base:#x}"
            yield write.dword, "register-range", text, hint
            return  # the following registers are outside too
        if register is None:
            if _USER_DATA + USER_DATA_COUNT <= write.address < _USER_DATA + 2 * USER_DATA_COUNT:
                text = f"USER_DATA_{write.address - _USER_DATA}, but the chip has {USER_DATA_COUNT}"
                yield write.dword, "user-data", text, "pass a pointer to an argument block instead"
                return
            table = f"the register table of {generation.name.lower()}"
            text = f"{packet.NAME} offset {write.address - space.base:#x} is not in {table}"
            yield write.dword, "register-unknown", text, "check the offset against docs/pm4.md"
        elif register.privileged:
            yield (
                write.dword,
                "register-privileged",
                f"{register.name} may be written by the driver only",
                "remove it",
            )
        else:
            extra = write.value & ~combine_masks(register.fields) if register.fields else 0
            if extra:
                text = f"{register.name} = {write.value:#x}: bits {extra:#x} are outside all fields"
                yield write.dword, "register-bits", text, "write 0"
            yield from _lint_shader_register(write.address, write.value, write.dword, generation)


def _lint_shader_register(address: int, value: int, dword: int, generation: Generation) -> Iterator[Complaint]:
    if address == _RSRC2:
        users = value >> 1 & 0x1F
        if users > USER_DATA_COUNT:
            text = f"RSRC2 USER_SGPR = {users}, but the chip has {USER_DATA_COUNT}"
            yield dword, "user-data", text, "pass a pointer to an argument block instead"
        if generation == Generation.GFX12 and value & 1 << 6:
            yield (
                dword,
                "dynamic-vgpr",
                "RSRC2 bit 6 enables dynamic VGPRs",
                "clear it: it is the trap bit on gfx11 only",
            )
    elif address == _RSRC1 and generation == Generation.GFX12:
        fields = {field.name: field for field in PGM_RSRC1[generation]}
        if fields["PRIV"].of(value):
            yield dword, "rsrc1-priv", "RSRC1 PRIV is set", "leave it 0 on gfx12"
        if fields["SGPRS"].of(value):
            yield dword, "register-bits", "RSRC1 bits 9:6 (SGPRS) are reserved on gfx12", "write 0"
