"""What the runner makes of probes that hang, crash, fail and need each other."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import fake_probes as fake
import pytest
from fake_probes import make_probe, run_probes

from zinc_rt.host.errors import UsageError
from zinc_rt.probes import child
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.cases import in_processes
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.outcome import HOST, T1, T2
from zinc_rt.probes.output import table
from zinc_rt.probes.registry import PROBES, select_probes, sort_by_number
from zinc_rt.probes.runner import ProbeRunner


def test_passing_probe_keeps_its_measurement() -> None:
    result = run_probes([make_probe("A")])["A/t1"]
    assert result.status == "pass" and result.measure["answer"] == 42
    assert result.measure["simulated"] is True, "shown beside every result"


def test_failure_has_cause_advice_and_repro_command() -> None:
    result = run_probes([make_probe("A", fake.fail_probe)])["A/t1"]
    assert (result.status, result.reason) == ("fail", "the sky is green")
    assert (result.cause, result.advice) == ("the paint was wrong", "buy blue")
    assert result.repro == "zinc-rt-pm4-test --device sim -k A --tiers t1"
    assert result.measure["sky"] == "green"


def test_failure_quotes_known_issues_of_the_machine_and_pass_does_not() -> None:
    result = run_probes(
        [make_probe("A", fake.fail_probe), make_probe("B")],
        known=("bad (row): it hangs [https://example.org, 2026-01-02]",),
    )
    assert result["A/t1"].first_bad["known"] == ["bad (row): it hangs [https://example.org, 2026-01-02]"]
    assert not result["B/t1"].first_bad


def test_failure_shows_kernel_log_of_its_probe_only() -> None:
    log: list[str] = []

    def next_log_line() -> tuple[str, ...]:
        log.append(f"amdgpu: line {len(log)}")
        return tuple(log)

    probes = [make_probe("A"), make_probe("B", fake.fail_probe), make_probe("C")]
    runner = ProbeRunner(fake.make_plan(), probes, Journal(None, "fake"), kernel_log=next_log_line)
    result = {result.id: result for result in runner.run()}
    assert result["B/t1"].first_bad["kernel_log"] == ["amdgpu: line 3"], "read before and after each probe"
    assert "  kernel    amdgpu: line 3\n" in table.format_evidence(result["B/t1"])
    assert not result["A/t1"].first_bad and not result["C/t1"].first_bad


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("body", [fake.hang_until_killed, fake.ignore_sigterm])
def test_hang_ends_at_its_deadline(body: object) -> None:
    result = run_probes([make_probe("A", body, seconds=0.3), make_probe("B")])  # type: ignore[arg-type]
    assert result["A/t1"].first_bad["symptom"] == "deadline" and "0.3 s" in result["A/t1"].reason
    assert result["B/t1"].status == "pass", "the harness goes on"


def test_verdict_survives_a_clean_up_that_hangs() -> None:
    """On Linux 6.19 and later, FREE of a user queue waits without limit for a fence that never completes."""
    result = run_probes([make_probe("A", fake.fail_and_hang_at_close), make_probe("B")])
    failed = result["A/t1"]
    assert (failed.reason, failed.cause) == ("the sky is green", "the paint was wrong")
    note = "while giving everything back: not finished within 2 s"
    assert failed.measure["notes"] == [note] and f"  note      {note}\n" in table.format_evidence(failed)
    assert result["B/t1"].status == "pass", "the harness goes on"


@pytest.mark.parametrize(
    ("body", "symptom", "reason", "cause"),
    [
        (fake.pass_and_hang_at_close, "not-released", "not finished within 2 s", "wedged"),
        (fake.pass_and_crash_at_close, "crashed", "its process was ended by signal 11 (SIGSEGV)", "process died"),
    ],
)
def test_passing_probe_fails_by_its_clean_up(body: object, symptom: str, reason: str, cause: str) -> None:
    result = run_probes([make_probe("A", body)])["A/t1"]  # type: ignore[arg-type]
    assert result.status == "fail" and result.reason == f"while giving everything back: {reason}"
    assert result.first_bad["symptom"] == symptom and cause in result.cause
    assert result.measure["answer"] == 42


def test_case_of_a_probe_keeps_its_verdict() -> None:
    def fail_case(context: ProbeContext) -> dict[str, object]:
        return fake.fail_and_hang_at_close(context).measure

    result = run_probes([make_probe("A", lambda context: in_processes(context, {"one": fail_case}, 10.0))])["A/t1"]
    assert (result.reason, result.cause) == ("one: the sky is green", "the paint was wrong")


@pytest.mark.parametrize(
    ("body", "word", "message"),
    [
        (fake.crash_by_signal, "crashed", "SIGSEGV"),
        (fake.exit_early, "crashed", "exit code 7"),
        (fake.raise_bug, "unexpected", "KeyError"),
        (fake.raise_errno, "errno", "not yours"),
    ],
)
def test_every_kind_of_probe_exit_is_a_result(body: object, word: str, message: str) -> None:
    result = run_probes([make_probe("A", body)])["A/t1"]  # type: ignore[arg-type]
    assert result.status == "fail" and result.first_bad["symptom"] == word and message in result.reason
    assert result.cause and result.advice


def test_needed_probes_must_have_passed() -> None:
    result = run_probes(
        [
            make_probe("A", fake.fail_probe),
            make_probe("B", needs=("A",)),
            make_probe("C", needs=("B",)),
            make_probe("D"),
        ]
    )
    assert result["B/t1"].reason == "needs A, which failed"
    assert result["C/t1"].reason == "needs B (because A failed)"
    assert result["D/t1"].status == "pass"


def test_requirement_applies_only_to_its_tiers() -> None:
    probes = [
        make_probe("H", tiers=(HOST,)),
        make_probe("A", fake.fail_probe, tiers=(T1,), needs=("H",)),
        make_probe("B", tiers=(T1, T2), needs=("A", "H")),
    ]
    result = run_probes(probes, tiers=(T1, T2))
    assert result["B/t1"].status == "skip" and result["B/t2"].status == "pass"


def test_hazards_above_limit_are_skipped_with_the_flag_that_enables_them() -> None:
    result = run_probes([make_probe("A", hazard=1), make_probe("B", hazard=2)], hazard=1)
    assert result["A/t1"].status == "pass"
    assert result["B/t1"].status == "skip" and "--hazard 2" in result["B/t1"].reason


def test_hazard_2_skips_gpu_driving_a_display() -> None:
    probes = [make_probe("A", hazard=1), make_probe("B", hazard=2)]
    result = run_probes(probes, displays=("DP-1",))
    assert (
        result["A/t1"].status == "pass" and "DP-1" in result["B/t1"].reason and "--force" in result["B/t1"].reason
    )
    assert run_probes(probes, displays=("DP-1",), force=True)["B/t1"].status == "pass"


def test_gpu_liveness_is_checked_after_hazardous_failure() -> None:
    dead = make_probe("alive", fake.fail_probe, hazard=1)
    result = run_probes(
        [make_probe("A", fake.fail_probe, hazard=1), make_probe("B", hazard=1), make_probe("C")], alive=dead
    )
    assert "has not responded since A" in result["B/t1"].reason
    assert result["C/t1"].status == "pass", "what cannot hang still runs"
    well = run_probes(
        [make_probe("A", fake.fail_probe, hazard=1), make_probe("B", hazard=1)], alive=make_probe("alive")
    )
    assert well["B/t1"].status == "pass"


def test_probe_that_kills_the_gpu_fails_even_if_it_passed() -> None:
    result = run_probes([make_probe("A", hazard=2)], alive=make_probe("alive", fake.fail_probe, hazard=1))["A/t1"]
    assert result.status == "fail" and result.first_bad["symptom"] == "not-alive"


def test_timeout_replaces_every_deadline() -> None:
    result = run_probes([make_probe("A", fake.hang_until_killed, seconds=60.0)], timeout_seconds=0.2)["A/t1"]
    assert "0.2 s" in result.reason and result.repro.endswith("--timeout 0.2")


def test_time_without_a_processor_does_not_count_on_a_simulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "queued_seconds", lambda pid: 100.0)
    assert run_in_child(lambda: time.sleep(0.3), 0.1, exclude_queued=True).how == "returned"
    assert run_in_child(lambda: time.sleep(30), 0.1).how == "deadline", "a card does not wait for this machine"
    end = run_in_child(lambda: time.sleep(30), 0.1, exclude_queued=True)
    assert end.how == "deadline", "20 deadlines in all"


def test_hung_child_is_ended_although_the_machine_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "queued_seconds", lambda pid: 0.2)
    end = run_in_child(lambda: time.sleep(30), 0.1, exclude_queued=True)
    assert end.how == "deadline" and end.text.startswith("not finished within 0.1 s")


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count queued time")
def test_queued_seconds_are_those_of_every_thread_and_descendant() -> None:
    assert child.queued_seconds(os.getpid()) > 0
    assert child.queued_seconds(0x7FFF_FFFF) == 0.0, "no such process"


@pytest.mark.rest
def test_child_processes_are_killed_at_the_deadline(tmp_path: Path) -> None:
    mark = tmp_path / "grandchild"

    def start_process() -> None:
        import os

        if os.fork() == 0:
            time.sleep(1.0)
            mark.write_text("still here")
            os._exit(0)
        time.sleep(60)

    assert run_in_child(start_process, 0.2).how == "deadline"
    time.sleep(1.2)
    assert not mark.exists()


def test_large_result_is_transferred_completely() -> None:
    assert run_in_child(lambda: b"x" * (1 << 20), 10.0).value == b"x" * (1 << 20)


def test_probes_are_ordered_by_dependencies() -> None:
    a, b = make_probe("P02"), make_probe("P01", needs=("P02",))
    assert [item.id for item in sort_by_number([b, a])] == ["P02", "P01"]
    with pytest.raises(ValueError, match="dependency cycle among P01, P02"):
        sort_by_number([b, replace(a, needs=("P01",))])
    with pytest.raises(ValueError, match="does not exist"):
        sort_by_number([b])


def test_every_listed_probe_is_complete() -> None:
    ids = {probe.id for probe in PROBES}
    assert ids == {f"P{number:02}" for number in range(1, 58)}
    for item in PROBES:
        assert item.title and item.proves and item.passes_when and item.tiers, item.id
        assert all(row.cause and row.advice for row in item.signatures), item.id


def test_probes_are_selected_by_id_range_and_word() -> None:
    def selected_ids(text: str) -> list[str]:
        return [item.id for item in select_probes(PROBES, text)]

    assert selected_ids("p20") == ["P20"]
    assert selected_ids("P18-P20,P22") == ["P18", "P19", "P20", "P22"]
    assert "P21" in selected_ids("timestamps")
    with pytest.raises(UsageError, match="P99"):
        selected_ids("P99")


def test_ctrl_c_around_fork_is_not_lost() -> None:
    """What is raised in the callbacks around a fork, Python ignores."""

    def press_ctrl_c() -> None:
        if pressed:
            signal.raise_signal(signal.SIGINT)

    pressed = [True]
    os.register_at_fork(after_in_parent=press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started without it
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_child(lambda: time.sleep(60), 30.0)
    finally:
        pressed.clear()
        signal.signal(signal.SIGINT, before)
