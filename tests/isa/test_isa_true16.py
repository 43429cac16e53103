"""16-bit operands, as halves of registers and as whole ones, against LLVM 22's text for both."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.cli.isa import main
from zinc_rt.host.errors import UsageError
from zinc_rt.isa import Target, decode, decode_stream, target_of
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.effects import effects, format_halves, format_registers
from zinc_rt.isa.lint import lint
from zinc_rt.isa.true16 import find_reading_of_sections

REAL, FAKE = target_of("gfx1201", true16="real"), target_of("gfx1201", true16="fake")
END = "0000b0bf"
PLAIN = "01050a64"  # v_add_f16_e32 v5, v1, v2
UPPER = "01050a65"  # v_add_f16_e32 v5.h, v1.l, v2.l


def disassemble(raw: str, target: Target) -> str:
    text = decode(bytes.fromhex(raw), 0, target)
    return "INVALID" if text is None else text.text


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("reading", ["real", "fake"])
@pytest.mark.parametrize(("folder", "chip"), [("gfx12", "gfx1201"), ("gfx11", "gfx1100"), ("gfx11", "gfx1151")])
def test_every_vector_disassembles_as_in_llvm(data_dir: Path, folder: str, chip: str, reading: str) -> None:
    file = data_dir / folder / f"{chip}_w32_{reading}16.tsv"
    if not file.is_file():
        pytest.skip(f"{file} is absent")
    target = target_of(chip, true16=reading)
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    wrong = {raw: (want, saw) for raw, want in rows if (saw := disassemble(raw, target)) != want}
    assert len(rows) > 6000 and not wrong, f"{len(wrong)} of {len(rows)}: {list(wrong.items())[:5]}"


@pytest.mark.parametrize(
    ("raw", "real_text", "fake_text"),
    [
        (PLAIN, "v_add_f16_e32 v5.l, v1.l, v2.l", "v_add_f16_e32 v5, v1, v2"),
        (UPPER, "v_add_f16_e32 v5.h, v1.l, v2.l", "INVALID"),
        ("0038587f", "v_mov_b16_e32 v44.h, s0", "INVALID"),
        ("81cd0a7e", "v_swap_b16 v5.l, v1.h", "INVALID"),
        ("050832d501050200", "v_add_f16_e64 v5.l, v1.h, v2.l op_sel:[1,0,0]", "v_add_f16_e64 v5, v1, v2"),
        ("052032d501050200", "v_add_f16_e64 v5, v1, v2", "v_add_f16_e64 v5, v1, v2"),
        ("054036d501050200", "v_fmac_f16_e64 v5.h, v1.l, v2.l op_sel:[0,0,0,1]", "v_fmac_f16_e64 v5, v1, v2"),
        ("050048d6012d1604", "v_fma_f16 v5.l, v1.l, v22.l, v5.l", "v_fma_f16 v5, v1, v22, v5"),
        ("80005dd601050e00", "v_cndmask_b16 v128.l, v1.l, v2.l, s3", "v_cndmask_b16 v128, v1, v2, s3"),
        ("0105027c", "v_cmp_lt_f16_e32 vcc_lo, v1.l, v2.l", "v_cmp_lt_f16_e32 vcc_lo, v1, v2"),
        ("000002cd01050e44", "v_interp_p10_f16_f32 v0, v1.l, -v2, v3.l wait_exp:0",
         "v_interp_p10_f16_f32 v0, v1, -v2, v3 wait_exp:0"),
    ],
)  # fmt: skip
def test_true16_and_fake16_readings_match_hand_computation(raw: str, real_text: str, fake_text: str) -> None:
    """The fifth sets op_sel of a third source that does not exist: LLVM then shows no halves."""
    assert (disassemble(raw, REAL), disassemble(raw, FAKE)) == (real_text, fake_text)


def test_invalid_reading_is_rejected() -> None:
    with pytest.raises(UsageError, match="true16 'half'"):
        target_of("gfx1201", true16="half")
    assert target_of("gfx1201") != REAL and target_of("gfx1100").has_halves and not target_of("gfx1201").has_halves


def test_one_upper_half_selects_the_true16_reading() -> None:
    target = target_of("gfx1201")
    for upper in (UPPER, "8105027c", "050832d501050200"):
        code = bytes.fromhex(PLAIN + upper + END)
        flow = find_control_flow(code, target)
        assert flow.target == REAL == find_reading_of_sections([code], target)
        assert flow.instructions()[0][1].text == disassemble(PLAIN, REAL)
    code = bytes.fromhex(PLAIN + "050048d6012d1604" + END)
    assert find_control_flow(code, target).target == target == find_reading_of_sections([code], target)
    unreachable = bytes.fromhex(PLAIN + END + UPPER)
    assert find_control_flow(unreachable, target).target == target
    assert find_control_flow(bytes.fromhex(UPPER + END), FAKE).faults == (("illegal", 0, 0),)


def test_command_reads_a_file_as_its_code_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "code.hex"
    file.write_text(PLAIN + UPPER + END)
    assert main(["disasm", "--hex", str(file)]) == 0
    assert "v_add_f16_e32 v5.l, v1.l, v2.l" in capsys.readouterr().out
    assert main(["disasm", "--hex", str(file), "--true16", "fake"]) == 1
    assert "v_add_f16_e32 v5, v1, v2" in capsys.readouterr().out
    file.write_text(PLAIN + END)
    assert main(["disasm", "--hex", str(file), "--true16", "real"]) == 0
    assert "v_add_f16_e32 v5.l, v1.l, v2.l" in capsys.readouterr().out


D16 = "020008ee010000000000000002c008ee0100000000000000"  # global_load_d16_b16, _hi_b16 v1, v0, s[2:3]
LOADED = "802000f4000000f80000c7bf"  # s[2:3]
SUM = "01030564"  # v_add_f16_e32 v2.l, v1.l, v1.h


def wait_findings(code: str) -> list[str]:
    return [item.message for item in lint(bytes.fromhex(code + END), target_of("gfx1201")) if item.rule == "wait"]


def test_loads_of_two_halves_need_no_wait_between_them() -> None:
    assert wait_findings(LOADED + D16 + "0000c0bf" + SUM) == []
    (first, second) = wait_findings(LOADED + D16 + SUM)
    assert first.startswith("v1.l read while global_load_d16_b16") and "s_wait_loadcnt 1" in first
    assert second.startswith("v1.h read while global_load_d16_hi_b16") and "s_wait_loadcnt 0" in second
    assert len(wait_findings(LOADED + D16[:24] + D16[:24] + "0000c0bf")) == 1, "the same half twice"


def test_legacy_waitcnt_is_a_wait() -> None:
    """s_waitcnt vmcnt(0), vmcnt(1), lgkmcnt(0): ROCr's kernels have them on gfx12."""
    assert wait_findings(LOADED + D16 + "f70389bf" + SUM) == []
    assert len(wait_findings(LOADED + D16 + "f70789bf" + SUM)) == 1
    assert len(wait_findings(LOADED + D16 + "07fc89bf" + SUM)) == 2
    assert wait_findings(LOADED[:16] + "07fc89bf" + D16 + "0000c0bf" + SUM) == []


def test_halves_are_registers_of_the_effects() -> None:
    (moved,) = [item.instruction for item in decode_stream(bytes.fromhex("8139587f"), REAL)]
    assert moved is not None and moved.text == "v_mov_b16_e32 v44.h, v1.h"
    result = effects(moved, REAL)
    assert format_registers(result.writes) == "v44" and "v1" in format_registers(result.reads)
    assert format_halves(result.written_halves) == "v44.h" and "v1.h" in format_halves(result.read_halves)
    mixed = decode(bytes.fromhex("024820cc0103061c"), 0, FAKE)
    assert mixed is not None and mixed.text == "v_fma_mix_f32 v2, v1, v1, v1 op_sel:[1,0,0] op_sel_hi:[1,1,1]"
    assert format_halves(effects(mixed, FAKE).read_halves) == "exec_lo, v1"
