"""Who stored to watched memory: what a simulated device can say that no hardware can."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """One lane's store. `pc` is a byte offset in the kernel, `group` the workgroup's id, `wave` the number of the
    wave in it. `value`: of what was stored at `address` the lowest 8 bytes; of an atomic its operand."""

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
