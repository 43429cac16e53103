"""What a compiler makes is clean, and without any one of its waits it is not."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path

import pytest
from compiled import CompiledKernel, build_code_object, compile_kernels, is_compiler_available

from zinc_rt.cli.isa import main
from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.elf import KernelDescriptorEntry, read_descriptors
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.isa.lint.sgpr_reads import SA_SDST, VA_SDST, VA_VCC

pytestmark = pytest.mark.skipif(not is_compiler_available(), reason='no compiler: extra "asm" is not installed')

S_NOP = 0xBF800000
# Waits of the compiler that machine code alone does not show to be needed, and why.
FUNCTION = (
    "the ABI of calls: nothing is known to be pending where a function begins, or left so where it is called"
)
NOTHING_PENDING = "no operation of this counter can be pending there"
NOT_FOUND = {
    "called": FUNCTION,
    "calls": FUNCTION,
    "reduce": NOTHING_PENDING,
    "histogram": NOTHING_PENDING,
    "neighbours": "a store and a load of one array through different registers",
    "publish": "orders a store before another one that tells of it",
    "scratch": "volatile: each store is waited for, by definition",
    "generic_or_lds": "in wave64 the group is one wave, whose barrier is left out, its fence is not",
}


def reduce_waits(instruction: Instruction) -> list[int]:
    """Return the words of an instruction that waits for one operation less than this one."""
    word = instruction.words[0]
    if instruction.mnemonic in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        return [word | 63 << 8, word | 63]
    if instruction.mnemonic == "s_wait_alu":
        return [word | field for field in (SA_SDST, VA_VCC, VA_SDST) if word & field != field]
    return [S_NOP] if instruction.mnemonic.startswith("s_wait_") else []


def is_kernel(compiled: CompiledKernel) -> bool:
    return compiled.name != "called"


@pytest.fixture
def compiled_builds(slow_counts) -> list[tuple[int, int]]:
    """(wave, optimisation level)"""
    return [(32, 2), (64, 2)][: slow_counts(2, 2)] + [(w, o) for w in (32, 64) for o in (0, 1, 3)][
        : slow_counts(0, 6)
    ]


@pytest.mark.rest
def test_compiler_output_is_clean(compiled_builds: list[tuple[int, int]]) -> None:
    for wave, level in compiled_builds:
        result = compile_kernels(wave, level)
        assert len(result) >= 37
        for one in result:
            output = lint(one.code, target_of("gfx1201", wave), entry=one.entry, kernel=is_kernel(one))
            assert [f"{one.name}: {finding.sentence()}" for finding in output] == []


@pytest.mark.rest
def test_every_removed_wait_is_found(slow_counts) -> None:
    builds = [(32, 2), (64, 1), (64, 2), (32, 1), (32, 3), (64, 3)][: slow_counts(1, 6)]
    missed: Counter[str] = Counter()
    total = 0
    for wave, level in builds:
        target = target_of("gfx1201", wave)
        for kernel in compile_kernels(wave, level):
            if kernel.name == "scratch" and level != 2:
                continue  # hundreds of waits of one kind
            for pc, instruction in find_control_flow(kernel.code, target, kernel.entry).instructions():
                for word in reduce_waits(instruction):
                    code = bytearray(kernel.code)
                    struct.pack_into("<I", code, pc, word)
                    total += 1
                    if not lint(bytes(code), target, entry=kernel.entry, kernel=is_kernel(kernel)):
                        missed[kernel.name] += 1
                        assert kernel.name in NOT_FOUND, (
                            f"{kernel.name} at {pc - kernel.entry:#x}: {instruction.text}"
                        )
    assert total > 250 * len(builds)
    assert sum(count for name, count in missed.items() if name != "scratch") < total / 10


def test_finding_refers_to_removed_wait() -> None:
    target = target_of("gfx1201", 32)
    (one,) = [kernel for kernel in compile_kernels(32, 2) if kernel.name == "dot"]
    for pc, instruction in find_control_flow(one.code, target, one.entry).instructions():
        if instruction.mnemonic in ("s_wait_loadcnt", "s_wait_kmcnt", "s_wait_dscnt"):
            code = bytearray(one.code)
            struct.pack_into("<I", code, pc, S_NOP)
            result = lint(bytes(code), target, entry=one.entry)
            assert {finding.rule for finding in result} == {"wait"}
            assert all(finding.producer_pc is not None for finding in result)
            assert any(instruction.mnemonic in finding.message for finding in result)


@pytest.mark.rest
def test_code_object_provides_its_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.o"
    path.write_bytes(build_code_object(64, 2))
    result = read_descriptors(path.read_bytes(), "k.o")
    assert set(result) == {kernel.name for kernel in compile_kernels(64, 2) if is_kernel(kernel)}
    assert result["scale"] == KernelDescriptorEntry(
        vgprs=4, wave=64, user_sgprs=2, workgroup_ids=1, lds_bytes=0, scratch_bytes=0
    )
    assert result["histogram"].lds_bytes == 1024 and result["scratch"].scratch_bytes >= 256
    assert main(["lint", str(path)]) == 0
    assert capsys.readouterr().out == f"PASS  {len(result) + 1} kernels, no finding\n"
    assert main(["lint", str(path), "--vgprs", "2"]) == 1


def test_mutated_kernels_never_raise(slow_counts) -> None:
    random.seed(8)
    sound = [kernel for wave in (32, 64) for kernel in compile_kernels(wave, 2) if kernel.name != "scratch"]
    result = 0
    for _ in range(slow_counts(150, 10_000)):
        choice = random.choice(sound)
        code = bytearray(choice.code[choice.entry : choice.end])
        for _ in range(random.choice((1, 2, 10))):
            code[random.randrange(len(code))] = random.randrange(256)
        result += bool(
            lint(bytes(code), target_of("gfx1201", choice.wave), Limits(vgprs=32, sgprs=32, lds_bytes=0))
        )
    assert result > 20
