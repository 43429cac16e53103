"""One wave of one kernel, called directly: fuel by the drop, suspensions in sight, registers in the state."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    EXEC_LO,
    FINDING,
    NO_PHASE,
    SITE_STATE,
    STATE,
    TRACE,
    Checks,
    KernelVariant,
    RecordBlock,
    Status,
    aligned,
    state_bytes,
)
from zinc_rt.sim.shader.run.compile import LoadedCode, compile_ir
from zinc_rt.sim.shader.translate.translation import Translation, translate

PROGRAM_VA = 0x7000_0000_1000
_Function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def _new_state(wave: int, vgprs: int) -> tuple[np.ndarray, np.ndarray]:
    """(header, registers) of a zeroed, aligned state: a 0-dimensional record and [vgprs, wave] uint32, one memory.

    Its address is `header.ctypes.data`; both arrays keep the memory alive.
    """
    memory = aligned(state_bytes(wave, vgprs))
    header = memory[: STATE.size_bytes].view(STATE.dtype).reshape(())
    registers = memory[STATE.size_bytes :].view(np.uint32).reshape(2, vgprs, wave)[0]
    header["barrier_phase"] = NO_PHASE
    return header, registers


class SingleWave:
    """`header`, `vgprs`: the state; `context`: the thread's. Registers are as the last suspension saved them."""

    def __init__(
        self,
        code: bytes,
        *,
        level: str = "fast",
        wave: int = 32,
        execution: int | None = None,
        user_data: Sequence[int] = (),
        vgprs: int = 16,
        entry: int = 0,
        group_waves: int = 1,
        trace: bool = False,
        profile: bool = False,
        mode: int = 0xF0,
        scratch_bytes: int = 0,
    ) -> None:
        full = (1 << wave) - 1
        execution = full if execution is None else execution
        checks = Checks(level, trace=trace, profile=profile)
        variant = KernelVariant(
            code, make_default_target(wave), execution == full, checks, vgprs, len(user_data), entry, mode
        )
        self.translation: Translation = translate(variant)
        self._library = LoadedCode(compile_ir(self.translation.text), [self.translation.function])
        self._call = _Function(self._library.at[self.translation.function])
        self.header, self.vgprs = _new_state(wave, vgprs)
        self.vgprs[0] = np.arange(wave)
        self.header["sgprs"][: len(user_data)] = user_data
        self.header["sgprs"][EXEC_LO : EXEC_LO + 2] = execution & 0xFFFFFFFF, execution >> 32
        self._scratch = np.zeros(scratch_bytes // 4 * wave * 5, np.uint8)  # a shadow byte behind each dword
        self.header["scratch_base"] = self._scratch.ctypes.data
        self.header["scratch_shadow"] = self._scratch.ctypes.data + scratch_bytes * wave
        self.header["scratch_bytes"] = scratch_bytes
        self.context = RecordBlock(CONTEXT)
        self.findings = np.zeros(64, FINDING.dtype)
        self._sites = np.zeros(max(len(self.translation.sites), 1), SITE_STATE.dtype)
        self.trace = np.zeros(256, TRACE.dtype)
        self.profile = np.zeros(max(len(self.translation.blocks), 1), np.uint64)
        for name, array in (
            ("findings", self.findings),
            ("sites", self._sites),
            ("trace", self.trace),
            ("profile", self.profile),
        ):
            self.context[name] = int(array.ctypes.data)
        self.context["findings_capacity"] = len(self.findings)
        self.context["trace_capacity"] = len(self.trace)
        self.context["program_va"] = PROGRAM_VA
        self.context["group_waves"] = group_waves
        self.context["mode"] = mode

    def run(self, fuel: int = 1 << 40) -> Status:
        self.context["fuel"] = fuel
        return Status(self._call(self.header.ctypes.data, self.context.address))

    def run_to_the_end(self, fuel: int) -> int:
        """Return how many calls with that `fuel` were needed until it was DONE."""
        calls = 1
        while (status := self.run(fuel)) is not Status.DONE:
            assert status is Status.FUEL
            calls += 1
        return calls

    def sgpr(self, index: int) -> int:
        return int(self.header["sgprs"][index])

    def rules(self) -> list[tuple[str, int, str]]:
        """(rule, pc, text) of each finding so far."""
        count = min(self.context["findings_count"], len(self.findings))
        sites = [self.translation.sites[int(record["site"])] for record in self.findings[:count]]
        return [(site.rule, site.pc, site.text) for site in sites]

    def stopped_at(self) -> tuple[str, int, str]:
        """Of ILLEGAL and HALT: (rule, pc, text)."""
        site = self.translation.sites[int(self.header["site"])]
        assert site.pc == int(self.header["pc"])
        return site.rule, site.pc, site.text
