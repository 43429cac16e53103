"""A journal that survives what it is about, and expectation files that stay true."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import fake_probes as fake
import pytest
from fake_probes import make_probe, run_probes

from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.probes.expectations import Expectations, load_expectations
from zinc_rt.probes.journal import Journal


def kill_harness_in_a_probe(journal: Path) -> None:
    """A journal after a machine reset: the probe started and nothing follows."""
    pid = os.fork()
    if pid == 0:
        run_probes(
            [make_probe("A"), make_probe("B", fake.hang_until_killed, hazard=1)], journal=journal, boot="first"
        )
        os._exit(0)
    until = time.monotonic() + 10
    while "begin" not in (journal.read_text() if journal.exists() else ""):
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_next_run_names_and_skips_probe_that_crashed_the_machine(tmp_path: Path) -> None:
    journal = tmp_path / "deep" / "journal"
    kill_harness_in_a_probe(journal)
    probes = [make_probe("A", hazard=1), make_probe("B", hazard=1)]
    result = run_probes(probes, journal=journal, boot="second")
    assert result["A/t1"].status == "pass"
    assert (
        result["B/t1"].status == "skip" and "the machine was reset while it was running" in result["B/t1"].reason
    )
    assert "--again" in result["B/t1"].reason
    assert run_probes(probes, journal=journal, boot="second", again=True)["B/t1"].status == "pass"
    assert run_probes(probes, journal=journal, boot="third")["B/t1"].status == "pass", "it ended well since"


def test_harness_killed_in_same_boot_is_not_a_reset(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    kill_harness_in_a_probe(journal)
    assert Journal(journal, "fake", boot="first").find_suspects()["B/t1"].reset is False
    assert run_probes([make_probe("B", hazard=1)], journal=journal, boot="first")["B/t1"].status == "pass"


def test_only_hazardous_probes_are_recorded(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    run_probes([make_probe("A"), make_probe("B", hazard=1)], journal=journal)
    assert "B/t1" in journal.read_text() and "A/t1" not in journal.read_text()


def test_other_device_and_torn_line_make_no_suspects(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    Journal(journal, "other", boot="1").begin("P44/t1")
    with journal.open("a") as file:
        file.write('{"what": "begin", "probe": "P4')
    assert Journal(journal, "fake", boot="2").find_suspects() == {}
    Journal(journal, "fake", boot="2").begin("P45/t1")
    assert list(Journal(journal, "fake", boot="3").find_suspects()) == ["P45/t1"], "a torn line spoils no other"


def test_unwritable_journal_stops_before_the_hazard(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--journal"):
        run_probes([make_probe("A", hazard=1)], journal=tmp_path / "file" / "journal")


KNOWN = {"A", "A/t1", "B", "B/t1"}


def expectations(tmp_path: Path, text: str) -> Expectations:
    path = tmp_path / "gfx1201.txt"
    path.write_text(text)
    return load_expectations(path, KNOWN)


def test_expected_failure_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    expected = expectations(tmp_path, "# known\nchip gfx1201\nfail A/t1 paint of 2024\n")
    assert expected.chip == "gfx1201"
    result = run_probes([make_probe("A", fake.fail_probe)], expectations=expected)["A/t1"]
    assert result.status == "skip" and "paint of 2024" in result.reason and "gfx1201.txt:3" in result.reason


def test_unexpected_pass_is_reported(tmp_path: Path) -> None:
    result = run_probes([make_probe("A")], expectations=expectations(tmp_path, "fail A paint\n"))["A/t1"]
    assert result.status == "fail" and "passes, although" in result.reason and "remove the line" in result.advice


def test_flake_may_pass_or_fail(tmp_path: Path) -> None:
    expected = expectations(tmp_path, "flake A while it rains\n")
    assert run_probes([make_probe("A")], expectations=expected)["A/t1"].status == "pass"
    assert run_probes([make_probe("A", fake.fail_probe)], expectations=expected)["A/t1"].status == "flake"


def test_expected_skip_does_not_run(tmp_path: Path) -> None:
    result = run_probes(
        [make_probe("A", fake.crash_by_signal)], expectations=expectations(tmp_path, "skip A takes it down\n")
    )["A/t1"]
    assert result.status == "skip" and "takes it down" in result.reason


def test_tier_specific_line_takes_precedence(tmp_path: Path) -> None:
    expected = expectations(tmp_path, "skip A everywhere\nfail A/t1 here it may run\n")
    assert run_probes([make_probe("A", fake.fail_probe)], expectations=expected)["A/t1"].reason.startswith(
        "fails as"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fail A\n", "a reason is missing"),
        ("broken A x\n", "unknown kind 'broken'"),
        ("fail P99 x\n", "no probe 'P99'"),
        ("fail A x\nfail A y\n", "duplicate line for A"),
    ],
)
def test_invalid_line_is_reported_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        expectations(tmp_path, text)


BEGIN = '{"what": "begin", "probe": "P20/t1", "device": "fake", "boot": "1", "when": "2026-11-01 10:00:00"}\n'
END = BEGIN.replace("begin", "end").replace("}", ', "status": "pass"}')


@pytest.mark.parametrize(
    ("damaged", "suspects"),
    [
        (BEGIN + END + "\0" * 300 + "\n", ["P20/t1"]),
        (BEGIN + END + BEGIN.replace("P20", "P21")[:70], ["P21/t1"]),
        (BEGIN + END + BEGIN.replace("P20", "P21").replace('"boot"', "\x01\x02"), ["P21/t1"]),
        (BEGIN + END + "\udcff\udcfe garbage\n" + BEGIN.replace("P20", "P21"), ["P20/t1", "P21/t1"]),
        (BEGIN + END + "garbage\n" + BEGIN + END, []),
        *((BEGIN + END + BEGIN[:size], []) for size in range(34)),
    ],
)
def test_damaged_journal_is_kept_named_and_makes_the_last_probe_unsafe(
    tmp_path: Path, damaged: str, suspects: list[str]
) -> None:
    path = tmp_path / "journal"
    content = damaged.encode(errors="surrogateescape")
    path.write_bytes(content)
    journal = Journal(path, "fake", boot="2")
    assert list(journal.find_suspects()) == suspects and all(
        suspect.reset for suspect in journal.find_suspects().values()
    )
    assert path.read_bytes() == content
    assert bool(journal.describe_damage()) == (bool(suspects) or "garbage" in damaged) and (
        not journal.describe_damage() or str(path) in journal.describe_damage()
    )


def test_journal_without_permission_names_the_file_and_how_to_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.mkdir()
    with pytest.raises(OutputError, match=r"cannot be read.*\n.*mv "):
        Journal(path, "fake").find_suspects()
