"""What a simulated device says of a kernel gets the line it was written in."""

from __future__ import annotations

from zinc_rt.backends.amd.source_lines import with_source
from zinc_rt.kernels.sets import kernel_set

KERNELS = kernel_set("gfx1201")
SENTENCE = (
    "queue 1 DISPATCH_DIRECT at IB dword 0x20c: kernel {}+0x0: uninitialised-vgpr at pc {} `v_add_f32 v0`, wave 0"
)


def test_a_pc_in_a_kernel_of_ours_has_its_line() -> None:
    assert KERNELS is not None
    said = with_source(SENTENCE.format("argmax", "0x0"), KERNELS.load)
    assert " at pc 0x0 (argmax.s:" in said and said.endswith("`v_add_f32 v0`, wave 0")


def test_what_is_not_ours_stays_as_it_is() -> None:
    assert KERNELS is not None
    for sentence in (
        SENTENCE.format("somebody_elses", "0x0"),
        SENTENCE.format("argmax", "0xfffff0"),
        "missing-barrier: dispatch 1 reads what dispatch 0 writes",
    ):
        assert with_source(sentence, KERNELS.load) == sentence
