"""All kernels of instruction_kernels.npz: a quick core, and the rest."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from instruction_kernels import InstructionKernel, KernelWriter
from instruction_lists import VOP1, VOP2, VOP3, VOP3P, VOPC, WMMA, split_mnemonics
from instruction_memory_cases import add_memory_cases
from instruction_packed_cases import add_dual_cases, add_packed_cases, add_wmma_cases
from instruction_scalar_cases import add_scalar_cases
from instruction_vector_cases import BY_HAND, add_lane_cases, add_vector_cases


class KernelSplitter(KernelWriter):
    """Write each mnemonic's first form and one other to `core`, and the rest to `more`."""

    def __init__(self, name: str, wave: int, *, memory: bool = False) -> None:
        super().__init__(name, wave, memory=memory)
        self.core = KernelWriter(f"{name}.core", wave, memory=memory)
        self.more = KernelWriter(f"{name}.more", wave, memory=memory)
        self.seen: Counter[str] = Counter()
        self.mnemonics = 0

    def _pick_writer(self, mnemonic: str) -> KernelWriter:
        number = self.seen[mnemonic]
        self.mnemonics += not number
        self.seen[mnemonic] += 1
        if self.wave == 64:  # mostly the same code in the engine, and slow to compile
            core = number == 0 and self.mnemonics % (4 if self.memory else 2) == 0
        else:
            core = number in (0, 1 + self.mnemonics * 5 % 13) if not self.memory else number == 0
        return self.core if core else self.more

    def vector(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick_writer(mnemonic).vector(mnemonic, text, **how)

    def scalar(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick_writer(mnemonic).scalar(mnemonic, text, **how)


def all_kernels() -> list[InstructionKernel]:
    """`core` ones first in each wave size; names say which they are."""
    kernels: list[InstructionKernel] = []
    for wave in (32, 64):
        turn = itertools.count()
        vector = KernelSplitter(f"vector{wave}", wave)
        for family, text in (("VOP1", VOP1), ("VOP2", VOP2), ("VOPC", VOPC), ("VOP3", VOP3)):
            for name in split_mnemonics(text):
                if name not in BY_HAND:
                    add_vector_cases(vector, family, name, turn)
        add_lane_cases(vector)
        for name in split_mnemonics(VOP3P):
            add_packed_cases(vector, name, turn)
        matrix = KernelSplitter(f"wmma{wave}", wave)
        for name in split_mnemonics(WMMA):
            add_wmma_cases(matrix, name)
        dual = KernelSplitter(f"vopd{wave}", wave)
        if wave == 32:
            add_dual_cases(dual)
        scalar = KernelSplitter(f"scalar{wave}", wave)
        add_scalar_cases(scalar)
        memory = KernelSplitter(f"memory{wave}", wave, memory=True)
        add_memory_cases(memory)
        for splitter in (vector, matrix, dual, scalar, memory):
            kernels += splitter.core.kernels + splitter.more.kernels
    return kernels
