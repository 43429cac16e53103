"""Tables and lines: for a terminal of any width, with colour; plain and whole for everybody else."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.terminal import Column, Screen, Table, format_markdown, is_terminal, number_column, show

MODEL = str(FOLDER / "qwen3-q.gguf")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WORDS = "node blk.3.ffn_down, token 4: 0.25, not 0.5, which is far more than rounding explains"
SHOWN = Table(
    ("tier", "against", number_column("checks"), number_column("KL"), "", "first bad"),
    [["t1 (simulated)", "t_cpu", "6 of 6", "4.8e-13", "pass", ""], ["t2", "漢字", "10 of 11", "1", "FAIL", WORDS]],
)


def test_plain_table_prints_one_full_width_line_per_row() -> None:
    assert str(SHOWN).splitlines() == [
        "tier            against    checks       KL        first bad",
        "t1 (simulated)  t_cpu      6 of 6  4.8e-13  pass",
        f"t2              漢字     10 of 11        1  FAIL  {WORDS}",
    ]


def test_wide_terminal_adds_only_colour() -> None:
    drawn = Screen(200, colour=True).render(SHOWN)
    assert "\x1b[32mpass\x1b[0m" in drawn and "\x1b[1;31mFAIL\x1b[0m" in drawn
    assert [line.rstrip() for line in ESCAPE.sub("", drawn).splitlines()] == str(SHOWN).splitlines()
    assert Screen(200).render(SHOWN) == str(SHOWN)


@pytest.mark.parametrize("width", range(20, 120, 7))
def test_table_fits_terminal_width_and_keeps_all_text(width: int) -> None:
    lines = Screen(width).render(SHOWN).splitlines()
    assert all(len(line) + line.count("漢") + line.count("字") <= width for line in lines)
    folded = "".join("".join(line.split()) for line in lines)
    assert all(word in folded for word in ("(simulated)", "FAIL", "4.8e-13")) and folded.count("pass") == 1
    assert len([word for word in WORDS.split() if word[: width // 3] in folded]) == len(WORDS.split())


def test_table_too_narrow_for_its_words_becomes_a_list() -> None:
    lines = Screen(40).render(SHOWN).splitlines()
    assert lines[0] == "tier       t1 (simulated)" and "KL         4.8e-13" in lines
    assert lines.count("") == 1, "between two rows"


def test_incrementally_printed_rows_are_aligned() -> None:
    columns = (Column("", width=7), Column("", width=4), "")
    rows = [Table(columns, [row], headings=False) for row in (["P01", "pass", "x"], ["P02.t1", "skip", "y"])]
    assert [str(row) for row in rows] == ["P01      pass  x", "P02.t1   skip  y"]


def test_column_can_wrap_in_a_pipe() -> None:
    text = str(Table((Column("says", widest=20), "by"), [["one two three four five six", "me"]]))
    assert text.splitlines() == ["says                  by", "one two three four    me", "five six"]


def test_empty_tables_and_cells_are_drawn() -> None:
    assert str(Table(("a", number_column("b")), [])) == "a  b"
    assert str(Table(("a", "b"), [["", ""], ["", "x"]])).splitlines() == ["a  b", "", "   x"]
    assert Screen(30, colour=True).render(Table(("a",), []))


def test_terminal_control_characters_are_escaped() -> None:
    text = "\x1b]0;title\x07\x1b[31m"
    assert "\x1b]" not in Screen(100, colour=True).render(f"name  {text}") and "\x1b" not in str(
        Table(("a",), [[text]])
    )


def test_prose_wraps_with_indent_but_commands_do_not() -> None:
    screen = Screen(40)
    assert screen.render(f"cause     {'word ' * 10}").splitlines()[1].startswith(" " * 10 + "word")
    command = f"repro     zinc-rt validate {'--model M.gguf ' * 5}"
    assert screen.render(command) == command
    assert Screen().render("x" * 300) == "x" * 300


def test_verdict_cell_is_coloured_but_not_the_label() -> None:
    drawn = Screen(100, colour=True).render(Table(("", ""), [["tier", "FAIL  3 of 9"]], headings=False))
    assert drawn == "tier  \x1b[1;31mFAIL  3 of 9\x1b[0m"


def test_only_real_verdicts_are_coloured() -> None:
    screen = Screen(100, colour=True)
    assert screen.render("FAIL  1 of 40") == "\x1b[1;31mFAIL\x1b[0m  1 of 40"
    assert screen.render("skip  logits: no golden").startswith("\x1b[2mskip\x1b[0m")
    assert "\x1b" not in screen.render("next we look at it") and "\x1b" not in screen.render("fail safe")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("settings", "width", "colour"),
    [
        ({"TERM": "xterm", "COLUMNS": "72"}, 72, True),
        ({"TERM": "xterm", "COLUMNS": "72", "NO_COLOR": "1"}, 72, False),
        ({"TERM": "dumb", "COLUMNS": "72"}, 72, False),
        ({"TERM": "xterm", "COLUMNS": "9"}, None, True),
    ],
)
def test_screen_is_detected_from_environment(settings: dict[str, str], width: int | None, colour: bool) -> None:
    assert Screen.of(Terminal(), settings) == Screen(width, colour)
    assert Screen.of(io.StringIO(), settings) == Screen(width) and not is_terminal(io.StringIO(), settings)
    assert Screen.of(io.StringIO(), {"TERM": "xterm"}) == Screen()


def test_show_writes_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    show("a line", SHOWN, "PASS  it")
    assert capsys.readouterr().out == f"a line\n{SHOWN}\nPASS  it\n"


def test_markdown_is_rendered() -> None:
    assert format_markdown(Table(("a", number_column("b")), [["x|y", "1"]])).splitlines() == [
        "| a    |   b |",
        "|------|-----|",
        "| x\\|y |   1 |",
    ]
    assert format_markdown(Table(("a", number_column("b")), [])).splitlines()[0].split() == [
        "|",
        "a",
        "|",
        "b",
        "|",
    ]


COMMANDS = {
    "devices": ["devices"],
    "inspect": ["inspect", MODEL, "--tensors"],
    "validate": ["validate", MODEL, "--tokens", "1,2", "-n", "0", "--tiers", "t_cpu"],
    "assumptions": ["assumptions"],
    "pm4-test": ["pm4-test", "--list"],
}


@pytest.mark.parametrize("row", COMMANDS)
@pytest.mark.rest
@pytest.mark.slow(keep=3)
def test_terminal_of_40_columns_works_and_pipe_has_no_escape_codes(row: str) -> None:
    line = [sys.executable, "-m", "zinc_rt.cli", *COMMANDS[row]]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "40"}
    environment.pop("NO_COLOR", None)
    unset = {name: value for name, value in environment.items() if name != "COLUMNS"}
    piped = subprocess.run(line, capture_output=True, text=True, env=unset)
    code, shown = run_on_terminal(line, environment)
    assert piped.returncode == code == 0 and "Traceback" not in shown + piped.stderr
    assert "\x1b" not in piped.stdout + piped.stderr
    assert max(map(len, piped.stdout.splitlines())) > 40, "a pipe has full width without COLUMNS"
    words = set(re.findall(r"[a-z]{4,8}", piped.stdout))
    lost = [word for word in words if word not in re.sub(r"\s", "", ESCAPE.sub("", shown))]
    assert not lost, lost


def run_on_terminal(line: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Its exit code and all that it drew."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            read = os.read(ours, 65536)
        except OSError:  # EIO: the last writer is gone
            break
        if not read:
            break
        drawn += read
    os.close(ours)
    return process.wait(), drawn.decode(errors="replace")
