"""--format github and csv: only tables on stdout, in that format."""

from __future__ import annotations

import csv
import io
import sys

import pytest

from zinc_rt.cli.completion import iterate_parsers
from zinc_rt.cli.devices import main as devices
from zinc_rt.cli.inspect import main as inspect
from zinc_rt.cli.tokenize import main as tokenize
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.table_format import find_table_writer, use_table_format
from zinc_rt.host.terminal import Column, Page, Table, number_column, show
from zinc_rt.probes.command import main as pm4_test

MODEL = str(FOLDER / "qwen3-q.gguf")
Capture = pytest.CaptureFixture[str]


def parse_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_lines_go_to_stderr_and_tables_to_stdout(capsys: Capture) -> None:
    with use_table_format("csv"):
        show("a line", Page(["more", Table(("a", number_column("b")), [['x "y", z', "1,234"]])]), "PASS  it")
    out, err = capsys.readouterr()
    assert parse_csv(out) == [["a", "b"], ['x "y", z', "1234"]]
    assert err == "a line\nmore\nPASS  it\n"
    assert find_table_writer() is None


def test_rows_without_headings_continue_the_table_before(capsys: Capture) -> None:
    columns = (Column("", width=7, key="probe"), Column("", key="status"))
    with use_table_format("github"):
        for name in ("P01", "P02"):
            show(Table(columns, [[name, "pass"]], headings=False))
        show(Table(("other",), [["1"]]))
    assert capsys.readouterr().out.splitlines() == [
        "| probe   | status   |",
        "|---------|----------|",
        "| P01     | pass     |",
        "| P02     | pass     |",
        "",
        "| other   |",
        "|---------|",
        "| 1       |",
    ]


def test_indentation_is_not_a_column(capsys: Capture) -> None:
    with use_table_format("csv"):
        show(Table(("", Column("", key="name")), [["", "x"]], headings=False))
        show(Table(("", ""), [["", "no name at all"]], headings=False))
    assert capsys.readouterr().out == "name\nx\n\nno name at all\n"


def test_markdown_escapes_bars_and_line_ends(capsys: Capture) -> None:
    with use_table_format("github"):
        show(Table(("a",), [["x|y\nz"]]), out=sys.stdout)
        show(Table(("empty", number_column("b")), []))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| x\\|y<br>z |" and lines[4].split() == ["|", "empty", "|", "b", "|"]


def test_another_stream_keeps_tables_and_lines(capsys: Capture) -> None:
    out = io.StringIO()
    with use_table_format("csv"):
        show("a line", Table(("a",), [["1"]]), out=out)
    assert out.getvalue() == "a line\na\n1\n" and capsys.readouterr() == ("", "")


def test_commands_print_tables_alone(capsys: Capture) -> None:
    assert tokenize([MODEL, "--text", "the cat", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    rows = parse_csv(out)
    assert rows[0][:2] == ["id", "piece"] and all(row[0].isdecimal() for row in rows[1:])
    assert err.splitlines()[-1] == f"{len(rows) - 1} tokens"
    assert inspect([MODEL, "--tensors", "--format", "github"]) == 0
    out, err = capsys.readouterr()
    assert all(line.startswith("|") for line in out.splitlines() if line) and "bytes" in out
    devices(["--format", "csv"])
    out, err = capsys.readouterr()
    assert parse_csv(out)[0] == ["device", "tier", "usable", "why"] and err
    assert pm4_test(["--list", "--format", "csv"]) == 0
    assert parse_csv(capsys.readouterr().out)[0][0] == "probe"


def test_tables_go_to_stderr_with_json_on_stdout(capsys: Capture) -> None:
    assert tokenize([MODEL, "--text", "the", "--format", "csv", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("{") and "id,piece" in err


def test_unknown_format_is_rejected(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        tokenize([MODEL, "--text", "x", "--format", "html"])
    assert ended.value.code == 2 and "text, github, csv" in capsys.readouterr().err


def test_commands_that_print_tables_take_the_option() -> None:
    taken = {name for name, parser in iterate_parsers() if "--format" in parser.format_help()}
    assert taken >= {
        *(
            "accept",
            "assumptions",
            "bisect-env",
            "bring-up",
            "compare",
            "devices",
            "inspect",
            "kernel-test",
            "launch",
        ),
        *("mem-test", "pm4-test", "replay", "sched-test", "serve", "tokenize", "trace", "usage", "validate"),
        *("accept", "vulkan-test"),
    }
    assert not taken & {"asm", "completion", "doctor", "logits", "pm4", "run", "sim"}
