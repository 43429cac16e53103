"""Code is fetched whole wherever control goes: to either side of the entry, over pages that do not exist, to the
end of the last mapped page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from machine_words import ENDPGM, LITERAL, code_of, encode_constant, sop1, sop2, sopk, sopp

from zinc_rt.isa import target_of
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.shader.checks.finding_text import FindingText
from zinc_rt.sim.shader.layout import Site
from zinc_rt.sim.shader.translate.fetched_code import REACH_BYTES, KnownCode, fetch_code

WAVE32 = target_of("gfx1201", wave=32)
ENTRY = 0x4000_0000
RETURN = sop1("s_setpc_b64", 0, 30)


class CountedPages:
    """Memory that consists of non-empty pages; counts `fetches`."""

    def __init__(self, content: Mapping[int, bytes]) -> None:
        self.pages: dict[int, bytearray] = {}
        self.fetches = 0
        for va, data in content.items():
            self.write(va, data)

    def write(self, va: int, data: bytes) -> None:
        for index, byte in enumerate(data, va):
            self.pages.setdefault(index // PAGE_BYTES, bytearray(PAGE_BYTES))[index % PAGE_BYTES] = byte

    def fetch(self, va: int, size_bytes: int) -> bytes:
        self.fetches += 1
        first, last = va // PAGE_BYTES, (va + size_bytes - 1) // PAGE_BYTES
        for page in range(first, last + 1):
            if page not in self.pages:
                raise Fault(page * PAGE_BYTES, AccessKind.EXECUTE, "not present")
        text = b"".join(self.pages[page] for page in range(first, last + 1))
        return text[va % PAGE_BYTES :][:size_bytes]


def call_code(index: int, to: int) -> bytes:
    """Call the code at `to` like a compiler does, from code that begins at `index`, then end the program."""
    offset = to - (index + 4)  # behind s_getpc_b64
    return code_of(
        sop1("s_getpc_b64", 0),
        [sop2("s_add_co_u32", 0, 0, LITERAL), offset & 0xFFFFFFFF],
        [sop2("s_add_co_ci_u32", 1, 1, LITERAL), offset >> 32 & 0xFFFFFFFF],
        sop1("s_swappc_b64", 30, 0),
        ENDPGM,
    )


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("offset", range(0, PAGE_BYTES, 256))
def test_long_branch_over_a_page_does_not_truncate_the_code(offset: int) -> None:
    kernels = find_kernel_set("gfx1201")
    assert kernels is not None
    code = kernels.load("matvec_q8_0").code
    space: Any = CountedPages({ENTRY + offset: code})
    result = fetch_code(space, ENTRY + offset, WAVE32)
    assert (result.code, result.entry, result.pieces) == (code, 0, ((0, len(code)),))


@pytest.mark.parametrize("distance", [-8, -256, -PAGE_BYTES, -5 * PAGE_BYTES, -(1 << 22), 1 << 22])
def test_functions_before_and_after_the_entry_are_fetched(distance: int) -> None:
    function, kernel = (
        code_of(sop1("s_mov_b32", 3, encode_constant(7)), RETURN),
        call_code(ENTRY, ENTRY + distance),
    )
    space: Any = CountedPages({ENTRY: kernel, ENTRY + distance: function})
    result = fetch_code(space, ENTRY, WAVE32)
    assert result.entry == max(-distance, 0)
    assert result.code[result.entry :].startswith(kernel)
    assert result.code[result.entry + distance :].startswith(function)
    assert len(result.code) == (distance + len(function) if distance > 0 else len(kernel) - distance)
    assert sum(end - first for first, end in result.pieces) <= 2 * PAGE_BYTES + len(kernel), "nothing between"
    assert result.is_at(space, ENTRY)
    assert result.find_first_difference(space.fetch, ENTRY) is None


def test_call_by_offset_may_go_backwards() -> None:
    function = code_of(sop1("s_mov_b32", 3, encode_constant(7)), RETURN)
    words = -(PAGE_BYTES + 4) // 4
    kernel = code_of(sopk("s_call_b64", 30, words), ENDPGM)
    space: Any = CountedPages({ENTRY: kernel, ENTRY - PAGE_BYTES: function})
    result = fetch_code(space, ENTRY, WAVE32)
    assert result.code == function + bytes(PAGE_BYTES - len(function)) + kernel


def test_unmapped_or_distant_call_targets_are_left_out() -> None:
    for distance in (-PAGE_BYTES, -(REACH_BYTES + PAGE_BYTES)):
        kernel = call_code(ENTRY, ENTRY + distance)
        content = {ENTRY: kernel}
        if distance != -PAGE_BYTES:
            content[ENTRY + distance] = code_of(RETURN)
        space: Any = CountedPages(content)
        assert fetch_code(space, ENTRY, WAVE32).code == kernel
    with pytest.raises(Fault):
        fetch_code(space, ENTRY + PAGE_BYTES, WAVE32)


def test_cached_code_is_reused_only_if_all_bytes_match() -> None:
    function, waits = code_of(sop1("s_mov_b32", 3, encode_constant(7)), RETURN), code_of(*[sopp("s_nop")] * 16)
    kernel = waits + call_code(ENTRY + len(waits), ENTRY - 4 * PAGE_BYTES)
    known = KnownCode()
    space: Any = CountedPages({ENTRY: kernel, ENTRY - 4 * PAGE_BYTES: function})
    result = fetch_code(space, ENTRY, WAVE32, known)
    assert fetch_code(space, ENTRY, WAVE32, known) is result
    space.write(ENTRY - 4 * PAGE_BYTES, code_of(sop1("s_mov_b32", 3, encode_constant(8))))
    assert result.find_first_difference(space.fetch, ENTRY) == 0 and not result.is_at(space, ENTRY)
    other = fetch_code(space, ENTRY, WAVE32, known)
    assert other is not result and other.code[:4] != result.code[:4]


def test_finding_offsets_are_relative_to_the_entry() -> None:
    kernel = call_code(ENTRY, ENTRY - 8)
    code = code_of(sop1("s_mov_b32", 3, encode_constant(7)), RETURN) + kernel
    text = FindingText("k", code, WAVE32, (), (1, 1, 1), (0, 0, 0), hex, entry=8)
    before = text.at(Site(0, "illegal"), wave=0, group=0)
    assert before.pc == -8 and "pc -0x8 `s_mov_b32 s3, 7`" in before.sentence
    behind = text.at(Site(12, "illegal"), wave=0, group=0)
    assert behind.pc == 4 and "before it `s_getpc_b64 s[0:1]`" in behind.sentence
    outside = text.at(Site(-4, "illegal"), wave=0, group=0)
    assert "pc -0xc `no instruction`" in outside.sentence
