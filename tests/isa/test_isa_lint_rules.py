"""Each rule of the static sanitizer: the fault is found where it is, and the same kernel without it is clean."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from compiled import is_compiler_available
from lint_snippets import SNIPPETS, assemble_snippets

from zinc_rt.isa import decode, target_of
from zinc_rt.isa.lint import RULES, lint
from zinc_rt.isa.lint.vopd import find_violations

TARGET = target_of("gfx1201", 32)
needs_assembler = pytest.mark.skipif(
    not is_compiler_available(), reason='no assembler: extra "asm" is not installed'
)


@needs_assembler
@pytest.mark.parametrize("name", SNIPPETS)
def test_fault_is_reported_at_its_location(name: str) -> None:
    snippet, (bad, _) = SNIPPETS[name], assemble_snippets()[name]
    result = lint(bad.code, TARGET, snippet.limits)
    assert {finding.rule for finding in result} == {snippet.rule}, [finding.sentence() for finding in result]
    assert result[0].text.startswith(snippet.at)
    assert result[0].message


@needs_assembler
@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_without_fault_has_no_finding(name: str) -> None:
    snippet, (_, good) = SNIPPETS[name], assemble_snippets()[name]
    assert [finding.sentence() for finding in lint(good.code, TARGET, snippet.limits)] == []


def test_every_rule_has_a_snippet() -> None:
    alu_hazards = {"trans-use", "partial-forwarding", "mask-write", "mask-write-valu"}  # test_shader_gfx11.HAZARDS
    assert {snippet.rule for snippet in SNIPPETS.values()} | alu_hazards == set(RULES)


@needs_assembler
def test_finding_names_both_instructions_and_the_wait() -> None:
    bad, _ = assemble_snippets()["load used"]
    (finding,) = lint(bad.code, TARGET)
    assert finding.sentence() == (
        "0x0018 v_add_f32_e32 v1, v1, v1: v1 read while global_load_b32 may still write it: needs s_wait_loadcnt 0"
        "  [0x000c global_load_b32 v1, v0, s[2:3]]"
    )
    assert (finding.pc, finding.producer_pc) == (0x18, 0x0C)


@needs_assembler
def test_multiple_faults_are_reported_separately() -> None:
    bad, _ = assemble_snippets()["load used"]
    other, _ = assemble_snippets()["scalar load used"]
    without_end = bad.code[: bad.code.index(bytes.fromhex("0000b0bf"))]
    result = lint(without_end + other.code, TARGET)
    assert [finding.rule for finding in result] == ["wait", "wait"]
    assert "vgpr" not in result[0].message and result[0].pc < result[1].pc


FUNCTION_BEGINS = "0000c8bf 0000c4bf 0000c2bf 0000c3bf 0000c7bf".replace(" ", "")  # waits for all the caller left


@pytest.mark.rest
def test_code_from_llvm_tests_is_clean(data_dir: Path) -> None:
    """LLVM's own gfx12 tests: nothing but graphics, branches to nowhere and what LLVM remarks on itself."""
    file = data_dir / "gfx12" / "gfx1201_w32.tsv"
    if not file.is_file():
        pytest.skip(f"{file} is absent")
    seen: Counter[str] = Counter()
    fake_target = TARGET.with_true16("fake")
    for line in file.read_text().splitlines():
        raw, _, text = line.partition("\t")
        if line.startswith("#"):
            continue
        seen["all"] += 1
        for finding in lint(bytes.fromhex(FUNCTION_BEGINS + raw + "0000b0bf"), fake_target, kernel=False):
            if finding.pc == len(FUNCTION_BEGINS) // 2:
                seen[finding.rule] += 1
                assert finding.rule in ("register", "graphics", "branch"), (text, finding)
                assert finding.rule != "register" or "/*Invalid" in text, (text, finding)
    assert seen["all"] == 27852 and seen["register"] > 500


def test_damaged_code_never_raises(slow_counts) -> None:
    random.seed(11)
    bad = bytes.fromhex("802000f4000000f8 0000c7bf 027002ee00000000 000000000000c0bf 0000b0bf".replace(" ", ""))
    for _ in range(slow_counts(300, 100_000)):
        code = bytearray(bad * random.randrange(1, 4))
        for _ in range(random.randrange(1, 12)):
            code[random.randrange(len(code))] = random.randrange(256)
        lint(bytes(code[: random.randrange(len(code) + 1)]), TARGET)


def refused_lines(texts: list[str], folder: Path) -> set[int]:
    """The numbers, from 1, of the lines that the assembler does not accept."""
    path = folder / "lines.s"
    path.write_text("\n".join(texts) + "\n")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "clang",
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx1201",
        "-c",
        str(path),
    ]
    result = subprocess.run(
        [*command, "-o", str(folder / "o"), "-ferror-limit=0"], capture_output=True, text=True, check=False
    )
    return {int(line) for line in re.findall(r"lines\.s:(\d+):\d+: error", result.stderr)}


@needs_assembler
def test_vopd_rules_agree_with_assembler(tmp_path: Path) -> None:
    """What it refuses is faulty here. The reverse but for one thing: that both halves read the same register."""
    random.seed(3)
    texts, wrong = [], []
    while len(texts) < 400:
        x, y = random.choice((0, 1, 2, 3, 4, 8, 9)), random.choice((0, 1, 2, 3, 4, 8, 9, 16, 17, 18))
        source = [random.choice((random.randrange(256, 272), random.randrange(4), 128)) for _ in range(2)]
        second = [0 if opcode == 8 else random.randrange(12) for opcode in (x, y)]
        destination = random.randrange(12), random.randrange(12) >> 1
        low = 0x32 << 26 | x << 22 | y << 17 | second[0] << 9 | source[0]
        high = destination[0] << 24 | destination[1] << 17 | second[1] << 9 | source[1]
        result = decode(low.to_bytes(4, "little") + high.to_bytes(4, "little") + b"\x11\x11\0\0", 0, TARGET)
        if result is not None and result.second is not None:
            texts.append(result.text)
            wrong.append(list(find_violations(result, result.second)))
    refused = refused_lines(texts, tmp_path)
    assert 60 < len(refused) < 390
    for number, (text, output) in enumerate(zip(texts, wrong, strict=True), 1):
        if output:
            assert number in refused, (text, output)
        elif number in refused:
            registers = [re.findall(r"v(\d+)", half) for half in text.split("::")]
            assert set(registers[0]) & set(registers[1]), text


@needs_assembler
def test_scalar_limits_agree_with_assembler(tmp_path: Path) -> None:
    random.seed(4)
    # v_cndmask_b32, v_add_co_ci_u32, v_fma_f32, v_fma_f64, v_div_fmas_f32, v_mad_co_u64_u32,
    # v_lshrrev_b64, v_add3_u32
    opcodes = (0x101, 0x120, 0x213, 0x214, 0x237, 0x2FE, 0x33D, 0x255)
    texts, wrong = [], []
    while len(texts) < 400:
        fields = [random.choice((260, 262, 0, 2, 4, 106, 124, 125, 128, 242, 253, 255)) for _ in range(3)]
        opcode = random.choice(opcodes)
        if opcode in (0x101, 0x120):  # a mask
            fields[2] = random.choice((0, 2, 4, 106))
        # The assembler counts the VCC that v_div_fmas reads anyway twice, and a literal once for each width.
        if (opcode == 0x237 and 106 in fields) or (opcode in (0x33D, 0x2FE) and fields.count(255) > 1):
            continue
        low = 0x35 << 26 | opcode << 16 | 8 << 8 if opcode in (0x120, 0x2FE) else 0x35 << 26 | opcode << 16
        high = fields[0] | fields[1] << 9 | (fields[2] << 18 if opcode != 0x33D else 0)
        code = low.to_bytes(4, "little") + high.to_bytes(4, "little") + b"\x11\x11\0\0"
        output = decode(code, 0, TARGET)
        if output is None or "/*" in output.text:
            continue
        texts.append(output.text)
        result = lint(code[: output.size_bytes] + bytes.fromhex("0000b0bf"), TARGET, kernel=False)
        wrong.append({finding.rule for finding in result})
    refused = refused_lines(texts, tmp_path)
    assert 60 < len(refused) < 390
    for number, (text, rules) in enumerate(zip(texts, wrong, strict=True), 1):
        assert ("scalars" in rules) == (number in refused), text
