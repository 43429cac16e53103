"""zinc-rt usage: a table for people, a report for programs, and a verdict on the books."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import Counts

from zinc_rt.cli.usage import main
from zinc_rt.sched.usage import latency
from zinc_rt.sched.usage.database import UnwrittenUsage, open_to_write, write_batch
from zinc_rt.sched.usage.ledger import DrawnTokens, RunnerCounts, StepKind, StepUsage, UsageLedger
from zinc_rt.sched.usage.ledger_store import LedgerStore
from zinc_rt.sched.usage.prices import PriceList, format_cost
from zinc_rt.sched.usage.query import fold

Capture = pytest.CaptureFixture[str]
MINUTE = 29_500_000  # 2026-02-02T02:40Z


def make_step(ledger: UsageLedger, tokens: int) -> StepUsage:
    """Record a prompt of that many tokens for the first tenant and one token for the second."""
    result = ledger.clear_step()
    result.counts[StepKind.PROMPT_TOKENS_COMPUTED, 0] = tokens
    result.counts[StepKind.DECODE_INPUTS, 1] = result.counts[StepKind.TOKENS_GENERATED, 1] = 1
    result.counts[StepKind.SLOT_STEPS] = 1
    result.pages[0] = [1, 1, 0, 2]
    result.drawn = DrawnTokens(np.array([1]), np.array([tokens > 10]), np.array([tokens * 10**6]))
    return result


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Two tenants, a step in each of two minutes of two days."""
    path = tmp_path / "usage.sqlite"
    LedgerStore(path).close()
    ledger, device = UsageLedger(["ada", "bob\x1b[31m"], {"full": 4}), RunnerCounts()
    ledger.count("requests_accepted", 0, 3)
    with closing(open_to_write(path, durable=False)) as connection:
        for minute, tokens in ((MINUTE, 10), (MINUTE + 1440, 20)):
            device = device.after(tokens + 1, 1, 2, 3_000_000_000)
            ledger.add(make_step(ledger, tokens), device)
            unwritten = UnwrittenUsage()
            unwritten.add(minute, "tiny", ledger.take())
            write_batch(connection, "p", unwritten)
    return path


def test_usage_prints_one_row_per_tenant_and_balances(ledger_path: Path, capsys: Capture) -> None:
    assert main([str(ledger_path)]) == 0
    head, ada, bob, verdict = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["tenant", "requests", "prompt", "cached"]
    assert head.split()[-9:] == ["p50", "ttft", "p99", "gap", "p50", "gap", "p99", "hit", "%"]
    assert ada.split() == ["ada", "3", "30", "0", "0", "0", "0", "0", "2", "5.584", "0"]
    assert [float(part) for part in bob.split()[-4:]] == pytest.approx([10, 10, 20, 20], rel=0.045)
    assert bob.split()[0] == "bob\\x1b[31m" and ":free" not in bob
    assert verdict == (
        "PASS  2026-02-02T02:40Z to 2026-02-03T02:40Z: 32 tokens and 2 draws in 2 steps are all accounted for"
    )


@pytest.mark.parametrize(
    ("words", "prompts"),
    [
        (["--from", "2026-02-03"], {"2026-02-03": 20}),
        (["--to", "2026-02-02T02:41"], {"2026-02-02": 10}),
        (["--from", "2026-02-02T03:40+01:00", "--to", "2026-02-04"], {"2026-02-02": 10, "2026-02-03": 20}),
    ],
)
def test_time_range_is_applied(
    ledger_path: Path, capsys: Capture, words: list[str], prompts: dict[str, int]
) -> None:
    assert main([str(ledger_path), *words, "--group-by", "day,tenant", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    result = {
        group["day"]: group["prompt_tokens_computed"]
        for group in report["details"]["groups"]
        if group["tenant"] == "ada"
    }
    assert result == prompts
    assert [result["id"] for result in report["results"]] == ["L1", "L2", "L3", "L4", "L5"]
    assert report["details"]["device"]["steps"] == len(prompts)


def test_unbalanced_ledger_fails_and_names_the_equation(ledger_path: Path, capsys: Capture) -> None:
    with closing(sqlite3.connect(ledger_path)) as connection, connection:
        connection.execute("UPDATE usage SET value = value + 1 WHERE tenant = 'ada' AND counter = 'slot_steps'")
    assert main([str(ledger_path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL  L3: tenants: slot_steps 6 = 6; device: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.sqlite"], "missing.sqlite: no such file"),
        (["DB", "--from", "yesterday"], "--from: 'yesterday' is not a time"),
        (["DB", "--from", "2026-03-01", "--to", "2026-02-01"], "is not before"),
        (["DB", "--group-by", "tenants"], "unknown grouping 'tenants'"),
        ([__file__], "not a usage database"),
    ],
)
def test_invalid_query_prints_one_line(ledger_path: Path, capsys: Capture, words: list[str], message: str) -> None:
    assert main([str(ledger_path) if word == "DB" else word for word in words]) == 2
    said_there = capsys.readouterr().err
    assert message in said_there and "Traceback" not in said_there


def test_empty_range_fails_the_command(ledger_path: Path, capsys: Capture) -> None:
    assert main([str(ledger_path), "--to", "2020-01-01"]) == 77
    assert "NOTHING RAN" in capsys.readouterr().out


def test_damaged_file_prints_one_line(ledger_path: Path, capsys: Capture, slow_counts: Counts) -> None:
    whole, choice, codes = ledger_path.read_bytes(), random.Random(3), set[int]()
    for _ in range(slow_counts(80, 3000)):
        data = bytearray(whole)
        for _ in range(choice.randint(0, 40)):
            data[choice.randrange(len(data))] = choice.randrange(256)
        ledger_path.write_bytes(data[: choice.choice([len(data), choice.randrange(len(data))])])
        codes.add(main([str(ledger_path)]))
        assert "Traceback" not in capsys.readouterr().err
    assert 2 in codes and codes <= {0, 1, 2, 77}


def test_quantiles_are_of_the_range_and_of_the_merged_days(ledger_path: Path, capsys: Capture) -> None:
    def run_usage(*words: str) -> dict[str, Any]:
        assert main([str(ledger_path), *words, "--json", "-"]) == 0
        details = json.loads(capsys.readouterr().out)["details"]
        assert not any(latency.is_latency(counter) for counter in details["usage"])
        return {group["tenant"]: group for group in details["groups"]}

    whole = run_usage()
    assert whole["ada"]["prefix_hit_rate"] == 0 and whole["ada"]["time_to_first_token"]["count"] == 0
    bob = whole["bob\x1b[31m"]
    assert (bob["time_to_first_token"]["count"], bob["inter_token_latency"]["count"]) == (1, 1)
    later = run_usage("--from", "2026-02-03")["bob\x1b[31m"]
    assert later["time_to_first_token"] == {"count": 0, "p50_ms": None, "p99_ms": None}
    assert later["inter_token_latency"]["p99_ms"] == pytest.approx(20, rel=latency.ERROR)
    with closing(open_to_write(ledger_path, durable=False)) as connection:
        fold(connection, before_minute=MINUTE + 3 * 1440)
    assert run_usage() == whole


PRICES = """\
version: 1
currency: EUR
models:
  tiny: {prompt: 0.1, cached: 0.01, delivered: 2.50}
"""


def test_prices_make_an_exact_cost(ledger_path: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES)
    assert main([str(ledger_path), "--prices", str(file)]) == 0
    head, ada, bob, _ = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["cost", "EUR"]
    assert (
        ada.split()[-1] == "0.000003" and bob.split()[-1] == "0.00"
    )  # 30 tokens at 0.1 per million; none delivered
    words = ["--group-by", "day,model,tenant", "--prices", str(file), "--json", "-"]
    assert main([str(ledger_path), *words]) == 0
    details = json.loads(capsys.readouterr().out)["details"]
    costs = {group["day"]: group["cost"] for group in details["groups"] if group["tenant"] == "ada"}
    assert costs == {"2026-02-02": "0.000001", "2026-02-03": "0.000002"} and details["currency"] == "EUR"


def test_model_without_a_price_has_no_cost(ledger_path: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(PRICES.replace("tiny", "other"))
    words = [str(ledger_path), "--prices", str(file), "--json", "-"]
    assert main(words) == 0
    groups = {group["tenant"]: group for group in json.loads(capsys.readouterr().out)["details"]["groups"]}
    assert groups["ada"]["cost"] is None
    file.write_text(PRICES.replace("tiny", "'*'"))
    assert main(words) == 0
    groups = {group["tenant"]: group for group in json.loads(capsys.readouterr().out)["details"]["groups"]}
    assert groups["ada"]["cost"] == "0.000003"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 2", "expected version: 1"),
        ("version: 1\nmodel: {}", "unknown field 'model'"),
        ("version: 1\nmodels: {}", "models: expected a price for each model"),
        ("version: 1\nmodels: {a: {prompt: 1}}", "models.a: expected prompt, cached, delivered"),
        (PRICES.replace("0.01", "free"), "models.tiny.cached is 'free', expected 0 or more"),
        (PRICES.replace("0.01", "-1"), "models.tiny.cached is '-1', expected 0 or more"),
        (PRICES.replace("0.01", "nan"), "models.tiny.cached is 'nan'"),
        ("a: [", "cannot read the prices"),
        (None, "cannot read the prices: No such file or directory"),
    ],
)
def test_malformed_prices_are_named(
    ledger_path: Path, tmp_path: Path, capsys: Capture, text: str | None, message: str
) -> None:
    file = tmp_path / "prices.yaml"
    if text is not None:
        file.write_text(text)
    assert main([str(ledger_path), "--prices", str(file)]) == 2
    assert message in capsys.readouterr().err


def test_costs_of_days_add_up_to_the_whole() -> None:
    prices = PriceList("EUR", {"a": {"prompt": Decimal("0.1"), "cached": Decimal("0.3"), "delivered": Decimal(7)}})
    days = [
        {"prompt_tokens_computed": n, "prompt_tokens_cached": 3 * n, "tokens_delivered": n % 5} for n in range(99)
    ]
    whole = {name: sum(day[name] for day in days) for name in days[0]}
    parts = [prices.compute_cost([("a", day)]) or Decimal(0) for day in days]
    assert sum(parts, Decimal(0)) == prices.compute_cost([("a", whole)])
    assert format_cost(Decimal("1200")) == "1200.00" and format_cost(Decimal("0E-9")) == "0.00"
