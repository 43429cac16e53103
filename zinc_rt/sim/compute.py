"""The PM4 queues of the compute engine: decode, check, execute; read pointer in dwords, wrapped at the ring."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from zinc_rt.pm4.decode import Bad, decode
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.layout import Packet
from zinc_rt.pm4.packets import PACKETS
from zinc_rt.sim.channel import Channel
from zinc_rt.sim.device import Device
from zinc_rt.sim.fetch import Frame
from zinc_rt.sim.interfaces import HardwareQueue
from zinc_rt.sim.registers import RegisterFile
from zinc_rt.sim.stops import Illegal


class ComputeChannel(Channel):
    """A KFD or user queue that takes PM4."""

    def __init__(
        self,
        execute: Mapping[type[Packet], Callable[[ComputeChannel, Any], None]],
        queue: HardwareQueue,
        device: Device,
        number: int,
    ) -> None:
        """`execute`: what each packet does. One that is not there stops the queue."""
        super().__init__(queue, device, number)
        self._do = execute
        self.registers = RegisterFile(device.generation)
        self.atomic_return = 0
        self._named = _NAMED[device.generation]

    def _execute(self, frame: Frame, index: int) -> bool:
        packet, length = decode(frame.words, index, self.generation)
        if type(packet) is Bad:
            if packet.why == "truncated":
                if not self.refill(frame, self.packet_dwords(frame.words[index])):
                    return False
                packet, length = decode(frame.words, 0, self.generation)
            if isinstance(packet, Bad):
                raise Illegal(f"{packet.why}: {packet.text}")
        assert isinstance(packet, Packet)
        self.history.append((frame, frame.position, packet.NAME))
        frame.position += length
        cls = type(packet)
        self.device.consulted.mark(_MARKS[cls])
        if packet.reserved:
            self._unusual(packet)
        else:
            for name, names, _ in self._named[cls]:
                if getattr(packet, name) not in names:
                    self._unusual(packet)
                    break
        execute = self._do.get(cls)
        if execute is None:
            raise Illegal(f"{packet.NAME} is not simulated: this device does not know what it does")
        execute(self, packet)
        return True

    # --- memory the CP touches itself --------------------------------------------------------------------------

    def aligned(self, va: int, size_bytes: int) -> int:
        """The low bits that the packet has no room for are dropped (pm4.md §3.15)."""
        if va & size_bytes - 1:
            self.finding(
                "alignment", f"{self.label()}: 0x{va:x} is not {size_bytes}-byte aligned, the low bits are dropped"
            )
        return va & -size_bytes

    def read(self, va: int, size_bytes: int) -> int:
        """4 or 8 bytes, as a hazard-tracked access."""
        value = int.from_bytes(self.space.read(va, size_bytes), "little")
        self.touched(reads=((va, size_bytes),))
        return value

    def write(self, va: int, data: bytes) -> None:
        self.space.write(va, data)
        self.touched(writes=((va, len(data)),))
        for frame in self.frames[1:]:
            fetched = frame.va(frame.base + len(frame.words))
            if va < fetched and va + len(data) > frame.va(frame.position):
                self.finding(
                    "written-after-fetch",
                    f"{self.label()} writes to 0x{va:x}, in the indirect buffer it runs from: the CP may have "
                    "fetched that before",
                    once=frame.va(0),
                )

    def write_register(self, address: int, value: int) -> None:
        unusual = self.registers.write(address, value)
        if unusual is not None:
            self.finding("register-unknown", f"{self.label()}: {unusual}", once=address)

    def unverified(self, rule: str, sentence: str) -> None:
        self.finding(rule, f"{self.label()}: {sentence}", once=sentence)

    # --- what is odd about a packet -----------------------------------------------------------------------------

    def _unusual(self, packet: Packet) -> None:
        for dword, extra in packet.reserved:
            rule = "predicate" if dword == 0 and extra & 1 else "reserved-bits"
            self.finding(
                rule,
                f"{self.label()}: dword {dword} has reserved bits {extra:#x} set",
                once=(packet.NAME, dword, extra),
            )
        for name, names, complete in self._named[type(packet)]:
            value = getattr(packet, name)
            if value not in names:
                self.finding(
                    "value" if complete else "value-unverified",
                    f"{self.label()}: {name} = {value:#x} has no known meaning on {self.generation.name.lower()}",
                    once=(packet.NAME, name, value),
                )

    # --- pointers ------------------------------------------------------------------------------------------------

    def _write_rptr(self, position: int) -> None:
        """32 bits, wrapped (pm4.md §1.3); a user queue's is 64 bits wide (userq.md §4), the upper half 0."""
        va = self.queue.rptr_va
        if va:
            self.space.write(va, struct.pack("<Q" if self.is_user else "<I", position % self.ring.size_dw))

    def packet_dwords(self, header: int) -> int:
        return (header >> 16 & 0x3FFF) + 2 if header >> 30 == 3 else 1

    def _disassembled_as(self) -> Generation | None:
        return self.generation


_MARKS: Mapping[type[Packet], str] = {cls: f"packet {cls.NAME}" for cls in PACKETS}

# fields with a closed list of values: (name, the values, whether the list is complete)
_NAMED: Mapping[Generation, Mapping[type[Packet], tuple[tuple[str, frozenset[int], bool], ...]]] = {
    generation: {
        cls: tuple(
            (field.name, frozenset(names), field.place.complete)
            for field in cls.FIELDS
            if (names := field.place.values(generation)) is not None
        )
        for cls in PACKETS
    }
    for generation in Generation
}
