"""Stores to watched memory, with the instruction and lane that performed them. Hardware cannot report
this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservedStore:
    """A store by one lane. `pc` is a byte offset in the kernel, `group` the workgroup's id, `wave` its number in
    the workgroup. `value`: the lowest 8 bytes stored at `address`; for an atomic its operand.
    """

    kernel: str
    dispatch: str
    instruction: str
    pc: int
    group: tuple[int, int, int]
    wave: int
    lane: int
    address: int
    value: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.dispatch}: {self.kernel}, pc 0x{self.pc:x} `{self.instruction}`, workgroup {self.group}, wave "
            f"{self.wave}, lane {self.lane} stored 0x{self.value:x} at 0x{self.address:x}"
        )
