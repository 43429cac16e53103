"""Programs of a few instructions against the registers that they leave on RDNA3: gfx11_programs.txt."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from test_shader_gfx11 import assemble, needs_assembler

from zinc_rt.isa import target_of
from zinc_rt.sim.shader.layout import DX10_CLAMP, IEEE
from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
FILE = Path(__file__).with_name("gfx11_programs.txt")
FLUSHED = 0xC0 | DX10_CLAMP | IEEE  # MODE: 32-bit denormals are flushed
REGISTERS = (*(f"v{index}" for index in range(16)), *(f"s{index}" for index in range(16)), "vcc", "scc", "exec")
SLOTS = 128  # lanes of a row of the output
MEMORY_BYTES = 1 << 15  # of zeros for each program
GROUP_BYTES = SCRATCH_BYTES = 1 << 16
BATCH = 32  # programs of one wave in a launch

START = "s_mov_b32 s97, exec_lo\n v_mov_b32 v255, v0\n s_mov_b32 s98, s0\n s_mov_b32 s99, s1"
# s[98:99]: the address of {memory, output} of the next program
BEFORE = "\n".join(
    (
        "s_mov_b32 s80, s98",
        "s_mov_b32 s81, s99",
        "s_add_u32 s98, s98, 16",
        "s_addc_u32 s99, s99, 0",
        *(f"v_mov_b32 v{index}, 0" for index in range(16)),
        *(f"s_mov_b32 s{index}, 0" for index in range(16)),
        "s_mov_b32 vcc_lo, 0",
        "s_cmp_lg_u32 0, 0",
    )
)


def _store_registers() -> str:
    lines = [
        "s_mov_b32 s90, vcc_lo",
        "s_cselect_b32 s91, 1, 0",
        "s_mov_b32 s95, exec_lo",
        "s_mov_b32 exec_lo, s97",
        "s_load_b64 s[92:93], s[80:81], 0x8",
        "s_waitcnt 0",
        "s_waitcnt_vscnt null, 0",
        "v_lshlrev_b32 v240, 2, v255",
    ]
    names = {"vcc": "s90", "scc": "s91", "exec": "s95"}
    for index, name in enumerate(REGISTERS):
        register = names.get(name, name)
        if index and index % 8 == 0:
            lines.append(f"v_add_nc_u32 v240, {8 * SLOTS * 4:#x}, v240")
        if register.startswith("s"):
            lines.append(f"v_mov_b32 v243, {register}")
            register = "v243"
        lines.append(f"global_store_b32 v240, {register}, s[92:93] offset:{index % 8 * SLOTS * 4}")
    return "\n".join(lines)


@dataclass(frozen=True)
class RegisterProgram:
    """`state`: the registers afterwards, [REGISTERS, lanes]. `ulps`: tolerance."""

    lanes: int
    code: bytes
    state: Array
    ulps: int

    def count_differences(self, out: Array) -> int:
        """Return the number of values that differ. All NaNs are equal, and scalars are those of the first wave."""
        got, expected = out[:, : self.lanes].copy(), self.state
        got[16:, 32:] = expected[16:, 32:]
        both_nan = np.isnan(got.view(np.float32)) & np.isnan(expected.view(np.float32))
        distance = np.abs(got.astype(np.int64) - expected.astype(np.int64))
        return int(((distance > self.ulps) & ~both_nan).sum())


@cache
def read_programs() -> dict[str, list[RegisterProgram]]:
    programs, group = defaultdict(list), ""
    for line in FILE.read_text().splitlines():
        if line.startswith("group "):
            group = line.removeprefix("group ")
        elif not line.startswith("#"):
            lanes, code, registers, *ulps = (part.strip() for part in line.split("|"))
            state = np.zeros((len(REGISTERS), int(lanes)), np.uint32)
            state[-1] = (1 << min(int(lanes), 32)) - 1
            for item in registers.split():
                name, _, values = item.partition("=")
                state[REGISTERS.index(name)] = [int(value, 16) for value in values.split(",")]
            programs[group].append(
                RegisterProgram(int(lanes), bytes.fromhex(code), state, int(ulps[0]) if ulps else 0)
            )
    return dict(programs)


def run_programs(chip: str, programs: list[RegisterProgram]) -> tuple[Array, list[str]]:
    """Run programs of the same number of lanes one after another in one workgroup. Return their registers,
    [program, REGISTERS, SLOTS], and the rules of findings that end a launch.
    """
    device = EngineDevice(target=target_of(chip), level="fast")
    memory = np.zeros((len(programs), MEMORY_BYTES), np.uint8)
    out = np.zeros((len(programs), len(REGISTERS), SLOTS), np.uint32)
    memory_va, out_va = device.place(memory, "memory"), device.place(out, "out")
    addresses = [
        (memory_va + index * MEMORY_BYTES, out_va + index * out[0].nbytes) for index in range(len(programs))
    ]
    va = device.place(np.array(addresses, np.uint64), "addresses")
    before, after = assemble(chip, BEFORE), assemble(chip, _store_registers())
    code = [assemble(chip, START), *(before + program.code + after for program in programs)]
    found = device.run(
        b"".join((*code, assemble(chip, "s_endpgm"))), user_data=(va & 0xFFFFFFFF, va >> 32),
        threads=(programs[0].lanes, 1, 1), lds_bytes=GROUP_BYTES, scratch_bytes=SCRATCH_BYTES, mode=FLUSHED,
    )  # fmt: skip
    return out, [item.rule for item in found if item.rule == "illegal"]


@needs_assembler
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("group", [name for name in read_programs() if name not in ("refused", "differs")])
def test_registers_are_those_of_a_card(group: str) -> None:
    chip = "gfx1151" if group == "floats" else "gfx1100"
    by_lanes = defaultdict(list)
    for program in read_programs()[group]:
        by_lanes[program.lanes].append(program)
    wrong = []
    for lanes, same in by_lanes.items():
        step = BATCH if lanes <= 32 else 1
        for first in range(0, len(same), step):
            batch = same[first : first + step]
            out, illegal = run_programs(chip, batch)
            assert not illegal
            wrong += [
                program.code.hex()
                for program, registers in zip(batch, out, strict=True)
                if program.count_differences(registers)
            ]
    assert not wrong


@needs_assembler
def test_programs_with_fields_that_compilers_leave_zero_are_refused() -> None:
    for program in read_programs()["refused"]:
        assert run_programs("gfx1100", [program])[1] == ["illegal"]


@needs_assembler
def test_a_tiny_numerator_is_not_scaled_back() -> None:
    """A known difference: on a card VCC is 1."""
    [program] = read_programs()["differs"]
    out, _ = run_programs("gfx1100", [program])
    assert program.count_differences(out[0]) == 1
    assert out[0, REGISTERS.index("vcc"), 0] == 0
