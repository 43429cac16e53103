"""The log joins requests and answers by an id, says nothing of what was asked, and holds nobody up."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ticking_scheduler import make_scheduler, run_scheduler

from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest
from zinc_rt.sched.usage.ledger_store import StoreHealth
from zinc_rt.serve.http.request_ids import RequestIds
from zinc_rt.serve.observe import events
from zinc_rt.serve.observe.answer_log import log_answer
from zinc_rt.serve.observe.events import INTERVAL_SECONDS, EventLog, report_ledger, watch_clocks
from zinc_rt.serve.observe.logs import GONE, KEPT_LINES, LOGGER, RequestLog, ServerLog
from zinc_rt.serve.observe.model_metrics import ModelMetrics


@pytest.fixture
def server_log() -> tuple[ServerLog, io.StringIO]:
    out = io.StringIO()
    return ServerLog("info", out), out


def log_lines(log: ServerLog, out: io.StringIO) -> list[dict[str, Any]]:
    log.close()
    return [json.loads(line) for line in out.getvalue().splitlines()]


async def send_request(
    app: Any, *, headers: tuple[tuple[bytes, bytes], ...] = (), is_disconnected: bool = False, path: str = "/v1/x"
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive_message() -> dict[str, Any]:
        return (
            {"type": "http.disconnect"}
            if is_disconnected
            else {"type": "http.request", "body": b"a secret prompt"}
        )

    async def record_message(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"a=secret", "headers": headers}
    await app(scope, receive_message, record_message)
    return sent


async def answer_request(scope: Any, receive: Any, send: Any) -> None:
    scope["state"]["log"]["tenant"] = "ada"
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a secret answer"})


async def answer_without_tenant(scope: Any, receive: Any, send: Any) -> None:
    await receive()


async def raise_in_app(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("a secret")


def test_request_is_logged_with_id_and_without_text(server_log: tuple[ServerLog, io.StringIO]) -> None:
    app = RequestLog(answer_request)
    sent = asyncio.run(send_request(app))
    id = dict(sent[0]["headers"])[b"x-request-id"].decode()
    (line,) = log_lines(*server_log)
    assert line.pop("time").endswith("+00:00") and line.pop("ms") >= 0
    assert line == {
        "level": "info", "event": "request", "method": "POST", "path": "/v1/x", "status": 200, "request_id": id,
        "client": "", "tenant": "ada",
    }  # fmt: skip
    assert app.responses == {200: 1} and "secret" not in server_log[1].getvalue()


@pytest.mark.parametrize(
    ("sent_id", "logged_id"), [(b"abc-1:2", True), (b"a b", False), (b"x" * 129, False), (b"\n", False)]
)
def test_plain_client_request_id_is_kept(sent_id: bytes, logged_id: bool) -> None:
    sent = asyncio.run(send_request(RequestLog(answer_request), headers=((b"x-request-id", sent_id),)))
    assert (dict(sent[0]["headers"])[b"x-request-id"] == sent_id) is logged_id


def test_early_disconnect_is_499_and_internal_error_is_500(server_log: tuple[ServerLog, io.StringIO]) -> None:
    gone, broken = RequestLog(answer_without_tenant), RequestLog(raise_in_app)
    asyncio.run(send_request(gone, is_disconnected=True))
    with pytest.raises(ValueError, match="a secret"):
        asyncio.run(send_request(broken))
    first, second = log_lines(*server_log)
    assert first["status"] == GONE and first["client_gone"] and gone.responses == {GONE: 1}
    assert second["status"] == 500 and second["level"] == "error" and "secret" not in server_log[1].getvalue()


def test_log_line_has_figures_and_request_id(server_log: tuple[ServerLog, io.StringIO]) -> None:
    scheduler, _, spaces = make_scheduler(["ada"])
    ModelMetrics(scheduler, lambda *end: log_answer("m", "ada", "req-1", *end))
    scheduler.submit(NewRequest(7, 0, [1, 2, 3], spaces[0], Sampling(4, seed=1)))
    run_scheduler(scheduler)
    (line,) = log_lines(*server_log)
    assert 0 <= line.pop("queue_ms") < line.pop("first_token_ms") < line.pop("ms") and line.pop("time")
    assert line == {
        "level": "info", "event": "answer", "request_id": "req-1", "model": "m", "tenant": "ada", "number": 7,
        "choice": 0, "prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 4, "ended": "finished",
        "reason": "length",
    }  # fmt: skip


class StuckStream(io.StringIO):
    """A pipe that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait()
        return super().write(text)


def test_unread_log_blocks_no_request() -> None:
    out = StuckStream()
    log = ServerLog("info", out)
    for _ in range(KEPT_LINES + 100):
        LOGGER.info("line")
    assert 90 <= log.dropped <= 100
    out.free.set()
    log.close()
    assert len(out.getvalue().splitlines()) == KEPT_LINES + 100 - log.dropped


def test_records_below_the_level_are_dropped() -> None:
    out = io.StringIO()
    log = ServerLog("warning", out)
    asyncio.run(send_request(RequestLog(answer_request)))
    logging.getLogger("uvicorn.error").warning("uvicorn's")
    assert [line["event"] for line in log_lines(log, out)] == ["uvicorn's"]


def test_monitoring_requests_are_not_logged() -> None:
    out = io.StringIO()
    log = ServerLog("info", out)
    asyncio.run(send_request(RequestLog(answer_request), path="/metrics"))
    assert not log_lines(log, out)


def test_old_ids_are_evicted() -> None:
    ids = RequestIds(kept=3)
    for number in range(1, 6):
        ids.add(number, f"req-{number}")
    assert [ids.of(number) for number in range(1, 7)] == ["", "", "req-3", "req-4", "req-5", ""]


# --- events


def test_repeated_event_has_one_line_and_then_a_count(
    server_log: tuple[ServerLog, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = server_log
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reported = EventLog()
    for _ in range(5):
        reported.report("tenant_limited", "ada", tenant="ada")
    reported.report("tenant_limited", "bob", tenant="bob")
    now += INTERVAL_SECONDS
    reported.report("tenant_limited", "ada", tenant="ada")
    lines = log_lines(log, out)
    assert [(line["tenant"], line.get("unlogged")) for line in lines] == [("ada", None), ("bob", None), ("ada", 4)]


def test_ledger_on_a_full_disk_is_logged(server_log: tuple[ServerLog, io.StringIO], tmp_path: Path) -> None:
    log, out = server_log
    report_ledger(StoreHealth(tmp_path / "usage.sqlite", "database or disk is full", 1.0))
    report_ledger(StoreHealth(tmp_path / "usage.sqlite", "", 0.0))
    first, second = log_lines(log, out)
    assert (first["event"], first["level"], first["reason"]) == (
        "ledger_unwritten", "error", "database or disk is full"
    )  # fmt: skip
    assert second["event"] == "ledger_written_again"


@pytest.mark.parametrize(
    ("monotonic", "wall", "expected"),
    [
        ((0.0, 0.25), (1000.0, 1000.25), None),
        ((0.0, 0.75), (1000.0, 1000.75), ("event_loop_late", 0.5)),
        ((0.0, 0.25), (1000.0, 1060.25), ("clock_jumped", 60.0)),
        ((0.0, 0.25), (1000.0, 400.25), ("clock_jumped", -600.0)),
    ],
)
def test_late_event_loop_and_clock_jumps_are_logged(
    server_log: tuple[ServerLog, io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
    monotonic: tuple[float, float],
    wall: tuple[float, float],
    expected: tuple[str, float] | None,
) -> None:
    log, out = server_log
    steps = iter(zip(monotonic, wall, strict=True))
    now: list[tuple[float, float]] = [next(steps)]

    async def advance(seconds: float) -> None:
        step = next(steps, None)
        if step is None:
            raise asyncio.CancelledError
        now[0] = step

    clock = SimpleNamespace(monotonic=lambda: now[0][0], time=lambda: now[0][1])
    monkeypatch.setattr(events, "time", clock)
    monkeypatch.setattr(events, "asyncio", SimpleNamespace(sleep=advance))
    monkeypatch.setattr(events, "EVENTS", EventLog())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch_clocks())
    lines = [(line["event"], line["seconds"]) for line in log_lines(log, out)]
    assert lines == ([] if expected is None else [expected])
