"""The work of an acceptance test: VRAM is filled and checked, registers and arithmetic are run with known results.

All results are integers or determined by IEEE 754, so one differing bit is a defect.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.shaders import ShaderBench, count_compute_units
from zinc_rt.probes.outcome import ProbeStuck

MIB = 1 << 20
FILL_GROUPS, FILL_ITEMS, ITEM_BYTES = 256, 256, 16
ROUND_BYTES = FILL_GROUPS * FILL_ITEMS * ITEM_BYTES
BLOCK_BYTES = 256 * MIB
VRAM_SHARE = 0.9  # of the free VRAM: the rest is for page tables and other clients
FACTOR = 0x9E3779B1
REGISTER_STEP, FIRST_REGISTER, REGISTERS = 0x0100_0193, 4, 256
ALL_ONES = 0xFFFF_FFFF
WAVE = 32
VALUES = 1 << 16
SIMULATED_VRAM_BYTES = 64 * MIB
SIMULATED_CUS = 1
WAVES_PER_CU = 8


@dataclass(frozen=True, slots=True)
class WorkDefect:
    """A wrong result. `test`: vram, registers, arithmetic or hang; `where` and `bits` are set if known."""

    test: str
    what: str
    where: str = ""
    bits: int = 0


class AcceptWork:
    """GPU work on one queue. `rounds` and `bytes_checked` count the completed work."""

    def __init__(self, context: ProbeContext, seed: int = 1) -> None:
        self.context, self.seed = context, seed
        self.rounds = self.bytes_checked = self.vram_bytes = 0
        self._blocks: list[DeviceBuffer] = []
        self._bench = ShaderBench(context)
        units = SIMULATED_CUS if context.driver.simulated else count_compute_units(context)[0]
        self._groups = units * WAVES_PER_CU
        self._out = context.memory(self._groups * WAVE * 4, "results")
        self._report = context.memory(4096, "report")
        self._fill, self._check = self._bench.load("mem_fill"), self._bench.load("mem_check")
        self._registers, self._arithmetic = self._bench.load("registers"), self._bench.load("arithmetic")
        self._expected_sum = expected_arithmetic()

    def allocate(self) -> int:
        """Allocate VRAM in blocks until the share is reached. Return the number of bytes."""
        simulated_vram_bytes = SIMULATED_VRAM_BYTES
        if not self.context.driver.simulated:
            memory = self.context.render.memory()
            simulated_vram_bytes = int((memory["vram.usable_heap_size"] - memory["vram.heap_usage"]) * VRAM_SHARE)
        size_bytes = min(BLOCK_BYTES, simulated_vram_bytes)
        while self.vram_bytes + size_bytes <= simulated_vram_bytes:
            try:
                block = self.context.transport.alloc(size_bytes, Placement.VRAM, f"block {len(self._blocks)}")
            except DriverError:
                break
            self._blocks.append(block)
            self.vram_bytes += size_bytes
        return self.vram_bytes

    def free(self) -> None:
        while self._blocks:
            self._blocks.pop().free()

    def run_round(self) -> Iterator[tuple[str, WorkDefect | None]]:
        """Run one round; after each piece, yield its name and the defect, if any.

        VRAM is filled first and checked last, so that it must keep its contents while the other pieces run. Every
        second round inverts all bits."""
        mask = ALL_ONES if self.rounds % 2 else 0
        seed = random.Random(self.seed * 1000 + self.rounds // 2).getrandbits(32)
        try:
            for number in range(len(self._blocks)):
                self._test_memory(number, seed, mask, check=False)
            yield "fill", None
            for inverted in (0, ALL_ONES):
                yield "registers", self._check_registers(inverted)
            yield "arithmetic", self._check_arithmetic()
            for number in range(len(self._blocks)):
                yield "vram", self._test_memory(number, seed, mask, check=True)
        except ProbeStuck as stuck:
            yield "hang", WorkDefect("hang", str(stuck).partition("\n")[0])
            return
        self.rounds += 1

    def _test_memory(self, number: int, seed: int, mask: int, *, check: bool) -> WorkDefect | None:
        block = self._blocks[number]
        constants = (block.size_bytes // ROUND_BYTES, ROUND_BYTES, (seed + number) & ALL_ONES, mask)
        if not check:
            self._bench.run(self._fill, [block.gpu_va], constants, groups=(FILL_GROUPS, 1, 1))
            return None
        self._report.put(0, np.array([0, ALL_ONES, 0, 0], np.uint32).tobytes())
        self._bench.run(self._check, [block.gpu_va, self._report], constants, groups=(FILL_GROUPS, 1, 1))
        self.bytes_checked += block.size_bytes
        count, first, bits, _ = np.frombuffer(self._report.read(0, 16), np.uint32).tolist()
        if not count:
            return None
        what = f"{count} of {block.size_bytes // ITEM_BYTES} quads of dwords differ from what was written"
        where = f"first at byte 0x{number * BLOCK_BYTES + first * ITEM_BYTES:x} of the allocated VRAM"
        return WorkDefect("vram", what, where, bits)

    def _check_registers(self, mask: int) -> WorkDefect | None:
        groups = self._groups
        self._bench.run(self._registers, [self._out], (mask,), groups=(groups, 1, 1))
        got = np.frombuffer(self._out.read(0, groups * WAVE * 4), np.uint32)
        return _compare_lanes("registers", got, expected_registers(groups * WAVE, mask))

    def _check_arithmetic(self) -> WorkDefect | None:
        groups = self._groups
        self._bench.run(self._arithmetic, [self._out], (0, VALUES), groups=(groups, 1, 1))
        got = np.frombuffer(self._out.read(0, groups * WAVE * 4), np.uint32)
        return _compare_lanes("arithmetic", got, np.full(len(got), self._expected_sum, np.uint32))


def _compare_lanes(test: str, got: np.ndarray, expected: np.ndarray) -> WorkDefect | None:
    bad = np.flatnonzero(got != expected)
    if not len(bad):
        return None
    lanes = sorted({int(item) % WAVE for item in bad})
    waves = len({int(item) // WAVE for item in bad})
    shown = ", ".join(map(str, lanes[:8])) + (", …" if len(lanes) > 8 else "")
    what = f"{len(bad)} of {len(got)} work-items computed a wrong sum"
    return WorkDefect(test, what, f"lane{'s' * (len(lanes) > 1)} {shown}, in {waves} wave{'s' * (waves > 1)}")


def expected_registers(items: int, mask: int) -> np.ndarray:
    """Return the results of registers.s, u32 [items]."""
    index, total = np.arange(items, dtype=np.uint32), np.zeros(items, np.uint32)
    for register in range(FIRST_REGISTER, REGISTERS):
        value = (index + np.uint32(register * REGISTER_STEP & ALL_ONES)) ^ np.uint32(mask)
        total = total * np.uint32(31) + value
    return total


def expected_arithmetic(first: int = 0, end: int = VALUES) -> int:
    """Return the result of arithmetic.s for every work-item. Sums and products are rounded once, as IEEE 754-2019
    defines; the fused one is computed in float64, where a product of floats with 8 bits of mantissa is exact."""
    high = np.arange(first, end, dtype=np.uint32)
    high = high[(high & 0x7F80) != 0x7F80] << np.uint32(16)
    x = high.view(np.float32)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        fused = (wide * wide + wide).astype(np.float32)
        results = (x, fused, x + np.float32(0.5), high * np.uint32(FACTOR))
    terms = np.stack([result.view(np.uint32) for result in results], axis=1).ravel()
    total = 0
    powers = np.array([pow(31, index, 1 << 32) for index in range(1024)], np.uint32)
    for index in range(0, len(terms), len(powers)):
        part = terms[index : index + len(powers)]
        folded = int((part * powers[len(part) - 1 :: -1][: len(part)]).sum(dtype=np.uint32))
        total = (total * int(powers[len(part) - 1]) * 31 + folded) & ALL_ONES
    return total
