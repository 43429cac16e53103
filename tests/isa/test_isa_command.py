"""`zinc-rt isa disasm`: input forms, exit codes, report; and what --help may import."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.cli.isa import main
from zinc_rt.host.errors import InputError
from zinc_rt.isa.elf import read_elf
from zinc_rt.kernels.zrt import Line, Slot, Zrt, write_zrt

ADD = "050003d501050200"
ENDPGM = "0000b0bf"


def set_stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def make_code_object(
    code: bytes, *, mach: int = 0x4E, symbols: tuple[tuple[str, int], ...] = (("kernel", 0),)
) -> bytes:
    """A little ELF: header, .text, .symtab, .strtab, .shstrtab."""
    names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    strings, table = b"\0", bytes(24)
    for name, value in symbols:
        table += struct.pack("<IBBHQQ", len(strings), 2, 0, 1, 0x1000 + value, 4)
        strings += name.encode() + b"\0"
    index = 64
    parts, headers = b"", [bytes(64)]
    for name, kind, flags, address, content, link in (
        (1, 1, 6, 0x1000, code, 0),
        (7, 2, 0, 0, table, 3),
        (15, 3, 0, 0, strings, 0),
        (23, 3, 0, 0, names, 0),
    ):
        headers.append(
            struct.pack("<IIQQQQIIQQ", name, kind, flags, address, index + len(parts), len(content), link, 0, 4, 0)
        )
        parts += content
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01\x40" + bytes(8), 3, 224, 1, 0, 0, index + len(parts), mach, 64, 0, 0, 64, 5, 4,
    )  # fmt: skip
    return header + parts + b"".join(headers)


def test_stdin_prints_one_instruction_per_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_stdin(monkeypatch, f"{ADD}\nfdb80a7f\n\n05 00 03 d5 01 05 02 00  # spaces\n{ENDPGM}\nff\n")
    assert main(["disasm", "--hex", "-"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "v_add_f32_e64 v5, v1, v2",
        "INVALID",
        "",
        "v_add_f32_e64 v5, v1, v2",
        "s_endpgm",
        "INVALID",
    ]


def test_invalid_hex_line_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_stdin(monkeypatch, f"{ADD}\nwhat\n")
    assert main(["disasm", "--hex", "-"]) == 2
    assert "stdin, line 2: 'what' is not hex bytes" in capsys.readouterr().err


def test_wave64_requires_an_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    set_stdin(monkeypatch, "0a0011d401050200\n")
    assert main(["disasm", "--hex", "-", "--wave", "64"]) == 0
    assert capsys.readouterr().out == "v_cmp_lt_f32_e64 s[10:11], v1, v2\n"


def test_file_is_disassembled_as_one_stream_with_offsets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "code.hex"
    file.write_text(f"# a kernel\n{ADD}\n{ENDPGM}\n")
    assert main(["disasm", "--hex", str(file), "--json", str(tmp_path / "report.json")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["0x00000000", "d5030005", "00020501", "v_add_f32_e64", "v5,", "v1,", "v2"]
    assert out[1].startswith("0x00000008") and out[-1] == "PASS  2 instructions, gfx1201"
    rows = json.loads((tmp_path / "report.json").read_text())["details"]["instructions"]
    assert rows[0]["operands"][1] == {"kind": "vgpr", "text": "v1", "index": 1, "width": 1}


def test_invalid_code_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "code.hex"
    file.write_text("fdb80a7f\n" + ENDPGM)
    assert main(["disasm", "--hex", str(file), "--true16", "fake"]) == 1
    out = capsys.readouterr().out
    assert "INVALID" in out and out.splitlines()[-1] == "FAIL  1 instructions, 1 INVALID, gfx1201"


def test_code_object_is_disassembled_by_symbol(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.co"
    file.write_bytes(make_code_object(bytes.fromhex(ADD + ENDPGM), symbols=(("first", 0), ("second", 8))))
    assert main(["disasm", "--elf", str(file)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["section .text", "first:"] and "second:" in out
    assert out[-1] == "PASS  2 instructions, gfx1201"


def test_unsupported_files_and_chips_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kernel.co"
    for content, arguments, reason in (
        (b"MZ", [], "not a 64-bit little-endian ELF"),
        (make_code_object(b"\0" * 4, mach=0x33), [], "its chip is not supported by this version"),
        (
            make_code_object(b"\0" * 4),
            ["--arch", "gfx90a"],
            "gfx90a: its instructions are not supported by this version",
        ),
    ):
        file.write_bytes(content)
        assert main(["disasm", "--elf", str(file), *arguments]) == 2
        assert reason in capsys.readouterr().err
    assert main(["disasm", "--zrt", str(file)]) == 2
    assert "not a .zrt kernel" in capsys.readouterr().err
    assert main(["disasm", "--elf", str(tmp_path / "absent")]) == 2


def test_truncated_code_object_is_rejected_at_every_length() -> None:
    whole = make_code_object(bytes.fromhex(ADD + ENDPGM))
    read_elf(whole, "whole")
    for size_bytes in range(0, len(whole) - 1, 3):
        with pytest.raises(InputError):
            read_elf(whole[:size_bytes], "cut")


def test_help_does_not_import_instruction_tables() -> None:
    program = (
        "import sys\n"
        "from zinc_rt.cli.isa import main\n"
        "try: main(['disasm', '--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('zinc_rt.isa')])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "['zinc_rt.isa', 'zinc_rt.isa.wave_rules', 'zinc_rt.isa.target']"


def test_zrt_shows_header_slots_and_source_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = bytes.fromhex("ff0084bebebafeca 000080bf 0000b0bf")
    kernel = Zrt(
        name="rms_norm",
        code=code,
        buffers=3,
        constant_bytes=8,
        workgroup=(64, 1, 1),
        vgprs=49,
        sgprs=40,
        slots=(Slot("ROWS", 4, 0xCAFEBABE),),
        lines=(Line(0, 0, 12, 12), Line(12, 1, 14, 13)),
        files=("rms_norm.s", "end.inc"),
    )
    file = tmp_path / "kernel.zrt"
    file.write_bytes(write_zrt(kernel))
    assert main(["disasm", "--zrt", str(file), "--json", str(tmp_path / "report.json")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "kernel rms_norm, gfx1201, wave32, 16 bytes of code"
    assert "slots ROWS=0xcafebabe" in shown
    assert [line.split("//")[-1].strip() for line in shown if "//" in line] == [
        "rms_norm.s:12, slot ROWS",
        "end.inc:14 (rms_norm.s:13)",
    ]
    details = json.loads((tmp_path / "report.json").read_text())["details"]
    assert details["vgprs"] == 49 and details["instructions"][1]["line"] == 12
