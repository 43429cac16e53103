"""What tests of dispatches share: a machine with a queue, kernels as dwords, a launch as packets."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.kfd import KfdGpu, KfdProcess
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4 import Generation, gcr
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, EventWrite, ReleaseMem, SetShReg
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions

RSRC1 = 0xF0 << 12 | 3  # FLOAT_MODE, 32 VGPRs
INITIATOR = 0x8005  # COMPUTE_SHADER_EN, FORCE_START_AT_000, CS_W32_EN
ACQUIRE = 0x1C1  # GLI_INV, GLM_INV, GLK_INV, GLV_INV
PARTIAL_TG_EN = 2
POISON = 0xDEADBEEF


def parse_dwords(text: str) -> bytes:
    """Dwords in hexadecimal; text after `;` is a comment."""
    words = [int(word, 16) for line in text.splitlines() for word in line.split(";")[0].split()]
    return struct.pack(f"<{len(words)}I", *words)


ENDPGM = parse_dwords("bfb00000 ; s_endpgm")
STORE_IDS = parse_dwords("""
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    84028775                    ; s_lshl_b32 s2, ttmp9, 7
    4a020202                    ; v_add_nc_u32_e32 v1, s2, v1
    4a040075                    ; v_add_nc_u32_e32 v2, ttmp9, v0
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
""")
"""out[32 * group + lane] = group + lane; s[0:1]: out."""

SPIN = parse_dwords("""
    f4000080 f8000000           ; s_load_b32 s2, s[0:1], 0x0
    bfc70000                    ; s_wait_kmcnt 0x0
    bf068002                    ; s_cmp_eq_u32 s2, 0
    bfa2fffb                    ; s_cbranch_scc1 back to the load
    7e020280                    ; v_mov_b32_e32 v1, 0
    7e040287                    ; v_mov_b32_e32 v2, 7
    ee068000 01000000 00000401  ; global_store_b32 v1, v2, s[0:1] offset:4
    bfb00000                    ; s_endpgm
""")
"""Waits until word 0 is not 0, then stores 7 to word 1."""

REVERSE = parse_dwords("""
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    7e040300                    ; v_mov_b32_e32 v2, v0
    d8340000 00000201           ; ds_store_b32 v1, v2
    bfc60000                    ; s_wait_dscnt 0x0
    be804ec1                    ; s_barrier_signal -1
    bf94ffff                    ; s_barrier_wait 0xffff
    3a0602ff 000000fc           ; v_xor_b32_e32 v3, 0xfc, v1
    d8d80000 04000003           ; ds_load_b32 v4, v3
    bfc60000                    ; s_wait_dscnt 0x0
    ee068000 02000000 00000001  ; global_store_b32 v1, v4, s[0:1]
    bfb00000                    ; s_endpgm
""")
"""64 threads, 256 bytes of LDS: out[lane] = 63 - lane, by way of the other wave's half of the LDS."""


class ShaderStage:
    """A process on a machine with a compute queue."""

    def __init__(self, gpu: KfdGpu, machine: SimMachine | None = None) -> None:
        self.gpu, self.machine = gpu, machine
        self.queue = gpu.create_queue(ring_bytes=1 << 16)
        self.fence = gpu.alloc(4096, Placement.GTT, "fence")
        self.fences = 0
        self._views: dict[int, np.ndarray] = {}

    def buffer(self, dwords: int = 1024, name: str = "out") -> tuple[int, np.ndarray]:
        """(VA, the host's view) of zeroed GTT."""
        result = self.gpu.alloc(max(4 * dwords, 4096), Placement.GTT, name)
        words = (ctypes.c_uint32 * dwords).from_address(result.host.address)
        self._views[result.gpu_va] = np.ctypeslib.as_array(words)
        return result.gpu_va, self._views[result.gpu_va]

    def words(self, va: int) -> np.ndarray:
        """The host's view of a buffer made here."""
        return self._views[va]

    def load(self, program: bytes, name: str = "kernel") -> int:
        va, words = self.buffer(-(-len(program) // 1024) * 256, name)
        words.view(np.uint8)[: len(program)] = np.frombuffer(program, np.uint8)
        return va

    def submit(self, *packets: Any) -> None:
        words = [word for packet in packets for word in packet.words(Generation(self.queue.generation[0]))]
        wptr = ctypes.c_uint64.from_address(self.queue.wptr.host.address)
        ring = (ctypes.c_uint32 * self.queue.ring_dw).from_address(self.queue.ring.host.address)
        for location, word in enumerate(words):
            ring[(wptr.value + location) % self.queue.ring_dw] = word
        wptr.value += len(words)
        ctypes.c_uint64.from_address(self.queue.doorbell_address).value = wptr.value

    def launch(
        self,
        program_va: int,
        user_data: Sequence[int] = (),
        *,
        groups: Sequence[int] = (1, 1, 1),
        threads: Sequence[int] = (32, 1, 1),
        rsrc1: int = RSRC1,
        rsrc2: int | None = None,
        lds_bytes: int = 0,
        initiator: int = INITIATOR,
        acquire: int = ACQUIRE,
    ) -> None:
        """A dispatch with a fence after it. `acquire`: GCR_CNTL of the ACQUIRE_MEM before it."""
        if rsrc2 is None:
            rsrc2 = len(user_data) << 1 | -(-lds_bytes // 512) << 15
        self.fences += 1
        generation = Generation(self.queue.generation[0])
        self.submit(
            AcquireMem(acquire),
            SetShReg(Sh.PGM_LO, (program_va >> 8 & 0xFFFFFFFF, program_va >> 40)),
            SetShReg(Sh.PGM_RSRC1, (rsrc1, rsrc2)),
            SetShReg(Sh.TMPRING_SIZE, (0,)),
            SetShReg(Sh.USER_DATA_0, tuple(user_data) + (0,) * (16 - len(user_data))),
            SetShReg(Sh.START_X, (0, 0, 0, *threads)),
            DispatchDirect(*groups, initiator),
            EventWrite.cs_partial_flush(),
            ReleaseMem(self.fence.gpu_va, self.fences, gcr.release(generation, GL2_WB=1, SEQ=1)),
        )

    def done(self, seconds: float = 20) -> bool:
        """Whether the last launch's fence came."""
        value = ctypes.c_uint32.from_address(self.fence.host.address)
        return wait_until(seconds, lambda: value.value == self.fences)

    def run(self, program_va: int, user_data: Sequence[int] = (), **launch: Any) -> None:
        self.launch(program_va, user_data, **launch)
        assert self.done(), self.machine and self.machine.dmesg

    def rules(self) -> list[str]:
        assert self.machine is not None
        return [finding.rule for finding in self.machine.findings]


def split_va(va: int) -> tuple[int, int]:
    return va & 0xFFFFFFFF, va >> 32


def wait_until(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


@contextlib.contextmanager
def gpu_of(driver: Any) -> Iterator[KfdGpu]:
    node = find_gpus(driver).gpus[0].node
    assert node is not None
    with KfdProcess(driver) as process:
        yield process.open_gpu(node)


@contextlib.contextmanager
def open_stage(machine: SimMachine) -> Iterator[ShaderStage]:
    with gpu_of(SimDriver(machine)) as gpu:
        yield ShaderStage(gpu, machine)


@contextlib.contextmanager
def open_machine(*inject: str, **options: Any) -> Iterator[SimMachine]:
    options.setdefault("time_scale", 0.02)
    machine = SimMachine(MachineOptions(inject=inject, **options))
    try:
        yield machine
    finally:
        machine.close()
