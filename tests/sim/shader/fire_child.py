"""Runs programs of fire_programs on the shader engine of a simulated device, in a process that may die of it.

    python fire_child.py < seeds or programs, one JSON object a line; answers are JSON lines

Each answer but the first has the outcome of one program. "begun" goes out before it, so that who is left alone
knows which one it was. LDS, scratch, registers and buffers end at guard pages.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from fire_guarded import guarded_array
from fire_programs import FireProgram, random_program

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import target_of
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import CodePlace, DevicePageFault, Fault, HardwareQueue, QueueKind
from zinc_rt.sim.memory.buffers import Bo, BorrowedStore, Heap
from zinc_rt.sim.memory.vm import GpuVm
from zinc_rt.sim.shader.run import launch_run as run_module
from zinc_rt.sim.shader.run.engine import GfxEngine
from zinc_rt.sim.shader.run.kernels import CompiledKernels
from zinc_rt.sim.shader_engine import NOTHING, ShaderDispatch

CPU_SECONDS = 30.0  # of one program, translation and compilation with it: then the kernel ends this process
MEMORY_BYTES = 6 << 30
SLICES = 3  # of the engine's, before a program counts as endless
SMALL_FUEL = 1 << 13  # of one turn, so that endless programs come to an end of their slices soon
DATA_BYTES, CONSTANT_BYTES = 1 << 16, 1 << 12
VA = 0x10_0000_0000
DATA_VA, CONSTANT_VA, CODE_VA = VA, VA + (1 << 20), VA + (2 << 20)
SCRATCH_VA = VA + (8 << 20)


class EmptyCache(ObjectCache):
    """Do not cache a hundred thousand kernels that are never used again."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull) / "nothing")

    def load(self, key: str) -> bytes | None:
        return None

    def store(self, key: str, payload: bytes) -> None:
        return None


class MappedRange:
    """An address space with a buffer, arguments in read-only memory, and memory for code."""

    def __init__(self) -> None:
        self.vm = GpuVm()
        choice = np.random.default_rng(1)
        self.data = self._map(DATA_VA, DATA_BYTES, "data")
        self.data_start = choice.integers(0, 64, DATA_BYTES // 4, np.uint32).view(np.uint8)
        self.arguments = self._map(CONSTANT_VA, CONSTANT_BYTES, "arguments", write=False)
        pointers = np.full(CONSTANT_BYTES // 8, DATA_VA, np.uint64)
        pointers += np.arange(len(pointers), dtype=np.uint64) * np.uint64(2048) % np.uint64(DATA_BYTES // 2)
        pointers[4::5] = 33 | 7 << 32
        self.arguments[:] = pointers.view(np.uint8)
        self.code = self._map(CODE_VA, 1 << 16, "code")
        self.vm.announce(DATA_VA, DATA_BYTES // 2, "first half")

    def _map(self, va: int, size_bytes: int, name: str, *, write: bool = True) -> np.ndarray:
        memory = guarded_array(size_bytes)
        bo = Bo(Heap.USERPTR, size_bytes, BorrowedStore(memoryview(memory)), name)
        self.vm.map(va, size_bytes, bo, write=write)
        return memory

    def load(self, code: bytes) -> int:
        """Return the code's address: its last byte is the last of the mapping, so that running past the end
        faults.
        """
        room = len(code) + 255 & ~255
        start = len(self.code) - room
        self.code[:] = 0
        self.code[start : start + len(code)] = np.frombuffer(code, np.uint8)
        self.vm.invalidate_icache()
        self.data[:] = self.data_start
        return CODE_VA + start


class FindingCollector:
    """Receives the reports of the engine (Dispatch.report)."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.sentences: list[str] = []

    def __call__(
        self, rule: str, sentence: str, *, place: CodePlace | None = None, fault: DevicePageFault | None = None
    ) -> None:
        self.rules.append(rule)
        self.sentences.append(sentence)


def make_dispatch(program: FireProgram, memory: MappedRange, collector: FindingCollector) -> ShaderDispatch:
    va = memory.load(program.code)
    base = DATA_VA if program.pointer == "data" else CONSTANT_VA
    user = [base & 0xFFFFFFFF, base >> 32, CONSTANT_VA & 0xFFFFFFFF, CONSTANT_VA >> 32]
    user += [DATA_VA & 0xFFFFFFFF, DATA_VA >> 32, DATA_BYTES // 2, 3 << 28]
    user += [DATA_VA & 0xFFFFFFFF, DATA_VA >> 32]
    unit = 8 if program.wave == 32 else 4
    registers = {
        int(Sh.PGM_RSRC1): 0xF0 << 12 | min(program.vgprs // unit - 1, 63),
        int(Sh.PGM_RSRC2): len(user) << 1
        | 7 << 7
        | -(-program.lds_bytes // 512) << 15
        | bool(program.scratch_bytes),
        int(Sh.TMPRING_SIZE): 1 | -(-program.scratch_bytes * program.wave // 256) << 12
        if program.scratch_bytes
        else 0,
        int(Sh.DISPATCH_SCRATCH_BASE_LO): SCRATCH_VA >> 8,
        **{int(Sh.USER_DATA_0) + index: value for index, value in enumerate(user)},
    }
    queue = HardwareQueue(1, 1, QueueKind.KFD_COMPUTE, memory.vm, 0, 0, 0, 0, 0)
    return ShaderDispatch(
        queue, memory.vm, Generation.GFX12, va, program.groups, (0, 0, 0), program.threads,
        program.threads, program.wave == 32, 0, registers, f"seed {program.seed}", collector,
    )  # fmt: skip


ENDS = {  # rules of findings after which a wave does not go on: the outcome
    "halt": "stopped itself",
    "trap": "stopped itself",
    "barrier-stuck": "stuck at a barrier",
    "not-simulated": "refused at compile",
}


def run_program(program: FireProgram, memory: MappedRange) -> dict[str, Any]:
    """Decode, lint, compile and run one program; an exception is a bug."""
    target = target_of("gfx1201", program.wave)
    refused = lint(program.code, target, Limits(vgprs=program.vgprs, lds_bytes=program.lds_bytes))
    message = FindingCollector()
    dispatch = make_dispatch(program, memory, message)
    engine = GfxEngine(target, level=program.level, threads=1, kernels=CompiledKernels(EmptyCache(), quick=True))
    process_time = time.process_time()
    output = "out of fuel"
    try:
        for _ in range(SLICES):
            result = engine.run(dispatch)
            if result is not None:
                output = "refused at launch" if result is NOTHING else "ran"
                break
        else:
            output = stop_reason(message) or output
            engine.abandon(dispatch)
    except Fault as fault:
        if "page-fault" not in message.rules and fault.access.value != "execute":
            raise AssertionError(f"fault without a finding: {fault}") from fault
        output = "faulted"
    return {
        "outcome": output,
        "lint": len(refused),
        "rules": sorted(set(message.rules)),
        "seconds": round(time.process_time() - process_time, 4),
    }


def stop_reason(collector: FindingCollector) -> str:
    for rule, sentence in zip(reversed(collector.rules), reversed(collector.sentences), strict=True):
        if rule == "illegal":
            return "refused at decode" if "does not decode" in sentence else "refused at compile"
        if rule in ENDS:
            return ENDS[rule]
    return ""


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable()


def read_requests() -> Iterator[tuple[FireProgram, str]]:
    """(program, what is planted in its place: for tests of whoever asks)"""
    for line in sys.stdin:
        document = json.loads(line)
        result = random_program(document["seed"])
        result = replace(result, code=bytes.fromhex(document["code"])) if "code" in document else result
        yield result, document.get("planted", "")


def plant_failure(how: str) -> dict[str, Any]:
    """What compiled code must never do."""
    if how == "store past the end":
        ctypes.memset(int(guarded_array(100).ctypes.data) + 128, 1, 1)
    elif how == "spin":
        signal.setitimer(signal.ITIMER_PROF, 0.2)
        while True:
            pass
    elif how == "raise":
        raise KeyError("planted")
    return {"outcome": "ran"}


def main() -> None:
    limit_resources()
    run_module.aligned = guarded_array  # of slots: registers, LDS, shadows, scratch
    run_module.TURN_FUEL, run_module.ALONE_FUEL = SMALL_FUEL, SMALL_FUEL
    ground = MappedRange()
    for argument, instead in read_requests():
        print(json.dumps({"begun": argument.seed}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # its signal, not caught, ends the process
        try:
            answer = plant_failure(instead) if instead else run_program(argument, ground)
        except MemoryError:
            answer = {"outcome": "too large"}
        except Exception:
            answer = {"outcome": "host error", "text": traceback.format_exc(limit=-6)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"seed": argument.seed, "kind": argument.kind, **answer}), flush=True)


if __name__ == "__main__":
    main()
