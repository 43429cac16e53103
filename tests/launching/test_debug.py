"""`zinc-rt debug`: an assembly kernel with known values in registers, LDS and memory."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from debugger import Script

import zinc_rt
from zinc_rt.cli.debug import main
from zinc_rt.cli.debug_shell import ALIASES, DebugShell
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.debugging.session import DebugSession
from zinc_rt.launching.source import compile_source, find_toolchains
from zinc_rt.launching.values import out

Capture = pytest.CaptureFixture[str]
SOURCE = Path(__file__).parent / "sources" / "debugged.s"
LINES = SOURCE.read_text(encoding="utf-8").splitlines()
ARGUMENTS = ["--grid", "2", "--block", "64", "--arg", "out=out:i32[128]", "--arg", "in=in:i32[128]:range"]
LANES = np.arange(32)

pytestmark = pytest.mark.skipif(
    not list(find_toolchains()), reason="no clang for gfx1201 in PATH, and the package ziglang is not installed"
)


def line_of(text: str) -> int:
    """Return the number of the only line of the kernel that begins with this text."""
    (number,) = [index for index, item in enumerate(LINES, 1) if item.strip().startswith(text)]
    return number


@pytest.fixture(scope="module")
def code_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("debug") / "walk.co"
    path.write_bytes(compile_source(SOURCE, "gfx1201", ["-g"]))
    return path


@pytest.fixture
def debug_script(capsys: Capture, code_path: Path) -> Script:
    return Script(capsys, code_path, *ARGUMENTS)


def test_launch_without_stops_has_the_results_of_launch(code_path: Path) -> None:
    stops: list[str] = []
    args = {"in": np.arange(128, dtype=np.int32), "out": out(128, np.int32)}
    seen: list[list[int]] = []

    def run_session(session: DebugSession) -> None:
        stops.extend([session.stop.reason, session.go_on().reason])
        seen.append(session.make_reader().read("out[0..128]").to_plain())

    zinc_rt.launch(code_path, grid=2, block=64, args=args, device="sim", debugger=DebugSession(run_session))
    result = zinc_rt.launch(code_path, grid=2, block=64, args=args, device="sim")
    assert stops == ["start", "the launch has ended"]
    assert seen == [result.outputs["out"].tolist()] and result.findings == ()


def test_breakpoint_at_a_line_shows_lanes_and_memory(debug_script: Script) -> None:
    index = line_of("v_add_nc_u32 v3, 100")
    result = debug_script(
        f"break {index}", "continue", "print v3", "step", "print v3[6..10]", "print in[0..3]", "print out[0]"
    )
    assert result.code == 0 and result.stop_lines() == [line_of("s_load_b128"), index, index + 1]
    assert [stop["exec"] for stop in result.stop_records] == [0xFFFFFFFF, 0xFF, 0xFF]
    assert result.printed_values == [LANES.tolist(), [106, 107, 8, 9], [0, 1, 2], [None]]
    assert [record["active"] for record in result.records if record.get("expression") == "v3[6..10]"] == [
        [True, True, False, False]
    ]


def test_a_pointer_shows_the_element_it_points_to(debug_script: Script) -> None:
    commands = [
        f"break {line_of('global_load_b32')} group 1",
        "continue",
        "print s[2:3]",
        "print *s[2:3]:i32[100]",
    ]
    text = debug_script.text(*commands)
    assert text.startswith("walk on gfx1201 on a SIMULATED device; help lists the commands\n")
    assert ", in[0] of 128 elements\n" in text and "*s[2:3]:i32[100] = 100\n" in text
    assert debug_script("where").records[0] == {
        "record": "session", "schema": "zinc-rt-debug/1", "kernel": "walk", "arch": "gfx1201", "simulated": True,
    }  # fmt: skip


def test_every_command_is_in_the_docs() -> None:
    page = (Path(zinc_rt.__file__).parents[1] / "docs" / "debug.md").read_text(encoding="utf-8")
    table = page[page.index("## Commands") : page.index("## Values")]
    names = {name.removeprefix("do_") for name in dir(DebugShell) if name.startswith("do_")} - {"EOF"}
    assert {name for name in names if f"`{name}" not in table} == set()
    assert {alias for alias in ALIASES if len(alias) < 3 and f"`{alias}`" not in table} == set()


def test_breakpoint_at_a_pc_and_scalar_registers(debug_script: Script) -> None:
    result = debug_script(
        "break *0x2c", "continue", "print s8", "print s4", "print exec", "print vcc", "print v[1:2][5]"
    )
    assert result.stop_records[-1]["pc"] == 0x2C and result.stop_records[-1]["reason"] == "breakpoint 1"
    assert result.printed_values == [[0], [0], [0xFFFFFFFF], [None], [20 | 20 << 32]]


def test_loop_stops_in_each_turn_and_by_count_and_condition(debug_script: Script) -> None:
    index = line_of("v_add_nc_u32 v4, 3")
    assert debug_script(f"break {index} wave 1", *["continue"] * 4, "print s8").printed_values == [[3]]
    assert debug_script(f"break {index} after 2", "continue", "print s8", "print v4[31]").printed_values == [
        [2],
        [6],
    ]
    assert debug_script(
        f"break {index} group 1 wave 1 if s8 == 3", "continue", "print v4[0]", "print s4"
    ).printed_values == [
        [9],
        [256],
    ]
    result = debug_script(f"break {index} if v4[3] > 100", "continue")
    assert result.stop_records[-1]["ended"] and result.stop_records[-1]["reason"] == "the launch has ended"


def test_condition_that_cannot_be_evaluated_stops(debug_script: Script) -> None:
    index = line_of("s_mov_b32 s8")
    result = debug_script(f"break {index} if *s[8:9]:u32[0] == 3", "continue", "step", "break 99999")
    assert (
        result.stop_records[1]["reason"] == "condition of a breakpoint: *s[8:9]:u32[0]: s[8:9] was never written"
    )
    assert (
        result.stop_records[2]["step"] == result.stop_records[1]["step"] + 1
        and "debugged.s:99999: this line has no code" in result.error
    )


def test_another_wave_is_stopped_with_no_active_lane(debug_script: Script) -> None:
    index = line_of("v_add_nc_u32 v3, 100")
    result = debug_script(f"break {index} wave 1", "continue", "print v0[0..2]", "waves", "wave 0", "print v3[0]")
    stop = result.stop_records[-1]
    assert (stop["wave"], stop["exec"], stop["workgroup"]) == (1, 0, [0, 0, 0])
    assert result.printed_values == [[32, 33], [100]]
    (waves,) = [record["waves"] for record in result.records if record["record"] == "waves"]
    assert [wave["progress"] for wave in waves] == ["waits at the barrier", "stopped here"]


def test_step_runs_the_selected_wave_until_it_ends(debug_script: Script) -> None:
    result = debug_script("step 3", "wave 1", "step", "wave 0", "step 2", "finish", "step", "where")
    position = [(stop["workgroup"][0], stop["wave"], stop["pc"]) for stop in result.stop_records]
    assert position[:3] == [(0, 0, 0), (0, 0, 0x10), (0, 1, 8)]
    last = LINES.index("  s_endpgm") + 1
    assert result.stop_lines()[4] == last and position[4][1] == 0
    assert result.stop_records[5]["reason"] == "wave 0 of workgroup (0, 0, 0) has ended"
    assert position[5] == (1, 0, 0), "the other wave has ended before"


def test_group_steps_to_its_barrier_and_its_end(debug_script: Script) -> None:
    result = debug_script("step group", "print lds[0..10]", "print lds[40]", "step group", "step group")
    assert [stop["reason"] for stop in result.stop_records[1:]] == [
        "all waves have arrived at the barrier",
        "workgroup (0, 0, 0) has ended",
        "all waves have arrived at the barrier",
    ]
    assert result.printed_values == [[100, 101, 102, 103, 104, 105, 106, 107, 8, 9], [40]]
    assert result.stop_records[2]["workgroup"] == [1, 0, 0] and result.stop_records[2]["pc"] == 0


def test_next_goes_to_another_line(debug_script: Script) -> None:
    result = debug_script("next", "next 2")
    assert result.stop_lines() == [line_of("s_load_b128"), line_of("v_lshlrev_b32 v1"), line_of("s_mov_b32 s8")]


def test_watches_stop_after_the_store(debug_script: Script) -> None:
    result = debug_script("watch out[3]", "watch lds[9]", "watch v4[7]", "watch s8", "delete 3", *["continue"] * 6)
    changes = [stop["change"] for stop in result.stop_records if "change" in stop]
    assert [(change["watch"], change["before"], change["now"]) for change in changes] == [
        *[("s8", hex(turn), hex(turn + 1)) for turn in range(4)],
        ("lds[9]", "0xa5a5a5a5", "0x9"),
        ("out[3]", "-1", "47"),
    ]
    assert result.stop_lines()[-2:] == [line_of("ds_store_b32") + 1, len(LINES[: LINES.index("  s_endpgm")]) + 1]


def test_watch_of_a_lane_belongs_to_its_wave(debug_script: Script) -> None:
    result = debug_script(
        f"break {line_of('ds_load_b32')} wave 1", "continue", "watch v5[4]", "continue", "continue", "continue"
    )
    assert [stop["change"]["now"] for stop in result.stop_records if "change" in stop] == ["0x68", "0x74"]
    assert {stop["wave"] for stop in result.stop_records if "change" in stop} == {1}


def test_back_runs_the_launch_again_to_an_earlier_step(debug_script: Script) -> None:
    index = LINES.index("  s_endpgm") + 1
    result = debug_script(
        f"break {index} wave 1", "continue", "print out[32]", "back", "back 3", "print v3[2]", "goto 0", "goto 40",
        "print out[32]", "continue", "print out[32]",
    )  # fmt: skip
    first, after, back, more, start, later, second = result.stop_records[0], *result.stop_records[1:]
    assert (back["wave"], back["line"]) == (1, f"{after['line'].rpartition(':')[0]}:{index - 1}")
    assert more["reason"] == "back" and start["step"] == first["step"] == 0 and later["step"] == 40
    assert {**second, "findings": []} == {**after, "findings": []}
    assert result.printed_values == [[112], [34], [None], [112]], "memory is as it was at each step"


def test_break_on_error_stops_before_the_instruction(capsys: Capture, code_path: Path) -> None:
    short = [*ARGUMENTS[:-1], "in=in:i32[100]:range"]
    script = Script(capsys, code_path, *short)
    result = script("print v2[3..6]", "print v3", "back", "continue", options=["--break-on-error"])
    first, _, second = result.stop_records
    assert result.code == 1 and first["reason"] == "finding"
    assert (first["workgroup"], first["wave"], first["line"]) == ([1, 0, 0], 1, second["line"])
    (finding,) = first["findings"]
    assert finding["rule"] == "out-of-bounds" and finding["access"] == "load of in[100] of 100 elements"
    assert first["line"] == finding["line"] and first["line"].endswith(f":{line_of('global_load_b32')}")
    assert result.printed_values[0] == [396, 400, 404] and set(result.printed_values[1]) == {None}, (
        "before the load"
    )
    assert second["step"] == first["step"] and len(second["findings"]) == 1
    assert "ended" in script("continue", options=["--tool", "racecheck", "--break-on-error"]).stop_records[0]


def test_missing_wait_stops_at_its_instruction(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "k.s"
    path.write_text("\n".join(LINES).replace("  s_wait_loadcnt 0\n", ""))
    result = Script(capsys, path, *ARGUMENTS)("continue", options=["--break-on-error"])
    assert result.code == 1 and [finding["rule"] for finding in result.stop_records[0]["findings"]] == ["wait"]
    assert (
        result.stop_records[0]["instruction"].startswith("v_add_nc_u32_e32 v3, 0x64")
        and result.stop_records[1]["ended"]
    )


def test_fault_stops_at_its_instruction_and_can_be_left_back(capsys: Capture, code_path: Path) -> None:
    script = Script(capsys, code_path, "--block", "64", "--arg", "out=null", "--arg", "in=in:i32[128]:range")
    result = script("continue", "print v5[0]", "back", "continue", "continue")
    fault, _, second, end = result.stop_records[1:]
    assert fault["reason"] == second["reason"] == "finding" and fault["step"] == second["step"]
    assert fault["findings"][0]["rule"] == "page-fault" and "null pointer" in fault["findings"][0]["access"]
    assert result.printed_values == [[112]] and end["ended"] and result.code == 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("break 3", "debugged.s:3: this line has no code; the nearest lines with code are 8, 9, 10, 11"),
        ("break k.cl:3", "no code from k.cl"),
        ("break *0x4", "pc 0x4: no instruction starts there; the nearest are pc 0x0 `s_load_b128"),
        ("break *0x900", "has instructions from pc 0x0 to 0x90"),
        ("break 17 group 7", "the launch has 2 x 1 x 1 workgroups"),
        ("break 17 if v3", "32 values, but a condition needs one"),
        ("print v99", "the kernel only has v0 to v7"),
        ("print s200", "the kernel only has s0 to s105"),
        ("print v3[40]", "wave32 has lanes 0 to 31"),
        ("print outt[3]", "no argument with that name: did you mean out?"),
        ("print out[128]", "that axis has 128 elements"),
        ("print out:f99[0]", "unknown type f99"),
        ("print v3:f16", "name a half, like v3.l:f16"),
        ("print *0x10", "is outside the memory of the launch"),
        ("print", "expected a register"),
        ("watch out[0..4]", "expected one value of at most 8 bytes"),
        ("wave 2", "the workgroup only has waves 0 to 1"),
        ("step x", "expected a number of 1 or more"),
        ("goto 100000", "the launch ended after"),
        ("back", "the wave has executed only 0 instructions so far"),
        ("delete 4", "no such breakpoint or watch"),
        ("brek 3", "unknown command brek: did you mean break?"),
    ],
)  # fmt: skip
@pytest.mark.rest(keep=4)
def test_wrong_command_ends_a_script(debug_script: Script, command: str, message: str) -> None:
    result = debug_script(command, "print exec")
    assert result.code == 2 and message in result.error and "Traceback" not in result.error
    assert result.printed_values == []


def test_commands_come_from_standard_input_until_its_end(
    capsys: Capture, code_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "p v3:i32[7..9]\np v3[0]\nl\ncode 3\nregisters\nhelp b\nhelp\n"
    commands = f"# a comment\n\nb {line_of('ds_store_b32')}\nc\n{shown}"
    monkeypatch.setattr(sys, "stdin", io.StringIO(commands))
    assert main([str(code_path), *ARGUMENTS]) == 0
    text = capsys.readouterr().out
    assert "step 30: breakpoint 1\nwalk, workgroup (0, 0, 0), wave 0, exec 0xffffffff (all lanes)\n" in text
    assert "  [7]  107    8\n" in text and "v3[0] = 0x64 (100)\n" in text
    assert f"=>   {line_of('ds_store_b32')}    ds_store_b32 v1, v3\n" in text
    assert "=>     58  ds_store_b32 v1, v3" in text and "s8 = 0x4" in text
    assert (
        "break LINE | FILE:LINE | *PC" in text and "\nwaves: the waves of the stopped wave's workgroup.\n" in text
    )


def test_terminal_goes_on_after_a_wrong_command(code_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    answers = iter(["brek", "step", "", KeyboardInterrupt, "where"])

    def read_command(prompt: str) -> str:
        answer = next(answers, None)
        if answer is None:
            raise EOFError
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        assert isinstance(answer, str)
        return answer

    def run_session(session: DebugSession) -> None:
        DebugShell(session, seen, records=False).run_terminal()

    monkeypatch.setattr("builtins.input", read_command)
    args = {"in": np.arange(128, dtype=np.int32), "out": out(128, np.int32)}
    zinc_rt.launch(code_path, grid=2, block=64, args=args, device="sim", debugger=DebugSession(run_session))
    text = seen.getvalue()
    assert "unknown command brek: did you mean break?" in text
    assert "step 1\n" in text and text.count("step 2\n") == 2, "an empty line repeats the last command"


ENDLESS = ["  s_branch loop" if line.startswith("  s_cbranch_scc1") else line for line in LINES]


@pytest.fixture
def endless_path(tmp_path: Path) -> Path:
    path = tmp_path / "endless.s"
    path.write_text("\n".join(ENDLESS))
    return path


def test_pause_and_time_limit_stop_an_endless_kernel(endless_path: Path) -> None:
    reasons = []

    def run_session(session: DebugSession) -> None:
        running = threading.Thread(target=lambda: (time.sleep(0.05), session.pause()))
        running.start()
        reasons.append(session.go_on().reason)
        assert session.wave is not None and session.code.line(session.wave.pc) is not None
        running.join()
        reasons.append(session.go_on().reason)

    args = {"in": np.arange(128, dtype=np.int32), "out": out(128, np.int32)}
    debugger = DebugSession(run_session, seconds=0.2)
    zinc_rt.launch(read_image(endless_path), grid=1, block=64, args=args, device="sim", debugger=debugger)
    assert reasons == ["interrupted", "no stop within 0.2 s"]


@pytest.mark.rest
def test_ctrl_c_stops_the_launch_and_the_script_goes_on(endless_path: Path) -> None:
    words = [str(endless_path), *ARGUMENTS, "--command", "continue", "--command", "print s4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "zinc_rt.cli", "debug", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    seen = ""
    while "(debug) continue\n" not in seen:
        text = process.stdout.readline()
        assert text, seen
        seen += text
    time.sleep(0.2)  # any time will do: the kernel has no end
    process.send_signal(signal.SIGINT)
    more, _ = process.communicate(timeout=60)
    assert ": interrupted\n" in more and "s4 = 0x" in more and process.returncode == 0, more
