"""The bar: only for somebody who watches, only for what takes long."""

from __future__ import annotations

import io
import time

import pytest

from zinc_rt.commands import progress as module
from zinc_rt.commands.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(shown_after_seconds: float, monkeypatch: pytest.MonkeyPatch) -> str:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(module, "SHOWN_AFTER_SECONDS", shown_after_seconds)
    with progress(10, "prompt") as advance:
        advance(4)
        time.sleep(0.1)
    return terminal.getvalue()


def test_a_long_wait_is_shown_though_nothing_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "4/10" in drawn(0.01, monkeypatch)


def test_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(60.0, monkeypatch) == ""


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    monkeypatch.setattr(module, "SHOWN_AFTER_SECONDS", 0.0)
    with progress(10, "prompt") as advance:
        advance(10)
        time.sleep(0.02)
    assert pipe.getvalue() == ""
