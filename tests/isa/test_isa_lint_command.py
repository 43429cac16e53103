"""`zinc-rt isa lint` and `zinc-rt isa report`: inputs, words, exit codes, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zinc_rt.cli.isa import main
from zinc_rt.kernels.zrt import Line, Zrt, write_zrt

# s_load_b64 s[2:3], s[0:1], 0; s_wait_kmcnt 0; global_load_b32 v1, v0, s[2:3]; s_wait_loadcnt 0;
# v_add_f32 v1, v1, v1; s_endpgm
GOOD = bytes.fromhex("802000f4000000f8 0000c7bf 020005ee0100000000000000 0000c0bf 01030206 0000b0bf")
BAD = GOOD.replace(bytes.fromhex("0000c0bf"), bytes.fromhex("000080bf"))


def make_zrt(code: bytes, **changed: int) -> bytes:
    fields = {"buffers": 1, "constant_bytes": 0, "vgprs": 2, "sgprs": 4} | changed
    return write_zrt(
        Zrt(
            name="double",
            code=code,
            workgroup=(32, 1, 1),
            lines=(Line(0, 0, 3, 3), Line(28, 0, 9, 9)),
            files=("double.s",),
            **fields,
        )
    )


@pytest.fixture
def good_path(tmp_path: Path) -> Path:
    path = tmp_path / "good.zrt"
    path.write_bytes(make_zrt(GOOD))
    return path


@pytest.fixture
def bad_path(tmp_path: Path) -> Path:
    path = tmp_path / "bad.zrt"
    path.write_bytes(make_zrt(BAD))
    return path


def test_clean_kernel_passes(good_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(good_path)]) == 0
    assert capsys.readouterr().out == "PASS  1 kernel, no finding\n"


def test_finding_has_source_line_and_reproducer(bad_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(bad_path)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == (
        "double 0x001c v_add_f32_e32 v1, v1, v1: "
        "v1 read while global_load_b32 may still write it: needs s_wait_loadcnt 0"
        "  [0x000c global_load_b32 v1, v0, s[2:3]]  double.s:9"
    )
    assert shown[1:] == [f"repro zinc-rt isa lint {bad_path}", "FAIL  1 finding in 1 of 1 kernel"]


def test_report_contains_findings(bad_path: Path, good_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(bad_path), str(good_path), "--json", "-"]) == 1
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["status"] for result in results] == ["fail", "pass"]
    (finding,) = results[0]["measure"]["findings"]
    assert (finding["rule"], finding["pc"], finding["producer_pc"], finding["line"]) == ("wait", 28, 12, 9)


# v_cmp_eq_u32 vcc_lo, 1, v0; v_cndmask_b32 v1, v0, v0, vcc_lo; v_add_co_u32 v1, vcc_lo, v0, v0;
# v_add_co_ci_u32 v1, vcc_lo, v0, v0, vcc_lo; s_endpgm
CARRY = bytes.fromhex("8100947c 00010202 016a00d700010200 00010240 0000b0bf")


def test_unwaited_carry_is_a_remark_in_radv_code_and_an_error_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, radvs = tmp_path / "ours.zrt", tmp_path / "radvs.zrt"
    zrt = Zrt("carry", CARRY, 0, 0, (32, 1, 1), vgprs=2, sgprs=4)
    ours.write_bytes(write_zrt(zrt))
    radvs.write_bytes(write_zrt(replace(zrt, compiler="RADV/Mesa-25.0.7")))
    assert main(["lint", str(ours)]) == 1
    assert "vcc_lo may still hold its value from before" in capsys.readouterr().out
    assert main(["lint", str(radvs)]) == 0
    assert capsys.readouterr().out == "PASS  1 kernel, no finding, 1 remark\n"
    assert main(["lint", str(radvs), "--remarks"]) == 0
    assert capsys.readouterr().out.startswith("carry remark: 0x0010 v_add_co_ci_u32")


def test_header_sets_limits_and_flag_overrides_them(
    tmp_path: Path, good_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "few.zrt"
    path.write_bytes(make_zrt(GOOD, sgprs=2))
    assert main(["lint", str(path)]) == 1
    assert "s[2:3] used, but the header declares 2 SGPRs" in capsys.readouterr().out
    assert main(["lint", str(path), "--sgprs", "4"]) == 0
    assert main(["lint", str(good_path), "--vgprs", "1"]) == 1
    assert "v1 used, but the header declares 1 VGPRs" in capsys.readouterr().out


def test_hex_text_is_accepted_as_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "code.txt"
    path.write_text(GOOD.hex())
    assert main(["lint", "--hex", str(path)]) == 0
    path.write_text(BAD.hex())
    assert main(["lint", "--hex", str(path)]) == 1
    assert f"repro zinc-rt isa lint --hex {path}" in capsys.readouterr().out


def test_unreadable_input_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint"]) == 2
    assert main(["lint", str(tmp_path / "absent")]) == 2
    (tmp_path / "noise").write_bytes(b"noise")
    assert main(["lint", str(tmp_path / "noise")]) == 2
    assert "not a .zrt kernel" in capsys.readouterr().err
