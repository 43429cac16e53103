"""The ledger's file: both sides of the books are in it at every moment, whatever ends the process."""

from __future__ import annotations

import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Literal

import pytest
from ledger_child import TENANTS, count_step
from support import Counts

from zinc_rt.host.errors import InputError, OutputError, UnsupportedError, UsageError
from zinc_rt.sched.usage import database
from zinc_rt.sched.usage.balance import find_unbalanced
from zinc_rt.sched.usage.database import open_to_read
from zinc_rt.sched.usage.ledger import RunnerCounts, UsageLedger
from zinc_rt.sched.usage.ledger_store import LedgerStore, StoreHealth
from zinc_rt.sched.usage.query import UsageResult, find_usage, fold

CHILD = Path(__file__).with_name("ledger_child.py")
NEVER = 3600.0  # a period that no test lives to see: batches are those it asks for


def make_ledger() -> UsageLedger:
    return UsageLedger(TENANTS, {"full": 12})


def count_steps(
    ledger: UsageLedger, steps: int, device: RunnerCounts | None = None, seed: int = 0
) -> RunnerCounts:
    choice, device = random.Random(seed), device or RunnerCounts()
    for _ in range(steps):
        device = count_step(ledger, device, choice)
    return device


def read_usage(path: Path) -> UsageResult:
    with closing(open_to_read(path)) as connection:
        return find_usage(connection)


@contextmanager
def run_child(path: Path, period_s: float) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, str(CHILD), str(path), str(period_s)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("counted")
            yield process
        finally:
            process.kill()


@contextmanager
def close_store(store: LedgerStore) -> Iterator[LedgerStore]:
    try:
        yield store
    finally:
        store.close()


# --- what is written


def test_stored_usage_matches_the_counters(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    store = LedgerStore(path, {"m": ledger}, period_s=NEVER)
    device = count_steps(ledger, 100)
    ledger.count("requests_accepted", 1, 3)
    assert store.settle()
    device = count_steps(ledger, 10, device)
    assert not store.close().degraded
    usage = read_usage(path)
    assert not find_unbalanced(usage.usage, usage.device)
    assert (dict(usage.usage), dict(usage.device)) == tuple(map(dict, usage_with_peak(ledger, usage)))
    by_tenant = {group.key[0]: group.counters for group in usage.groups}
    assert by_tenant["bob"]["requests_accepted"] == 3
    for tenant in TENANTS:
        assert {**ledger.usage(tenant)}.items() <= {**by_tenant[tenant]}.items()
    assert usage.device["steps"] == 110


def usage_with_peak(ledger: UsageLedger, usage: UsageResult) -> Iterator[dict[str, int]]:
    mine, device = ledger.sums()
    yield {**mine, "kv_pages_peak": usage.usage["kv_pages_peak"]}
    yield {**device}


def test_store_writes_periodically(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    store = LedgerStore(path, {"m": ledger}, period_s=0.01)
    count_steps(ledger, 3)
    until = time.monotonic() + 30
    while not read_usage(path).device and time.monotonic() < until:
        time.sleep(0.01)
    assert read_usage(path).device["steps"] == 3
    store.close()


def test_processes_and_models_accumulate(tmp_path: Path) -> None:
    path = tmp_path / "u.sqlite"
    for seed in range(3):
        ledgers = {"big": make_ledger(), "small": make_ledger()}
        store = LedgerStore(path, {"big": ledgers["big"]}, period_s=NEVER, durability="request")
        store.add("small", ledgers["small"])
        for steps, ledger in enumerate(ledgers.values(), 4):
            count_steps(ledger, steps, seed=seed)
        store.close()
    with closing(open_to_read(path)) as connection:
        usage = find_usage(connection, group_by=["model", "day"])
    assert usage.device["steps"] == 3 * (4 + 5) and not find_unbalanced(usage.usage, usage.device)
    assert [group.key[0] for group in usage.groups] == ["big", "small"]


@pytest.mark.parametrize(("durability", "synchronous"), [("second", 1), ("request", 2)])
def test_durable_mode_syncs_every_commit(
    tmp_path: Path, durability: Literal["second", "request"], synchronous: int
) -> None:
    with close_store(LedgerStore(tmp_path / "u.sqlite", durability=durability)) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_concurrent_counting_loses_no_usage(tmp_path: Path) -> None:
    """Requests are counted by other threads than steps are."""
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    with close_store(LedgerStore(path, {"m": ledger}, period_s=0.001)):
        counting = [Thread(target=lambda: [ledger.count("parks", 1) for _ in range(2000)]) for _ in range(3)]
        for thread in counting:
            thread.start()
        count_steps(ledger, 1000)
        for thread in counting:
            thread.join()
        assert not ledger.find_problems()
    usage = read_usage(path)
    assert usage.usage["parks"] == 6000 and usage.device["steps"] == 1000
    assert not find_unbalanced(usage.usage, usage.device)


# --- what goes wrong


def test_second_process_is_rejected_with_owner_pid(tmp_path: Path) -> None:
    path = tmp_path / "u.sqlite"
    with run_child(path, 0.1) as process:
        with pytest.raises(OutputError, match=rf"pid {process.pid} \("):
            LedgerStore(path)
        usage = read_usage(path)  # one reading: the other process goes on writing
        assert not find_unbalanced(usage.usage, usage.device), "reading is free"
        process.kill()
        process.wait()
        LedgerStore(path).close()
    first = LedgerStore(path)
    with pytest.raises(OutputError, match="is writing to this file"):
        LedgerStore(path)
    first.close()


def test_non_ledger_file_is_left_unchanged(tmp_path: Path) -> None:
    text, other, newer = (tmp_path / name for name in ("text", "other.sqlite", "newer.sqlite"))
    text.write_text("not a database, but as long as a header of one would be " * 20)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE meta(version, made_by)")
    LedgerStore(newer).close()
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("UPDATE meta SET version = 7, made_by = '9.1'")
    for open_it in (LedgerStore, open_to_read):
        for path in (text, other):
            before = path.read_bytes()
            with pytest.raises(InputError, match="not a usage database"):
                open_it(path)
            assert path.read_bytes() == before
        with pytest.raises(UnsupportedError, match=r"version 7; this build .* 1\n  next: ZINC_RT 9\.1 wrote it"):
            open_it(newer)
    with pytest.raises(InputError, match="no such file"):
        open_to_read(tmp_path / "missing")
    with pytest.raises(OutputError, match="cannot lock it: No such file"):
        LedgerStore(tmp_path / "missing" / "u.sqlite")


@pytest.mark.parametrize(
    "options", [{"durability": "never"}, {"on_failure": "panic"}, {"max_lag_s": 0.0}, {"usage_days": 0}]
)
def test_invalid_options_are_rejected_by_name(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        LedgerStore(tmp_path / "u.sqlite", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_full_disk_only_delays_the_write(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    reports: list[StoreHealth] = []
    store = LedgerStore(
        path, {"m": ledger}, period_s=NEVER, on_failure="refuse", max_lag_s=0.001, told=reports.append
    )
    device = count_steps(ledger, 5)
    assert store.settle() and not store.refuses() and not reports
    store._connection.execute("PRAGMA max_page_count = 1")  # of fewer pages than it has: no page more
    for number in range(400):
        ledger.count(f"counter {number:0100}", 0)
    device = count_steps(ledger, 5, device)
    assert not store.settle()
    time.sleep(0.01)
    assert "full" in store.health().reason and str(path) in store.health().degraded
    assert store.refuses() == store.health().degraded or "in memory" in store.refuses()
    assert [bool(health.reason) for health in reports] == [True]
    kept = read_usage(path)
    assert kept.device["steps"] == 5 and not find_unbalanced(kept.usage, kept.device)
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.settle() and not store.health().degraded and not store.refuses()
    assert [bool(health.reason) for health in reports] == [True, False]
    count_steps(ledger, 1, device)
    store.close()
    whole = read_usage(path)
    assert whole.device["steps"] == 11 and not find_unbalanced(whole.usage, whole.device)


def test_file_size_limit_is_handled_like_full_disk(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    store = LedgerStore(path, {"m": ledger}, period_s=NEVER)
    count_steps(ledger, 5)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        assert not store.settle() and store.health().degraded
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.settle() and not store.close().degraded
    assert read_usage(path).device["steps"] == 5


def test_usage_is_kept_in_memory_while_the_lock_is_held(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    store = LedgerStore(path, {"m": ledger}, period_s=NEVER)
    count_steps(ledger, 5)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not store.settle() and "locked" in store.health().degraded
        assert not store.refuses(), "it goes on by default"
        other.execute("ROLLBACK")
    assert store.settle()
    store.close()
    assert read_usage(path).device["steps"] == 5


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_writer_thread_failure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_bug(*arguments: object) -> None:
        raise RuntimeError("a bug")

    ledger = make_ledger()
    store = LedgerStore(tmp_path / "u.sqlite", {"m": ledger}, period_s=NEVER, on_failure="refuse", max_lag_s=1e-9)
    monkeypatch.setattr(database, "write_batch", raise_bug)
    count_steps(ledger, 1)
    assert not store.settle()
    assert "writer thread has ended" in store.refuses()
    assert not store.settle(), "it does not wait for nobody"
    assert store.close().degraded


def test_slow_disk_does_not_block_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    store = LedgerStore(path, {"m": ledger}, period_s=0.001)
    writing: list[float] = []
    write = database.write_batch

    def write_slowly(*arguments: object) -> None:
        writing.append(time.monotonic())
        time.sleep(0.2)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(database, "write_batch", write_slowly)
    device = count_steps(ledger, 1)
    while not writing:
        time.sleep(0.001)
    count_steps(ledger, 500, device)
    assert len(writing) < 20, "as many steps as the disk took batches"
    store.close()
    assert read_usage(path).device["steps"] == 501


def kill_after(path: Path, period_s: float, life_s: float) -> tuple[list[tuple[str, int, float]], float]:
    """A child's report of the steps that it counted, and when it was killed."""
    with run_child(path, period_s) as process:
        time.sleep(life_s)
        process.kill()
        start = time.monotonic()
        assert process.stdout is not None
        words = [line.split() for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    return [(word, int(number), float(when)) for word, number, when in words], start


@pytest.mark.rest
def test_file_opens_and_balances_after_kill_at_any_point(tmp_path: Path, slow_counts: Counts) -> None:
    choice, path = random.Random(17), tmp_path / "u.sqlite"
    before = 0
    for _ in range(slow_counts(10, 500)):
        output, _ = kill_after(path, 0.02, choice.uniform(0.0, 0.15))
        usage = read_usage(path)
        assert not find_unbalanced(usage.usage, usage.device)
        steps = usage.device.get("steps", 0) - before
        before += steps
        settled = max((number for word, number, _ in output if word == "settled"), default=0)
        assert steps >= settled, "what was said to be in the file is in it"
        with closing(open_to_read(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.rest
def test_killed_process_loses_at_most_one_second(tmp_path: Path, slow_counts: Counts) -> None:
    choice = random.Random(5)
    for number in range(slow_counts(1, 20)):
        path = tmp_path / f"{number}.sqlite"
        output, killed = kill_after(path, 0.0, 1.3 if not number else choice.uniform(1.0, 4.0))
        due = max((number for _, number, when in output if when < killed - 1.0), default=0)
        assert read_usage(path).device.get("steps", 0) >= due > 0


# --- what is asked of it


def test_rollup_of_days_and_minutes_preserves_sums(tmp_path: Path) -> None:
    path, ledger = tmp_path / "u.sqlite", make_ledger()
    LedgerStore(path).close()
    with closing(database.open_to_write(path, durable=False)) as connection:
        device = RunnerCounts()
        for minute in (0, 1, 1439, 1440, 1500, 2880, 2881):
            unwritten = database.UnwrittenUsage()
            device = count_steps(ledger, 4, device, seed=minute)
            unwritten.add(minute, "m", ledger.take())
            database.write_batch(connection, "p", unwritten)
        by_day, spans = find_usage(connection, group_by=["day", "tenant"]), [(0, 1440), (1440, 2880), (2880, 4320)]
        days = [find_usage(connection, first_minute=a, before_minute=b) for a, b in spans]
        late = find_usage(connection, first_minute=2881)
        for day in days:
            assert not find_unbalanced(day.usage, day.device)
        rows = count_rows(connection)
        fold(connection, before_minute=2885)
        fold(connection, before_minute=2885)
        assert count_rows(connection) < rows
        assert find_usage(connection, group_by=["day", "tenant"]).groups == by_day.groups
        assert [find_usage(connection, first_minute=a, before_minute=b).groups for a, b in spans] == [
            day.groups for day in days
        ]
        assert find_usage(connection, first_minute=2881) == late, "that day is not over"
        steps = connection.execute("SELECT min(first_step), max(last_step), sum(count) FROM batch").fetchone()
        assert steps == (0, 28, 7)
        with pytest.raises(UsageError, match="unknown grouping 'colour'"):
            find_usage(connection, group_by=["colour"])


def count_rows(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT count(*) FROM usage").fetchone()[0]
    return count
