"""The bar: only for somebody who watches, only for what takes long."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

import pytest

from zinc_rt.backends import precompile
from zinc_rt.cli import progress as module
from zinc_rt.cli.progress import show_progress, show_stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch_stderr(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr from here on: not a fixture, since pytest puts its own there between setting up and the test."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(module, "SHOWN_AFTER_SECONDS", 0.0)
    return terminal


def wait_until_drawn(terminal: Terminal, text: str) -> bool:
    """Return whether it is drawn in time; loading the drawing library may take long on a busy machine."""
    deadline = time.monotonic() + 30
    while text not in terminal.getvalue() and time.monotonic() < deadline:
        time.sleep(0.005)
    return text in terminal.getvalue()


def test_long_wait_is_shown_without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    with show_progress(10, "prompt") as advance:
        advance(4)
        assert wait_until_drawn(terminal, "4/10 token")
    assert terminal.getvalue().endswith("\r\x1b[2K\x1b[?25h\r"), "the cursor is back and the line is gone"


def test_nested_wait_is_shown_on_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    with show_stages() as stage:
        stage.say("model 2 of 3: qwen3-q")
        with show_progress(8 << 20, "digest", "B") as advance:
            advance(4 << 20)
            assert wait_until_drawn(terminal, "4.2 MB of 8.4 MB")
        assert "model 2 of 3: qwen3-q" in terminal.getvalue()


def test_compiled_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    asked: list[list[int]] = []

    def compile_each(kernels: Sequence[int]) -> None:
        asked.append(list(kernels))
        assert wait_until_drawn(terminal, f"compiling kernel {kernels[0] + 1} of 31")

    monkeypatch.setattr(precompile, "AT_ONCE", 8)
    monkeypatch.setattr(precompile.os, "sched_getaffinity", lambda pid: {0, 1})
    with show_progress(4, "prompt"):
        precompile.precompile_all(compile_each, list(range(31)))
    assert [len(item) for item in asked] == [8, 8, 8, 7]
    asked.clear()
    precompile.precompile_all(lambda kernels: asked.append(list(kernels)), [1, 2])
    assert asked == [[1, 2]], "where nobody watches, in one call"


def test_progress_is_cleared_before_command_output(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    with show_stages() as stage:
        stage.say("P07 fences")
        assert wait_until_drawn(terminal, "P07 fences")
        stage.clear()
        before = terminal.getvalue()
        time.sleep(0.1)
        assert terminal.getvalue() == before
        stage.say("P08 next")
        assert wait_until_drawn(terminal, "P08 next")


def test_short_wait_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    monkeypatch.setattr(module, "SHOWN_AFTER_SECONDS", 60.0)
    with show_progress(10, "prompt") as advance:
        advance(10)
    assert terminal.getvalue() == ""


def test_dumb_terminal_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch_stderr(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with show_progress(10, "prompt") as advance:
        advance(10)
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_pipe_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    monkeypatch.setattr(module, "SHOWN_AFTER_SECONDS", 0.0)
    with show_progress(10, "prompt") as advance:
        advance(10)
        time.sleep(0.02)
    assert pipe.getvalue() == ""
