"""All kernels of instruction_kernels.npz: a quick core, and the rest."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from instruction_kernels import Kernel, Writer
from instruction_lists import VOP1, VOP2, VOP3, VOP3P, VOPC, WMMA, mnemonics
from instruction_memory_cases import memory_cases
from instruction_packed_cases import dual_cases, packed_cases, wmma_cases
from instruction_scalar_cases import scalar_cases
from instruction_vector_cases import BY_HAND, lane_cases, vector_cases


class Splitter(Writer):
    """Write each mnemonic's first form and one other to `core`, and the rest to `more`."""

    def __init__(self, name: str, wave: int, *, memory: bool = False) -> None:
        super().__init__(name, wave, memory=memory)
        self.core = Writer(f"{name}.core", wave, memory=memory)
        self.more = Writer(f"{name}.more", wave, memory=memory)
        self.seen: Counter[str] = Counter()
        self.mnemonics = 0

    def _pick(self, mnemonic: str) -> Writer:
        number = self.seen[mnemonic]
        self.mnemonics += not number
        self.seen[mnemonic] += 1
        if self.wave == 64:  # mostly the same code in the engine, and slow to compile
            core = number == 0 and self.mnemonics % (4 if self.memory else 2) == 0
        else:
            core = number in (0, 1 + self.mnemonics * 5 % 13) if not self.memory else number == 0
        return self.core if core else self.more

    def vector(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick(mnemonic).vector(mnemonic, text, **how)

    def scalar(self, mnemonic: str, text: str, **how: Any) -> None:
        self._pick(mnemonic).scalar(mnemonic, text, **how)


def all_kernels() -> list[Kernel]:
    """`core` ones first in each wave size; names say which they are."""
    kernels: list[Kernel] = []
    for wave in (32, 64):
        turn = itertools.count()
        vector = Splitter(f"vector{wave}", wave)
        for family, text in (("VOP1", VOP1), ("VOP2", VOP2), ("VOPC", VOPC), ("VOP3", VOP3)):
            for name in mnemonics(text):
                if name not in BY_HAND:
                    vector_cases(vector, family, name, turn)
        lane_cases(vector)
        for name in mnemonics(VOP3P):
            packed_cases(vector, name, turn)
        matrix = Splitter(f"wmma{wave}", wave)
        for name in mnemonics(WMMA):
            wmma_cases(matrix, name)
        dual = Splitter(f"vopd{wave}", wave)
        if wave == 32:
            dual_cases(dual)
        scalar = Splitter(f"scalar{wave}", wave)
        scalar_cases(scalar)
        memory = Splitter(f"memory{wave}", wave, memory=True)
        memory_cases(memory)
        for splitter in (vector, matrix, dual, scalar, memory):
            kernels += splitter.core.kernels + splitter.more.kernels
    return kernels
