"""The supported chips, one row each, and the `Target` that is passed to all chip-dependent code.

Adding a chip of a supported generation requires one row in TARGETS. Other code queries properties of a Target and
does not compare names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.isa.wave_rules import RULES, WaveRules

DEFAULT_ARCH = "gfx1201"  # the default chip of commands and test devices
READINGS = ("real", "fake")
DEFAULT_READING = {11: "real", 12: "fake"}  # LLVM 22.1.8's for code without -mattr=+real-true16 or -real-true16


@dataclass(frozen=True, slots=True)
class Target:
    """An architecture by its LLVM name, the wave size, 32 or 64, and a reading of 16-bit operands. Targets are
    equal if these three are.

    `true16`: "real" if 16-bit operands are halves of vector registers (v1.l, v1.h), "fake" if they are whole
    registers, as with LLVM's -mattr=+real-true16 and -real-true16. None: LLVM's default for the chip or, if a
    whole kernel or object is read, what the bits require (isa.true16).

    `generation`: the graphics IP's major version, 11 (RDNA3) or 12 (RDNA4), which selects instructions and
    packets. `has_decoder` False: packets are supported, instructions are not, and simulated devices run no
    waves. `elf_machine`: EF_AMDGPU_MACH of readable code objects, 0 for none. `container`: gpu_target of the .zrt
    header, 0 for none. `kernels`: the kernel set that models run on, "" for none. `transfers_per_clock`: bits
    that a memory pin transfers per cycle of mem_clk_max, 0 if unknown. `vgpr_bytes_per_cu`: VGPR bytes in the
    context save area, as Linux computes it; two values if Linux versions differ, the older first.
    """

    name: str
    generation: int = field(compare=False)
    wave: int = 32
    true16: str | None = None
    has_decoder: bool = field(default=True, compare=False)
    elf_machine: int = field(default=0, compare=False)
    container: int = field(default=0, compare=False)
    kernels: str = field(default="", compare=False)
    transfers_per_clock: int = field(default=0, compare=False)
    vgpr_bytes_per_cu: tuple[int, ...] = field(default=(0x40000,), compare=False)

    @property
    def has_halves(self) -> bool:
        """Return whether 16-bit operands are halves of registers in this reading."""
        return (self.true16 or DEFAULT_READING[self.generation]) == "real"

    @property
    def mask_width(self) -> int:
        """The number of dwords of a lane mask."""
        return self.wave // 32

    @property
    def version(self) -> tuple[int, int, int]:
        """(major, minor, step) of a chip, parsed from the hexadecimal digits of its name: (12, 0, 1) for
        gfx1201.
        """
        return self.generation, int(self.name[-2], 16), int(self.name[-1], 16)

    @property
    def simd_vgprs(self) -> int:
        """The VGPRs of a SIMD, per lane in wave32. A compute unit has two SIMDs."""
        return self.vgpr_bytes_per_cu[-1] // (2 * 4 * 32)

    @property
    def isa(self) -> float:
        """The instruction set: 11, 11.5 (with scalar float instructions) or 12, for rows."""
        return 11.5 if not self.is_generic and self.version[:2] == (11, 5) else self.generation

    @property
    def family(self) -> str:
        """The generic target whose code the chip can run: gfx12-generic for gfx1201 and for itself."""
        return f"gfx{self.generation}-generic"

    @property
    def is_generic(self) -> bool:
        """Return whether the code is for a chip family instead of one chip."""
        return self.name == self.family

    @property
    def rules(self) -> WaveRules:
        """The rules of the chip's waves that differ between generations."""
        return RULES[self.isa]

    def with_wave(self, wave: int) -> Target:
        """Return the same chip with waves of 32 or 64 lanes. Raise UsageError for another number."""
        if wave not in (32, 64):
            raise UsageError(f"wave {wave}", next="use 32 or 64")
        return self if wave == self.wave else replace(self, wave=wave)

    def with_true16(self, true16: str | None) -> Target:
        """Return the same chip with a reading of 16-bit operands. Raise UsageError for an unknown one."""
        if true16 not in (None, *READINGS):
            raise UsageError(f"true16 {true16!r}", next="use real or fake")
        return self if true16 == self.true16 else replace(self, true16=true16)


# elf_machine: EF_AMDGPU_MACH (llvm/BinaryFormat/ELF.h). container: the original design's table, section 11.2.
# kernels: LLVM's gfx12-generic is gfx1200 and gfx1201 without a restriction (AMDGPUUsage), so both run one set.
# gfx1100's has no instruction or encoding that only some of gfx11 have.
# transfers_per_clock: GDDR6 moves 16 (ac_memory_ops_per_clock in Mesa, after PAL's MemoryOpsPerClockTable). An
# R9700 reports 1258 MHz on 256 bits: 644 GB/s, its maker specifies 640. vgpr_bytes_per_cu: amdkfd/kfd_queue.c;
# ROCm issue 5151 for the two of gfx1151.
_LARGE = (0x60000,)
_ROWS = (
    Target("gfx1100", 11, elf_machine=0x41, container=4, kernels="gfx1100",
           transfers_per_clock=16, vgpr_bytes_per_cu=_LARGE),  # Navi 31
    Target("gfx1101", 11, elf_machine=0x46, kernels="gfx1100",
           transfers_per_clock=16, vgpr_bytes_per_cu=_LARGE),  # Navi 32
    Target("gfx1102", 11, elf_machine=0x47, kernels="gfx1100", transfers_per_clock=16),  # Navi 33
    Target("gfx1103", 11, elf_machine=0x44, kernels="gfx1100"),  # Phoenix
    Target("gfx1150", 11, elf_machine=0x43, kernels="gfx1100"),  # Strix Point
    Target("gfx1151", 11, elf_machine=0x4A, container=3, kernels="gfx1100",
           vgpr_bytes_per_cu=(0x40000, 0x60000)),  # Strix Halo
    Target("gfx1200", 12, elf_machine=0x48, container=2, kernels="gfx1201",
           transfers_per_clock=16, vgpr_bytes_per_cu=_LARGE),  # Navi 44
    Target("gfx1201", 12, elf_machine=0x4E, container=1, kernels="gfx1201",
           transfers_per_clock=16, vgpr_bytes_per_cu=_LARGE),  # Navi 48
    Target("gfx11-generic", 11, elf_machine=0x54),
    Target("gfx12-generic", 12, elf_machine=0x59, vgpr_bytes_per_cu=_LARGE),
)  # fmt: skip
TARGETS: dict[str, Target] = {row.name: row for row in _ROWS}
CHIPS = tuple(row for row in _ROWS if not row.is_generic)


def target_of(arch: str, wave: int = 32, *, true16: str | None = None) -> Target:
    """Return the target with an LLVM name, for decoding code. Raise UnsupportedError if the target has no
    decoder.
    """
    decoded = {name: row for name, row in TARGETS.items() if row.has_decoder}
    if arch not in decoded:
        raise UnsupportedError(
            f"{arch}: its instructions are not supported by this version", next=f"use {', '.join(decoded)}"
        )
    return decoded[arch].with_wave(wave).with_true16(true16)


def make_default_target(wave: int = 32) -> Target:
    """Return the target to use if no chip is specified."""
    return TARGETS[DEFAULT_ARCH].with_wave(wave)


def parse_major_version(arch: str) -> int:
    """Return the major version in an LLVM name, also for unlisted chips: 12 for gfx1201, 9 for gfx90a; 0 for other
    text."""
    digits = arch.removeprefix("gfx")[:-2]
    return int(digits) if arch.startswith("gfx") and digits.isdecimal() else 0
