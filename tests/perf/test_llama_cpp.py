"""llama.cpp as a peer: its output read, its programs found, its deaths told. Fakes stand in for the programs."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.perf.native import llama_cpp
from zinc_rt.perf.native.llama_cpp import LlamaCpp, NoPeer, RepackSetting, build, find, parse_batched, parse_bench

ROWS = [{"n_prompt": 128, "n_gen": 0, "avg_ts": 170.5}, {"n_prompt": 0, "n_gen": 64, "avg_ts": 20.7}]
BATCHED = '{"pp": 8, "tg": 8, "pl": 16, "t_tg": 1.13, "speed_tg": 112.8, "speed": 134.2}'


def test_llama_bench_json_is_parsed() -> None:
    assert parse_bench(json.dumps(ROWS)) == {"prefill": 170.5, "decode": 20.7}


@pytest.mark.parametrize(
    "text", ["", "| model | t/s |", "[]", json.dumps(ROWS[:1]), '[{"n_gen": 1}]', "{}", json.dumps([3])]
)
def test_malformed_json_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="llama-bench"):
        parse_bench(text)


def test_last_line_of_batched_bench_counts() -> None:
    assert parse_batched(f"loading\n{BATCHED.replace('112.8', '1.0')}\n{BATCHED}\n") == 112.8
    for text in ("", "no json", '{"speed": 3}', '{"speed_tg": 0}', "{"):
        with pytest.raises(InputError, match="llama-batched-bench"):
            parse_batched(text)


def write_programs(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True)
    for name in llama_cpp.TARGETS:
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755 | stat.S_IXUSR)
    return folder


def test_setting_reaches_the_program(tmp_path: Path) -> None:
    rows = json.dumps(ROWS)
    folder = write_programs(tmp_path / "bin", f"echo \"$@\" >> {tmp_path}/log; echo '{rows}' | tee /dev/null")
    assert (
        LlamaCpp((folder,)).measure(Path("m.gguf"), RepackSetting(False), prompt=128, tokens=64, threads=2)[
            "decode"
        ]
        == 20.7
    )
    words = (tmp_path / "log").read_text().split()
    assert words[words.index("--repack") + 1] == "0" and words[words.index("-t") + 1] == "2"


def test_build_dying_of_illegal_instruction_falls_back_to_next(tmp_path: Path) -> None:
    dies = write_programs(tmp_path / "amx", "kill -ILL $$")
    runs = write_programs(tmp_path / "plain", f"echo '{BATCHED}'")
    slots = {"slots": 16, "prompt": 8, "tokens": 8, "threads": 2}
    assert LlamaCpp((dies, runs)).slots(Path("m.gguf"), RepackSetting(True), **slots) == 112.8
    with pytest.raises(InputError, match="died of SIGILL"):
        LlamaCpp((dies,)).slots(Path("m.gguf"), RepackSetting(True), **slots)


def test_failing_program_is_quoted(tmp_path: Path) -> None:
    fails = write_programs(tmp_path / "bin", "echo 'cannot open m.gguf' >&2; exit 1")
    with pytest.raises(InputError, match=r"exit 1: cannot open m\.gguf"):
        LlamaCpp((fails,)).measure(Path("m.gguf"), RepackSetting(True), prompt=1, tokens=1, threads=1)


def test_given_folder_must_contain_both_programs(tmp_path: Path) -> None:
    with pytest.raises(NoPeer, match="does not contain llama-bench and llama-batched-bench"):
        find(tmp_path)
    write_programs(tmp_path / "bin", "exit 0")
    assert find(tmp_path) == LlamaCpp((tmp_path / "bin",))


def test_missing_build_requirements_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find() is None
    with pytest.raises(NoPeer, match=r"cmake, ninja, a C\+\+ compiler not installed") as raised:
        build(lambda line: None)
    assert "apt install cmake ninja-build" in str(raised.value)
    assert not list(tmp_path.iterdir())
