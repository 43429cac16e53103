"""Each rule of the static sanitizer: the fault is found where it is, and the same kernel without it is clean."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import available
from lint_snippets import SNIPPETS, assembled

from zinc_rt.errors import UnsupportedError
from zinc_rt.isa import decode, target_of
from zinc_rt.isa.lint import RULES, lint
from zinc_rt.isa.lint.vopd import faults

TARGET = target_of("gfx1201", 32)
needs_assembler = pytest.mark.skipif(not available(), reason='no assembler: extra "asm" is not installed')


@needs_assembler
@pytest.mark.parametrize("name", SNIPPETS)
def test_the_fault_is_found_where_it_is(name: str) -> None:
    snippet, (bad, _) = SNIPPETS[name], assembled()[name]
    found = lint(bad.code, TARGET, snippet.limits)
    assert {finding.rule for finding in found} == {snippet.rule}, [finding.sentence() for finding in found]
    assert found[0].text.startswith(snippet.at)
    assert found[0].message


@needs_assembler
@pytest.mark.parametrize("name", SNIPPETS)
def test_without_the_fault_there_is_no_finding(name: str) -> None:
    snippet, (_, good) = SNIPPETS[name], assembled()[name]
    assert [finding.sentence() for finding in lint(good.code, TARGET, snippet.limits)] == []


def test_every_rule_has_a_snippet() -> None:
    assert {snippet.rule for snippet in SNIPPETS.values()} == set(RULES)


@needs_assembler
def test_a_finding_names_both_instructions_and_the_wait() -> None:
    bad, _ = assembled()["load used"]
    (finding,) = lint(bad.code, TARGET)
    assert finding.sentence() == (
        "0x0018 v_add_f32_e32 v1, v1, v1: v1 read while global_load_b32 may write it: wants s_wait_loadcnt 0"
        "  [0x000c global_load_b32 v1, v0, s[2:3]]"
    )
    assert (finding.pc, finding.producer_pc) == (0x18, 0x0C)


@needs_assembler
def test_several_faults_are_told_apart() -> None:
    bad, _ = assembled()["load used"]
    other, _ = assembled()["scalar load used"]
    without_end = bad.code[: bad.code.index(bytes.fromhex("0000b0bf"))]
    found = lint(without_end + other.code, TARGET)
    assert [finding.rule for finding in found] == ["wait", "wait"]
    assert "vgpr" not in found[0].message and found[0].pc < found[1].pc


def test_gfx11_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="gfx11's hazards"):
        lint(bytes(4), target_of("gfx1100", 32))


def test_damaged_code_never_raises(slow_counts) -> None:
    random.seed(11)
    bad = bytes.fromhex("802000f4000000f8 0000c7bf 027002ee00000000 000000000000c0bf 0000b0bf".replace(" ", ""))
    for _ in range(slow_counts(300, 20_000)):
        code = bytearray(bad * random.randrange(1, 4))
        for _ in range(random.randrange(1, 12)):
            code[random.randrange(len(code))] = random.randrange(256)
        lint(bytes(code[: random.randrange(len(code) + 1)]), TARGET)


@needs_assembler
def test_vopd_agrees_with_the_assembler(tmp_path: Path) -> None:
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
        made = decode(low.to_bytes(4, "little") + high.to_bytes(4, "little") + b"\x11\x11\0\0", 0, TARGET)
        if made is not None and made.second is not None:
            texts.append(made.text)
            wrong.append(list(faults(made, made.second)))
    path = tmp_path / "vopd.s"
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
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "o"), "-ferror-limit=0"], capture_output=True, text=True, check=False
    )
    refused = {int(line) for line in re.findall(r"vopd\.s:(\d+):\d+: error", done.stderr)}
    assert 60 < len(refused) < 390
    for number, (text, said) in enumerate(zip(texts, wrong, strict=True), 1):
        if said:
            assert number in refused, (text, said)
        elif number in refused:
            registers = [re.findall(r"v(\d+)", half) for half in text.split("::")]
            assert set(registers[0]) & set(registers[1]), text
