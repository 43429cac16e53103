"""Scalar instructions one after another in one kernel: what each leaves in its destination and in SCC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from machine_words import ENDPGM, code_of, encode_constant, s_move, sop2, sopc, store_dword, v_mov

from zinc_rt.sim.shader.run.engine_device import EngineDevice

FIRST, SECOND, DESTINATION, SCC_COPY = 20, 22, 24, 26
LANES = 32
_RESULT_VGPR = 8


@dataclass(frozen=True, slots=True)
class ScalarCase:
    """`words`: the instruction, from s[20:21] and s[22:23] to s[24:25]. Sources and `before` are 64-bit values.

    `expected`: of the destination, 64 bits where `wide`, None: not looked at. `scc_after` None: as before.
    """

    name: str
    words: Sequence[int]
    first: int = 0
    second: int = 0
    expected: int | None = None
    wide: bool = False
    scc: int = 0
    scc_after: int | None = None
    before: int = 0x5A5A5A5A_A5A5A5A5


def _write_lane(vgpr: int, source: int, lane: int) -> list[int]:
    return [0xD7610000 | vgpr, source | encode_constant(lane) << 9]


def _set_scc(value: int) -> int:
    return sopc("s_cmp_eq_u32", encode_constant(value), encode_constant(1))


def run_cases(cases: Sequence[ScalarCase]) -> list[tuple[int, int]]:
    """(destination, SCC) after each case, 64 bits and one."""
    parts: list[int | list[int]] = []
    slots = [(index * 3 // 30, index * 3 % 30) for index in range(len(cases))]
    for case, (row, lane) in zip(cases, slots, strict=True):
        for register, value in ((FIRST, case.first), (SECOND, case.second), (DESTINATION, case.before)):
            parts += [s_move(register, value), s_move(register + 1, value >> 32)]
        parts += [_set_scc(case.scc), list(case.words)]
        parts += [sop2("s_cselect_b32", SCC_COPY, encode_constant(1), encode_constant(0))]
        for index, source in enumerate((DESTINATION, DESTINATION + 1, SCC_COPY)):
            parts.append(_write_lane(_RESULT_VGPR + row, source, lane + index))
    rows = slots[-1][0] + 1
    out = np.zeros((rows, LANES), np.uint32)
    parts.append([0x30000082 | 4 << 17])  # v_lshlrev_b32 v4, 2, v0
    for row in range(rows):
        parts.append(store_dword(_RESULT_VGPR + row, 4, 0, row * LANES * 4))
    device = EngineDevice(level="off")
    va = device.place(out, "out")
    findings = device.run(code_of(v_mov(1, 128), *parts, ENDPGM), user_data=(va & 0xFFFFFFFF, va >> 32))
    assert findings == []
    flat = [out[row, lane : lane + 3].tolist() for row, lane in slots]
    return [(low | high << 32, scc) for low, high, scc in flat]
