"""The PM4 queues of the compute engine: decode, check, execute; read pointer in dwords, wrapped at the ring."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.channel import Channel
from zinc_rt.sim.cp.decode import PacketForm, PacketForms
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.fetch import FetchFrame
from zinc_rt.sim.cp.interruptions import IllegalPacket
from zinc_rt.sim.interfaces import HardwareQueue
from zinc_rt.sim.tables.layout import find_reserved
from zinc_rt.sim.tables.registers import (
    BY_ADDRESS,
    CONFIG,
    CU_MASKS,
    PGM_HI,
    PGM_LO,
    SH,
    UCONFIG,
    find_register,
    format_register,
)

SHADER_TYPE = 1 << 1  # in a header: compute, for the graphics engine; Mesa sets it on compute rings too
LIFTED_RINGS = 1024  # farther on than any overflow of a ring


# Unprivileged registers, by offset from SH's base -> bits outside all fields; a fast path for SET_SH_REG.
OPEN_SH: Mapping[Generation, Mapping[int, int]] = {
    generation: {
        address - SH.base: ~register.bits[generation] & 0xFFFFFFFF
        for address, register in BY_ADDRESS.items()
        if SH.base <= address < SH.end and generation in register.bits and not register.privileged
    }
    for generation in Generation
}


class RegisterFile:
    """A queue's registers, by absolute dword address. Only SH and UCONFIG can be written.

    They start at 0, and CU masks with all bits set, as the kernel's MQD code initialises them
    (kfd_mqd_manager_v12.c).
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.open_sh = OPEN_SH[generation]
        self.sh: dict[int, int] = dict.fromkeys(CU_MASKS, 0xFFFFFFFF)  # by offset from SH.base
        self.uconfig: dict[int, int] = {}  # by offset from UCONFIG.base

    def read(self, address: int) -> int:
        """Return the value, 0 if it was never written. Raises Illegal for a register that user queues may
        not read."""
        if SH.base <= address < SH.end:
            return self.sh.get(address - SH.base, 0)
        if UCONFIG.base <= address < UCONFIG.end:
            return self.uconfig.get(address - UCONFIG.base, 0)
        raise IllegalPacket(
            f"{format_register(address, self.generation)} is privileged: a user's queue may not read it"
        )

    def write(self, address: int, value: int) -> str | None:
        """Write a register. Return None, or its unverified aspect. Raises Illegal for a privileged
        register or one out of range."""
        register = find_register(address, self.generation)
        if register is not None and register.privileged:
            raise IllegalPacket(f"{register.name} is privileged: only the kernel writes it")
        if SH.base <= address < SH.end:
            self.sh[address - SH.base] = value
        elif UCONFIG.base <= address < UCONFIG.end:
            self.uconfig[address - UCONFIG.base] = value
        elif CONFIG.base <= address < CONFIG.end:
            raise IllegalPacket(
                f"{format_register(address, self.generation)} is privileged: only the kernel writes it"
            )
        else:
            raise IllegalPacket(f"register {address:#x} is outside SH and UCONFIG")
        if register is None:
            return (
                f"{format_register(address, self.generation)} is not in the register tables: its effect is "
                "unverified"
            )
        return None

    def find_program_va(self) -> int:
        """Return the program's address: 48 bits, sign-extended."""
        va = (self.sh.get(PGM_LO, 0) | (self.sh.get(PGM_HI, 0) & 0xFF) << 32) << 8
        return va | (va >> 47 & 1) * 0xFFFF << 48


class ComputeChannel(Channel):
    """A KFD or user queue, or a ring of the kernel, with PM4 packets."""

    FREE_HEADER_BITS = SHADER_TYPE  # of the packets of a kernel's ring: without effect, and no finding
    CALLS_WITHIN_CALLS = False  # whether indirect buffers in indirect buffers are known to work

    def __init__(
        self,
        execute: Mapping[int, Callable[[ComputeChannel, Any], None]],
        queue: HardwareQueue,
        device: DeviceState,
        number: int,
    ) -> None:
        """`execute`: the function for each packet, by opcode. A packet without one stops the queue."""
        super().__init__(queue, device, number)
        self._forms = PacketForms(execute, device.generation)
        self.registers = RegisterFile(device.generation)
        self.atomic_return = 0

    def _execute(self, frame: FetchFrame, index: int) -> bool:
        words = frame.words
        form = self._forms.of(words[index])
        if form.dwords > len(words) - index:
            if not self.refill(frame, form.dwords):
                return False
            words, index = frame.words, 0
        packet = form.view(words, index)
        self.history.append((frame, frame.position, form.row.name))
        frame.position += form.dwords
        self.device.consulted.add_mark(form.mark)
        if packet.odd:
            self._check_unusual(form, packet, words[index : index + form.dwords])
        if form.run is None:
            raise IllegalPacket(f"{form.row.name} is not simulated, because its effect on this device is unknown")
        form.run(self, packet)
        return True

    def find_form(self, header: int) -> PacketForm:
        """Return the form of the packet. Raises Illegal for a header that stops the compute engine."""
        return self._forms.of(header)

    # --- memory the CP touches itself --------------------------------------------------------------------------

    def align(self, va: int, size_bytes: int) -> int:
        """Clear the low address bits that have no field in the packet (pm4.md §3.15)."""
        if va & size_bytes - 1:
            self.finding(
                "alignment", f"{self.label()}: 0x{va:x} is not {size_bytes}-byte aligned, the low bits are dropped"
            )
        return va & -size_bytes

    def read(self, va: int, size_bytes: int) -> int:
        """Read 4 or 8 bytes, as a hazard-tracked access."""
        value = int.from_bytes(self.space.read(va, size_bytes), "little")
        self.record_accesses(reads=((va, size_bytes),))
        return value

    def write(self, va: int, data: bytes) -> None:
        self.space.write(va, data)
        self.record_accesses(writes=((va, len(data)),))
        for frame in self.frames[1:]:
            fetched = frame.va(frame.base + len(frame.words))
            if va < fetched and va + len(data) > frame.va(frame.position):
                self.finding(
                    "written-after-fetch",
                    (
                        f"{self.label()} writes to 0x{va:x}, in the indirect buffer it runs from: the CP "
                        "may already have fetched it"
                    ),
                    once=frame.va(0),
                )

    def write_register(self, address: int, value: int) -> None:
        unusual = self.registers.write(address, value)
        if unusual is not None:
            self.finding("register-unknown", f"{self.label()}: {unusual}", once=address)

    def report_unverified(self, rule: str, sentence: str) -> None:
        self.finding(rule, f"{self.label()}: {sentence}", Severity.FINDING, once=sentence)

    # --- findings about a packet --------------------------------------------------------------------------------

    def _check_unusual(self, form: PacketForm, packet: Any, words: Sequence[int]) -> None:
        name = form.row.name
        for dword, free in find_reserved(form.row, form.dwords, self.generation).items():
            extra = words[dword] & free
            if dword == 0 and self.is_kernel:
                extra &= ~self.FREE_HEADER_BITS
            if extra:
                rule = "predicate" if dword == 0 and extra & 1 else "reserved-bits"
                self.finding(
                    rule,
                    f"{self.label()}: dword {dword} has reserved bits {extra:#x} set",
                    once=(name, dword, extra),
                )
        for field in form.row.fields:
            value, allowed = getattr(packet, field.name), field.allowed(self.generation)
            if value is not None and allowed is not None and value not in allowed:
                self.finding(
                    "value" if field.complete else "value-unverified",
                    f"{self.label()}: {field.name} = {value:#x} has no known meaning on "
                    f"{self.generation.name.lower()}",
                    once=(name, field.name, value),
                )

    # --- pointers ------------------------------------------------------------------------------------------------

    def rung(self, value: int) -> None:
        """Handle a doorbell. Hardware compares pointers within the ring, so an unused queue may start any
        number of whole rings ahead.

        Fewer than LIFTED_RINGS are treated as packets that overwrote each other.
        """
        ring = self.ring
        if not ring.position and not ring.wptr and value >= LIFTED_RINGS * ring.size_dw:
            ring.position = ring.wptr = value - value % ring.size_dw
        super().rung(value)

    def _write_rptr(self, position: int) -> None:
        """Write the read pointer: 32 bits, wrapped (pm4.md §1.3); for a user queue 64 bits (userq.md §4),
        with the upper half 0."""
        va = self.queue.rptr_va
        if va:
            self.space.write(va, struct.pack("<Q" if self.is_user else "<I", position % self.ring.size_dw))

    def packet_dwords(self, header: int) -> int:
        return (header >> 16 & 0x3FFF) + 2 if header >> 30 == 3 else 1

    def _disassembled_as(self) -> Generation | None:
        return self.generation
