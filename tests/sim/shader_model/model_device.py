"""ModelDevice: gfx12 kernels, one instruction at a time over NumPy arrays. Slow and plain: an oracle.

Same interface as zinc_rt.sim.shader.run.engine_device.EngineDevice.

What instructions compute was written apart from the shader engine and shares no arithmetic with it. Decoding is
common to both: zinc_rt.isa makes the instructions that either runs, and is held against LLVM's own vectors. The
facts of an instruction's row (implicit registers, where control goes) are not used here: the model has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sim.shader_model import (
    model_buffer,
    model_control,
    model_global,
    model_lds,
    model_packed,
    model_scalar,
    model_scalar_memory,
    model_valu,
    model_wmma,
)
from sim.shader_model.model_memory import Memory
from sim.shader_model.model_state import ModelWave

from zinc_rt.isa import Instruction, decode, target_of

Array = np.ndarray
Step = Callable[[ModelWave], Any]


class ModelError(Exception):
    """The model cannot continue; states the cause and the location."""


@dataclass(slots=True)
class WaveGroup:
    """The waves of a workgroup, with their LDS and barrier."""

    memory: Memory
    lds: Array
    living: int = 0
    arrived: int = 0
    phase: int = 0
    waves: list[ModelWave] = field(default_factory=list)

    def check(self) -> None:
        if self.living and self.arrived >= self.living:
            self.arrived = 0
            self.phase += 1


class ModelProgram:
    """A kernel's instructions, which are bound to functions at first use."""

    def __init__(self, code: bytes, width: int, code_va: int) -> None:
        self.code, self.width, self.code_va = code, width, code_va
        self.target = target_of("gfx1201", width)
        self.steps: dict[int, tuple[Step, int]] = {}

    def step_at(self, pc: int) -> tuple[Step, int]:
        result = self.steps.get(pc)
        if result is None:
            result = self.steps[pc] = self._bind_at(pc)
        return result

    def _bind_at(self, pc: int) -> tuple[Step, int]:
        if not 0 <= pc < len(self.code):
            raise ModelError(f"pc {pc:#x} is outside the code's {len(self.code):#x} bytes")
        instruction = decode(self.code, pc, self.target)
        if instruction is None:
            raise ModelError(f"no instruction at pc {pc:#x}: {self.code[pc : pc + 16].hex()}")
        step = bind(instruction, pc, self.width, self.code_va)
        return step, pc + instruction.size_bytes


_MEMORY: dict[str, Callable[[Instruction, int], Step | None]] = {
    "SMEM": model_scalar_memory.bind_scalar_memory,
    "VBUFFER": model_buffer.bind_buffer,
    "DS": model_lds.bind_lds,
    **dict.fromkeys(("GLOBAL", "FLAT", "SCRATCH"), model_global.bind_global),
}


def bind(instruction: Instruction, pc: int, width: int, code_va: int) -> Step:
    """Return the instruction as a function of a wave. Raises ModelError for instructions that the model does not
    implement.
    """
    encoding = instruction.encoding
    step: Step | None = None
    try:
        if encoding.startswith("SOP"):
            step = model_control.bind_control(instruction, pc, code_va) or model_scalar.bind_scalar(instruction)
        elif instruction.mnemonic.startswith("v_wmma"):
            step = model_wmma.bind_wmma(instruction, width)
        elif encoding.startswith("VOP3P"):
            step = model_packed.bind_packed(instruction, width)
        elif encoding.startswith("VOP"):
            name = model_valu.base_name(instruction.mnemonic)
            if name in ("v_dot2_f16_f16", "v_dot2_bf16_bf16"):
                step = model_packed.bind_dot2_half(instruction, width)
            else:
                step = model_valu.bind_valu(instruction, width)
        elif encoding in _MEMORY:
            step = _MEMORY[encoding](instruction, width)
    except NotImplementedError as error:
        raise ModelError(f"pc {pc:#x}: {error}") from error
    if step is None:
        raise ModelError(f"pc {pc:#x}: the model does not implement {instruction.text} ({encoding})")
    return step


class ModelDevice:
    """An address space over NumPy arrays. `level`, `perturb` and `threads` are accepted and ignored."""

    def __init__(
        self, *, level: str = "full", perturb: int = 0, threads: int = 1, fuel: int | None = None
    ) -> None:
        self.memory = Memory()
        self.fuel = fuel
        self.trace: Callable[[int, Instruction, ModelWave], None] | None = None

    def place(self, array: Array, name: str = "", *, initialised: bool = True, write: bool = True) -> int:
        """Return the VA of a live view of the array's bytes (C-contiguous); results appear in the array itself."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name or 'array'}: not C-contiguous; pass np.ascontiguousarray(array)")
        return self.memory.place(array.reshape(-1).view(np.uint8), name, write and array.flags.writeable)

    def run(
        self,
        code: bytes,
        *,
        groups: tuple[int, int, int] = (1, 1, 1),
        threads: tuple[int, int, int] = (32, 1, 1),
        wave: int = 32,
        user_data: Sequence[int] = (),
        lds_bytes: int = 0,
        scratch_bytes: int = 0,
        vgprs: int = 256,
        sgprs: int = 106,
        entry: int = 0,
        mode: int = 0xF0,
        name: str = "kernel",
    ) -> list[Any]:
        """Run one workgroup after another; the waves of a workgroup take turns between barriers. Raises Fault."""
        code_va = self.memory.place(np.frombuffer(bytes(code), np.uint8), name, write=False)
        program = ModelProgram(bytes(code), wave, code_va)
        with np.errstate(all="ignore"):
            for z in range(groups[2]):
                for y in range(groups[1]):
                    for x in range(groups[0]):
                        self._run_group(
                            program, (x, y, z), threads, user_data, lds_bytes, scratch_bytes, entry, mode
                        )
        return []

    def _run_group(
        self,
        program: ModelProgram,
        at: tuple[int, int, int],
        threads: tuple[int, int, int],
        user_data: Sequence[int],
        lds_bytes: int,
        scratch_bytes: int,
        entry: int,
        mode: int,
    ) -> None:
        group = WaveGroup(self.memory, np.zeros(lds_bytes, np.uint8))
        width = program.width
        total = threads[0] * threads[1] * threads[2]
        for number in range(-(-total // width)):
            wave = ModelWave(width, min(width, total - number * width))
            thread = np.arange(number * width, (number + 1) * width)
            ids = thread % threads[0] | (thread // threads[0] % threads[1]) << 10
            ids |= thread // (threads[0] * threads[1]) << 20
            wave.v[0] = ids
            for i, value in enumerate(user_data):
                wave.s[i] = int(value) & 0xFFFFFFFF
            wave.s[108 + 9] = at[0]
            wave.s[108 + 7] = at[1] | at[2] << 16
            wave.s[108 + 8] = number << 25
            wave.scratch = np.zeros((width, scratch_bytes), np.uint8)
            wave.group = group
            wave.mode = mode
            group.waves.append(wave)
        group.living = len(group.waves)
        running = [(wave, self._run_wave(program, wave, entry)) for wave in group.waves]
        while running:
            before = (group.phase, len(running))
            for pair in list(running):
                wave, steps = pair
                if wave.signalled is not None and wave.signalled == group.phase:
                    continue  # waits for the others
                if next(steps, None) is None:
                    running.remove(pair)
                    group.living -= 1
                    group.check()
            if (
                running
                and before == (group.phase, len(running))
                and all(wave.signalled == group.phase for wave, _ in running)
            ):
                raise ModelError("the waves wait at a barrier that some of them never reach")

    def _run_wave(self, program: ModelProgram, wave: ModelWave, entry: int) -> Iterator[bool]:
        """Yield at every barrier at which the wave waits; ends with the wave."""
        pc, left = entry, self.fuel
        while True:
            step, following = program.step_at(pc)
            if self.trace is not None:
                text = decode(program.code, pc, program.target)
                assert text is not None
                self.trace(pc, text, wave)
            try:
                result = step(wave)
            except (IndexError, NotImplementedError, OverflowError) as error:
                raise ModelError(f"pc {pc:#x}: {error}") from error
            if result is None:
                pc = following
            elif result >= 0:
                pc = result
            elif result == model_control.END:
                return
            else:
                pc = following
                if wave.signalled is None:
                    raise ModelError(f"pc {pc:#x}: waits at a barrier it has not signalled")
                if wave.signalled == wave.group.phase:
                    yield True
                wave.signalled = None
            if left is not None:
                left -= 1
                if left <= 0:
                    raise ModelError(f"out of fuel at pc {pc:#x}")
