"""Code is fetched whole where it ends in the last mapped page, wherever in its pages it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from zinc_rt.isa import target_of
from zinc_rt.kernels.sets import kernel_set
from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.shader.translate.fetched_code import fetched


@dataclass
class Pages:
    """Memory that ends with the page in which the code ends."""

    start: int
    content: bytes

    def fetch(self, va: int, size_bytes: int) -> bytes:
        end = round_up(self.start + len(self.content), PAGE_BYTES)
        if va + size_bytes > end:
            raise Fault(va, AccessKind.EXECUTE, "not present")
        return (self.content + bytes(end - self.start - len(self.content)))[va - self.start :][:size_bytes]


@pytest.mark.parametrize("offset", range(0, PAGE_BYTES, 256))
def test_a_long_branch_over_a_page_does_not_cut_the_code(offset: int) -> None:
    kernels = kernel_set("gfx1201")
    assert kernels is not None
    code = kernels.load("matvec_q8_0").code
    space: Any = Pages(0x10000 + offset, code)
    assert fetched(space, space.start, target_of("gfx1201", wave=32)) == code
