"""Scenarios on raw KFD ioctls, in C (clients/scenarios): they pass, and each can fail on a faulty device."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from sim.clients.scenarios.make_kernels import HEADER, build_header

from zinc_rt.cli.sim import main
from zinc_rt.kernels import assemble

SOURCES = Path(__file__).parent / "clients/scenarios"
LONG = {
    *("pm4_atomic_contention", "pm4_private_dma_boundaries", "aql_cu_mask_switch", "aql_running_queue_pause"),
    *("random_dag-pm4", "random_dag-fanin2-pm4", "queue_flood-pm4", "queue_flood-aql", "dependency_chain-pm4"),
}
SCENARIOS = 94
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")


@dataclass(frozen=True)
class ScenarioRun:
    """The program's output: scenarios by verdict, and the findings from `zinc-rt sim`."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]
    findings: Mapping[str, int]


def compile_program(path: Path, *options: str) -> Path:
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    subprocess.run(["cc", "-O1", *options, *sources, "-o", str(path), "-pthread"], check=True)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(tmp_path_factory.mktemp("scenarios") / "scenarios")


@pytest.fixture
def run(program: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., ScenarioRun]:
    """run(options of `zinc-rt sim`, words of the program)."""
    usual = program

    def run_scenarios(options: list[str], *words: str, program: Path = usual) -> ScenarioRun:
        code = main([*options, "--", str(program), *words])
        out, err = capfd.readouterr()
        passed = set(re.findall(r"^ok (\S+)", out, re.MULTILINE))
        failed = set(re.findall(r"^not ok (\S+)", out, re.MULTILINE))
        skipped = set(re.findall(r"^ok (\S+) # skip", out, re.MULTILINE))
        findings = {rule: int(count) for count, rule in re.findall(r"^zinc-rt sim: (\d+) x ([\w-]+)", err, re.M)}
        assert code == bool(failed), out + err
        return ScenarioRun(passed - skipped, failed, skipped, findings)

    return run_scenarios


@needs_cc
def test_scenarios_pass(run: Callable[..., ScenarioRun], program: Path, request: pytest.FixtureRequest) -> None:
    """All but the long ones; with --slow all."""
    names = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    assert len(names) == len(set(names)) == SCENARIOS and set(names) > LONG
    chosen = set(names) - (set() if request.config.getoption("--slow") else LONG)
    ran = run(["--sanitizer", "full"], *chosen)
    assert (ran.failed, ran.skipped, ran.findings) == (set(), set(), {})
    assert ran.passed == chosen


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--sanitizer", "off"], ["--sanitizer", "full"], ["--reorder", "3"]], ids=lambda item: item[-1]
)
def test_scenarios_pass_with_corpus_rounds(run: Callable[..., ScenarioRun], options: list[str]) -> None:
    ran = run(options, "--long")
    assert (ran.failed, ran.skipped, ran.findings) == (set(), set(), {})
    assert len(ran.passed) == SCENARIOS


WITHOUT = {  # what a program leaves out that orders its accesses, and what is said of it
    "CP_SYNC": ("missing-barrier", ["pm4_private_dma"]),
    "BARRIER_BIT": ("missing-barrier", ["aql_dispatch_barrier"]),
    "SYSTEM_SCOPES": ("missing-cache-op", ["dependency_chain-aql"]),
    "ACQUIRE_ALL": ("missing-cache-op", ["pm4_dispatch_direct", "pm4_dispatch_indirect"]),
}


@pytest.mark.rest
@needs_cc
@pytest.mark.parametrize(
    "name", [item if item == "CP_SYNC" else pytest.param(item, marks=pytest.mark.slow) for item in WITHOUT]
)
def test_program_without_synchronisation_is_reported(
    run: Callable[..., ScenarioRun], name: str, tmp_path: Path
) -> None:
    rule, scenarios = WITHOUT[name]
    ran = run(["--sanitizer", "full"], *scenarios, program=compile_program(tmp_path / "without", f"-D{name}=0"))
    assert set(ran.findings) == {rule}


@needs_cc
def test_bar_stores_without_an_hdp_flush_are_stale_and_reported(
    run: Callable[..., ScenarioRun], tmp_path: Path
) -> None:
    options = "-DSYSTEM_SCOPES=AGENT_SCOPES", "-DSDMA_HDP_FLUSH=0"
    names = ["bar_store-aql", "bar_store-sdma"]
    program = compile_program(tmp_path / "without", *options)
    ran = run(["--sanitizer", "full"], *names, program=program)
    assert ran.failed == set(names) and set(ran.findings) == {"stale-hdp"}
    assert run(["--coherence", "direct"], *names, program=program).passed == set(names)


FAULTS = {  # a fault of the device, and scenarios that must and must not notice
    "fence-never-written": (["pm4_wait_comparisons", "gpu_ping_pong-aql"], []),
    "no-interrupt": (
        ["pm4_event_interrupt", "sdma_event_interrupt", "aql_signal_event", "many_events"],
        ["queue_churn-aql"],
    ),
    "ring-size-off-by-one": (
        ["packet_flood-pm4", "packet_flood-aql", "pm4_doorbell_rollover"],
        ["aql_signal_event"],
    ),
    "stale-hdp": (["bar_store-aql", "bar_store-sdma", "bar_code-aql"], ["sdma_queue_lifecycle"]),
    "lost-doorbell@2": (["pm4_cond_exec"], ["dependency_chain-pm4"]),
    "no-write-back": (["registered_memory-pm4"], ["registered_memory-aql", "vram_remap-aql"]),
    "cwsr-mismatch": (["queue_churn-pm4", "aql_dispatch_barrier"], ["sdma_flood"]),
    "counter-stuck": (["pm4_clock_counters"], ["pm4_cond_exec"]),
    "event-page-refused": (["aql_signal_event"], ["aql_publish_holes"]),
}
QUICK = ("no-write-back", "counter-stuck", "stale-hdp")


@pytest.mark.rest(keep=1)
@needs_cc
@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS]
)
def test_faulty_device_fails_exactly_the_affected_scenarios(run: Callable[..., ScenarioRun], fault: str) -> None:
    noticing, unharmed = FAULTS[fault]
    assert run(["--inject", fault], "--patience", "250", *noticing).failed == set(noticing)
    assert not unharmed or run(["--inject", fault], *unharmed).passed == set(unharmed)


@pytest.mark.skipif(not assemble.is_available(), reason="no assembler (extra `asm`)")
def test_wave_header_matches_its_source() -> None:
    assert HEADER.read_text() == build_header()
