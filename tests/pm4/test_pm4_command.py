"""`zinc-rt pm4 decode`: input forms, exit codes, report."""

from __future__ import annotations

import io
import json
import struct
import sys
from pathlib import Path

import pytest

from zinc_rt.cli.pm4 import main
from zinc_rt.pm4 import Generation
from zinc_rt.pm4.packets import EventWrite, IndirectBuffer

FLUSH = EventWrite.cs_partial_flush().words(Generation.GFX12)


def write_binary(path: Path, words: list[int]) -> str:
    path.write_bytes(struct.pack(f"<{len(words)}I", *words))
    return str(path)


def test_binary_file_is_shown_packet_by_packet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", write_binary(tmp_path / "ring.bin", FLUSH)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "EVENT_WRITE" in out[0] and "CS_PARTIAL_FLUSH(7)" in out[1]
    assert out[-1] == "PASS  1 packets in 2 dwords, gfx1201"


@pytest.mark.parametrize(
    "text",
    ["c0004600 407", "0xC0004600, 0x00000407", "# a flush\nc0004600 // header\n\n\t407,", "c0004600,407"],
)
def test_text_accepts_prefixes_commas_comments_and_whitespace(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["decode", "-", "--hex", "--lint"]) == 0
    assert "1 packets in 2 dwords" in capsys.readouterr().out


def test_lint_errors_exit_with_1_and_warnings_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ib = write_binary(tmp_path / "ib.bin", IndirectBuffer(0x7F0000000000, 8).words(Generation.GFX12))
    assert main(["decode", ib, "--lint", "--queue", "kfd"]) == 0
    assert main(["decode", ib, "--lint", "--queue", "kfd", "--ib"]) == 0
    assert "1 findings" in capsys.readouterr().out
    assert main(["decode", ib, "--lint", "--queue", "userq"]) == 1
    out = capsys.readouterr().out
    assert "ib-inherit-vmid" in out and out.splitlines()[-1].startswith("FAIL")


def test_report_matches_text_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_binary(tmp_path / "ring.bin", [0xC0004602, 0x407, 0xC000F200, 0])
    assert main(["decode", file, "--lint", "--json", str(tmp_path / "report.json")]) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    packets = report["details"]["packets"]
    assert packets[0]["packet"] == "EVENT_WRITE" and packets[0]["fields"]["event_type"] == 7
    assert packets[0]["reserved"] == [[0, 2]] and packets[1]["bad"] == "opcode"
    results = {result["cause"]: result for result in report["results"] if result["kind"] == "pm4-lint"}
    assert results["shader-type"]["status"] == "pass" and results["opcode"]["status"] == "fail"
    assert "zinc-rt pm4 decode" in results["opcode"]["repro"] and report["verdict"]["exit"] == 1


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (b"\x00" * 7, [], "7 bytes, expected a multiple of 4"),
        (b"", [], "no dwords"),
        (b"# nothing", ["--hex"], "no dwords"),
        (b"c0004600\nzz", ["--hex"], "line 2: 'zz' is not a dword"),
        (b"123456789", ["--hex"], "is not a dword"),
        (b"\xff\xfe\x00", ["--hex"], "is not a dword"),
        (b"\x00" * 4, ["--arch", "gfx900"], "no PM4 encoders for 'gfx900'"),
    ],
)
def test_unreadable_input_exits_with_2_and_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, flags: list[str], message: str
) -> None:
    (tmp_path / "bad").write_bytes(content)
    assert main(["decode", str(tmp_path / "bad"), *flags]) == 2
    assert message in capsys.readouterr().err


def test_missing_file_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", str(tmp_path / "none")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_stream_that_would_hang_the_cp_is_still_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", write_binary(tmp_path / "bad.bin", [0, 0x80000000, *FLUSH])]) == 0
    assert "BAD" in capsys.readouterr().out
