"""The compiled publish: what it stores, where, and in which order."""

from __future__ import annotations

import ctypes
import platform
import random
import re

import llvmlite.binding as llvm
import pytest

from zinc_rt.backends.amd.publish import PublishTarget, _create_target_machine, generate_source, load_publisher
from zinc_rt.host.errors import UnsupportedError

RING_DW = 64


class Memory:
    """A ring between two guard words, wptr, doorbell."""

    def __init__(self) -> None:
        self.words = (ctypes.c_uint32 * (RING_DW + 2))()
        self.words[0] = self.words[-1] = 0xAAAAAAAA
        self.wptr, self.doorbell = ctypes.c_uint64(), ctypes.c_uint64()
        self.target = PublishTarget(
            ring_address=ctypes.addressof(self.words) + 4,
            ring_dw=RING_DW,
            wptr_address=ctypes.addressof(self.wptr),
            doorbell_address=ctypes.addressof(self.doorbell),
        )

    def publish_dwords(self, wptr_dw: int, dwords: list[int]) -> int:
        content = (ctypes.c_uint32 * max(1, len(dwords)))(*dwords)
        return load_publisher()(self.target.address, wptr_dw, ctypes.addressof(content), len(dwords))

    @property
    def ring_words(self) -> list[int]:
        assert self.words[0] == self.words[-1] == 0xAAAAAAAA, "written beside the ring"
        return list(self.words[1:-1])


@pytest.mark.parametrize("count_dw", [1, 2, 20, RING_DW - 1])
def test_dwords_wrap_at_every_ring_offset(count_dw: int) -> None:
    for lap in (0, 1, (1 << 32) // RING_DW, (1 << 62) // RING_DW):
        for location in range(RING_DW):
            memory, wptr = Memory(), lap * RING_DW + location
            dwords = [random.getrandbits(32) for _ in range(count_dw)]
            assert memory.publish_dwords(wptr, dwords) == wptr + count_dw
            want = [0] * RING_DW
            for index, word in enumerate(dwords):
                want[(location + index) % RING_DW] = word
            assert memory.ring_words == want
            assert memory.wptr.value == memory.doorbell.value == wptr + count_dw


def test_empty_publish_does_not_ring_the_doorbell() -> None:
    memory = Memory()
    assert memory.publish_dwords(5, []) == 5
    assert memory.doorbell.value == memory.wptr.value == 0


def test_compiled_order_is_dwords_fence_wptr_fence_doorbell() -> None:
    assembly = _create_target_machine().emit_assembly(llvm.parse_assembly(generate_source(platform.machine())))
    body = [line.split("#")[0].strip() for line in assembly.splitlines()]
    text = [line for line in body if re.match(r"[a-z]+\b", line)]
    fences = [index for index, line in enumerate(text) if line == "sfence"]
    assert len(fences) == 2
    first, second = fences
    stores = [index for index, line in enumerate(text) if re.search(r"^mov\w*\s+%\w+, \S*\(", line)]
    assert [index for index in stores if index < first], "the copy comes before the first fence"
    assert all(text[index].startswith("movl") for index in stores if index < first)
    between = [text[index] for index in stores if first < index < second]
    after = [text[index] for index in stores if index > second]
    assert len(between) == len(after) == 1
    assert between[0].startswith("movq") and after[0].startswith("movq"), "64 bits at once"
    pointers = {  # the target's third and fourth words
        name: re.search(rf"movq\s+{offset}\(%rdi\), (%\w+)", "\n".join(text))
        for name, offset in (("wptr", 16), ("doorbell", 24))
    }
    assert pointers["wptr"] and between[0].endswith(f"({pointers['wptr'][1]})")
    assert pointers["doorbell"] and after[0].endswith(f"({pointers['doorbell'][1]})")


@pytest.mark.parametrize("ring_dw", [0, 3, 100])
def test_ring_size_that_is_not_a_power_of_two_is_rejected(ring_dw: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        PublishTarget(ring_address=0, ring_dw=ring_dw, wptr_address=0, doorbell_address=0)


def test_unaligned_pointers_are_rejected() -> None:
    with pytest.raises(ValueError, match="multiples of 8"):
        PublishTarget(ring_address=0, ring_dw=64, wptr_address=4, doorbell_address=0)


def test_host_without_a_known_store_fence_is_rejected() -> None:
    with pytest.raises(UnsupportedError, match="riscv64"):
        generate_source("riscv64")
