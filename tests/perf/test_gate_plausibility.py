"""Reports with impossible figures: each is refused by a rule about the board, the graph, the counts, the times or
the runs. `NEAR` are the closest figures that a card can have, which pass.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gate_evidence import (
    HOST,
    NODES,
    Change,
    ago,
    bench_report,
    decided,
    names_of,
    put,
    put_forward,
    readings,
    scattered,
    timed,
    validation,
    with_peer,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identity
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.model_counts import counts_of
from zinc_rt.perf.gate.offered import OfferedReport
from zinc_rt.perf.refusals.board import is_named
from zinc_rt.perf.refusals.graph import graph
from zinc_rt.perf.refusals.rules import RULES, refusals

Row = tuple[str, Change]


def every(*changes: Change) -> Change:
    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for change in changes:
            change(bench, valid)

    return change


def device(name: str, value: Any) -> Change:
    """Both reports agree."""
    return every(put(f"device.{name}", value), put(f"details.devices.t2.{name}", value, "validation"))


def linux(release: str) -> Change:
    host = {**HOST, "system": f"Linux {release}"}
    return every(device("kernel", release), put("details.host", host), put("details.host", host, "validation"))


def sensor(name: str, *values: float) -> Change:
    """Readings of one sensor, repeated over the samples."""

    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for number, sample in enumerate(bench["details"]["samples"]):
            sample[name] = values[number % len(values)]

    return change


def without(name: str) -> Change:
    def change(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for sample in bench["details"]["samples"]:
            del sample[name]

    return change


def nodes(count: int) -> Change:
    return every(put("direct_compute_ops", count), put("details.workload.nodes", count))


def decode(runs: list[list[float]]) -> Change:
    middle = sorted(len(run) / sum(run) for run in runs)[len(runs) // 2]
    return every(put("results.0.measure.runs", runs), put("results.0.measure.tokens_per_second", middle))


def altered(of_first: Callable[[list[float], int], list[float]], count: int = 5) -> Change:
    """Derive every run after the first from it."""
    first = timed(1 / 150, 1)[0]
    return decode([first, *(of_first(first, number) for number in range(1, count))])


def shuffled(run: list[float], number: int) -> list[float]:
    row = list(run)
    random.Random(number).shuffle(row)
    return row


def begun_just_now(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    bench["started"] = datetime.now(UTC).isoformat(timespec="seconds")


IMPOSSIBLE: dict[str, Row] = {
    # the board
    "a name that contains the board's": ("hardware", device("name", "NotAnR9700x")),
    "a suffix to the board's name": ("hardware", device("name", "Radeon AI PRO R9700 replica")),
    "16 GiB of memory": ("board", device("memory_bytes", 17_095_983_104)),
    "128 GiB of memory": ("board", device("memory_bytes", 128 << 30)),
    "no memory": ("board", device("memory_bytes", 0)),
    "memory of twice the bandwidth": ("board", device("memory_bytes_per_second", 1288e9)),
    "memory of an unknown bandwidth": ("board", device("memory_bytes_per_second", 0.0)),
    "another board's PCI id": ("board", device("pci_id", "1002:7550")),
    "another maker's PCI id": ("board", device("pci_id", "10de:2684")),
    "Linux 6.12 on user queues": ("board", linux("6.12.57")),
    "Linux 6.14 on user queues": ("board", linux("6.14.11")),
    "Linux 5.15": ("board", linux("5.15.0")),
    "a Linux that does not exist": ("board", linux("42.0.1")),
    "no release": ("board", linux("generic")),
    "a device on another Linux than its host": ("board", device("kernel", "6.19.8")),
    "firmware below the minimum": ("board", device("firmware", "MEC 3049")),
    "no firmware": ("board", device("firmware", "")),
    "firmware 0": ("board", device("firmware", "MEC 0")),
    # sensors
    "500 MHz under load": ("sensors", sensor("gpu_clock_mhz", 500.0, 503.0)),
    "1200 MHz under load": ("sensors", sensor("gpu_clock_mhz", 1200.0, 1190.0)),
    "5 GHz": ("sensors", sensor("gpu_clock_mhz", 5000.0, 4990.0)),
    "one sample of 9 GHz": ("sensors", sensor("gpu_clock_mhz", *[2350.0] * 8, 9000.0)),
    "9 W under load": ("sensors", sensor("power_w", 9.0, 9.5)),
    "40 W under load": ("sensors", sensor("power_w", 40.0, 42.0)),
    "900 W": ("sensors", sensor("power_w", 900.0, 890.0)),
    "a power of zero in one sample": ("sensors", sensor("power_w", *[240.0] * 8, 0.0)),
    "no power": ("sensors", without("power_w")),
    "-40 degrees": ("sensors", sensor("gpu_temperature_c", -40.0)),
    "12 degrees at 240 W": ("sensors", sensor("gpu_temperature_c", 12.0)),
    "300 degrees": ("sensors", sensor("gpu_temperature_c", 300.0)),
    "samples after the report's end": ("sensors", sensor("at_seconds", *[100.0 + n for n in range(9)])),
    "samples in another order": ("sensors", sensor("at_seconds", *[20.0 - n for n in range(9)])),
    "all samples at once": ("sensors", sensor("at_seconds", 12.0)),
    # the graph
    "one node of one": ("graph", nodes(1)),
    "a node for each layer": ("graph", nodes(40)),
    "half of the nodes": ("graph", nodes(NODES // 2)),
    "twice the nodes": ("graph", nodes(2 * NODES)),
    # counts
    "a prefill of other prompts": ("counts", put("results.1.measure.prompt_tokens", 4096)),
    "three runs of five": ("counts", put("details.workload.runs", 3)),
    "no run": ("counts", put("details.workload.runs", 0)),
    "a prompt of less than nothing": ("counts", put("details.workload.prompt_tokens", -128)),
    "a prompt and a half": ("counts", put("details.workload.prompt_tokens", 128.5)),
    "more tokens than the context": ("counts", put("details.workload.prompt_tokens", 4000)),
    "prompts of one run left out": ("counts", put("results.1.measure.runs", scattered(0.5, 4))),
    "a first token before its prompt": ("counts", put("results.2.measure.runs", scattered(0.1))),
    "tokens that nobody drew": ("counts", put("details.sampled", {"device": 8, "host": 5})),
    # runs
    "one run three times": ("repeats", decode(timed(1 / 150, 1) * 3)),
    "one run five times": ("repeats", altered(lambda run, number: list(run))),
    "one run scaled": ("repeats", altered(lambda run, number: [v * (1 + number * 1e-3) for v in run])),
    "one run shifted in time": ("repeats", altered(lambda run, number: [v + number * 1e-6 for v in run])),
    "one run rotated": ("repeats", altered(lambda run, number: run[number:] + run[:number])),
    "one run reversed and scaled": (
        "repeats",
        altered(lambda run, number: [v * 1.001**number for v in run[::-1]]),
    ),
    "one run in other orders": ("repeats", altered(shuffled)),
    "two runs that share half of their tokens": (
        "repeats",
        decode([*timed(1 / 150, 4), timed(1 / 150, 4)[0][:64] + timed(1 / 150, 1, 64, seed=9)[0]]),
    ),
    "runs without jitter": ("repeats", decode([[1 / (150 + number)] * 128 for number in range(5)])),
    "jitter of two values": ("repeats", decode([[1 / 150, 1 / (151 + n)] * 64 for n in range(5)])),
    "jitter in equal steps": (
        "repeats",
        decode([[1 / 150 + position * 1e-8 + n * 1e-9 for position in range(128)] for n in range(5)]),
    ),
    "prompts that all take the same time": ("repeats", put("results.1.measure.runs", [0.5] * 5)),
    # times
    "runs that do not fit the wall time with the warm-up": (
        "order",
        every(put("wall_seconds", 7.0), put("details.samples", readings(1)), sensor("at_seconds", 1.0)),
    ),
    "a report of last year": (
        "order",
        every(put("started", ago(days=400)), put("started", ago(days=401), "validation")),
    ),
    "a report recorded before its runs ended": ("order", begun_just_now),
    "a validation after the speed": ("bits", put("started", ago(hours=1), "validation")),
    "a validation during the speed": ("bits", put("started", ago(hours=2, minutes=5), "validation")),
    "a validation of last month": ("bits", put("started", ago(days=31), "validation")),
    "a validation without its wall time": ("bits", put("-wall_seconds", None, "validation")),
    "a validation in no time": ("bits", put("wall_seconds", 0, "validation")),
    # contradictions
    "a driver that computes on the processor": ("simulated", put("device.software", True)),
    "a device that was not checked": ("shortcuts", put("device.unchecked", "pm4-test has not run")),
    "an execution on another tier": (
        "whole-model",
        put("model_execution", f"t_cpu: {NODES} of {NODES} nodes of qwen35moe-decode, in canonical-1"),
    ),
    "a program with nodes left out": (
        "graph",
        put("details.programs", [{"graph": "decode", "stage": "decode", "nodes": 400, "of": NODES}]),
    ),
    "two systems in one report": ("board", put("details.machine", {"system": "Linux 6.8.0"})),
    "a validation without a prompt": ("bits", put("details.jobs.m.tokens", 0, "validation")),
    # what a sweep over every field of both reports let pass
    "a token in microseconds": ("ceiling", put("results.0.measure.runs.2.5", 6.7e-6)),
    "a setting without a value": ("shortcuts", put("details.settings.decode_topk", None)),
    "half a run to warm up": ("counts", put("details.workload.warmup", 0.5)),
    "first tokens that the host did not draw": ("counts", put("details.sampled.host", 0)),
    "a first token long after its prompt": ("counts", put("results.2.measure.runs.1", 400.0)),
    "a host without its processor": ("bits", put("details.host.-processor", None)),
    "two processors in one report": ("board", put("details.machine", {"processor": "Intel Xeon"})),
    "a quarter of a watt in one sample": ("sensors", put("details.samples.4.power_w", 0.25)),
    "a report that is not over yet": ("order", put("wall_seconds", 40_000.0)),
    "a result that no bench has": ("numbers", put("results.1.id", "speed")),
    "another result of another tier": ("numbers", put("results.1.tier", "t1")),
    "another result that failed": ("numbers", put("results.2.status", "fail")),
    "a better summary of another result": ("numbers", put("results.1.measure.tokens_per_second", 900.0)),
    "a simulated validation": ("bits", put("device.simulated", True, "validation")),
    "a validation on another PCI id": ("bits", put("details.devices.t2.pci_id", "1002:7550", "validation")),
    "a validation with other memory": ("bits", put("details.devices.t2.memory_bytes", 1, "validation")),
    "a validation in another ordering as a whole": ("bits", put("ordering", "canonical-1-q8", "validation")),
    # bandwidth and operations
    "more bytes a second than the memory has": ("ceiling", decode(timed(1 / 300))),
}  # fmt: skip

NEAR: dict[str, Change] = {
    "as amdgpu's Vulkan driver names it": device("name", "AMD Radeon AI PRO R9700 (RADV GFX1201)"),
    "the first Linux with user queues": linux("6.16.0"),
    "a distribution's release": linux("6.17.0-22-generic"),
    "a release of next year": linux("8.0.1"),
    "the oldest firmware for user queues": device("firmware", "MEC 3050"),
    "memory with a larger reservation": device("memory_bytes", 31 << 30),
    "a low clock": sensor("gpu_clock_mhz", 1760.0, 1770.0),
    "a high clock": sensor("gpu_clock_mhz", 3300.0, 3290.0),
    "idle before the first run": sensor("gpu_clock_mhz", 0.0, *[2350.0] * 20),
    "little power": sensor("power_w", 80.0, 82.0),
    "all the power": sensor("power_w", 300.0, 302.0),
    "a water-cooled board": sensor("gpu_temperature_c", 27.0, 28.0),
    "a hot board": sensor("gpu_temperature_c", 98.0, 99.0),
    "readings in whole units that do not change": every(
        sensor("gpu_clock_mhz", 2350.0), sensor("power_w", 240.0), sensor("gpu_temperature_c", 61.0)
    ),
    "older reports without PCI id": every(
        put("device.-pci_id", None), put("details.devices.t2.-pci_id", None, "validation")
    ),
    "the graph with its sampling": nodes(NODES + 2),
    "seconds in whole microseconds": decode([[round(v, 6) for v in run] for run in timed(1 / 150)]),
    "a cost that depends on the position": decode(
        [[v * (1.02 if not p % 16 else 1.0) for p, v in enumerate(run)] for run in timed(1 / 150)]
    ),
    "a validation of yesterday": put("started", ago(days=1), "validation"),
    "a slow card": decode(timed(1 / 141)),
    "a fast card": decode(timed(1 / 220)),
}


@pytest.mark.parametrize("forgery", IMPOSSIBLE)
def test_impossible_figure_is_refused_by_its_rule(forgery: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation()
    rule, change = IMPOSSIBLE[forgery]
    change(bench, proof)
    result = decided(put_forward(tmp_path, bench, proof))
    assert result.status == "blocked"
    assert rule in names_of(result), result.reason


@pytest.mark.parametrize("honest", NEAR)
def test_figure_that_a_card_can_have_passes(honest: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation()
    NEAR[honest](bench, proof)
    result = decided(put_forward(tmp_path, bench, proof))
    assert result.status == "pass", result.reason


def test_impossible_figures_cover_every_new_rule() -> None:
    named = {rule for rule, _ in IMPOSSIBLE.values()}
    assert {"board", "sensors", "graph", "counts", "repeats", "order"} <= named <= set(RULES)
    assert len(IMPOSSIBLE) >= 22


@pytest.mark.parametrize(
    ("name", "board", "same"),
    [
        ("Radeon AI PRO R9700", "R9700", True),
        ("R9700", "R9700", True),
        ("AMD Radeon(TM) AI PRO R9700 Graphics", "R9700", True),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", "7900 XTX", True),
        ("Radeon RX 9070 XT", "RX 9070", False),
        ("Radeon RX 9070 series", "RX 9070 XT", False),
        ("NotAnR9700x", "R9700", False),
        ("R9700 R9700D", "R9700", False),
        ("", "R9700", False),
        ("Intel Arc B770", "B770", True),
        ("Intel Arc B7700", "B770", False),
    ],
)
def test_board_is_named_by_whole_words(name: str, board: str, *, same: bool) -> None:
    assert is_named(name, board) is same


def test_equal_speeds_of_the_other_program_are_refused(tmp_path: Path) -> None:
    bench = with_peer(bench_report())
    assert decided(put_forward(tmp_path, copy.deepcopy(bench), validation()), "against-peer").status == "pass"
    pairs = bench["results"][1]["measure"]["pairs"]
    bench["results"][1]["measure"]["pairs"] = [[ours, 160.0] for ours, _ in pairs]
    (tmp_path / "b").mkdir()
    result = decided(put_forward(tmp_path / "b", bench, validation()), "against-peer")
    assert "repeats" in names_of(result), result.reason


def test_nodes_are_those_of_the_named_file(tmp_path: Path) -> None:
    """With --models, the count is exact: a node more or less is refused."""
    path = FOLDER / "qwen35moe-q.gguf"
    described = {"path": str(path), **identity(read_gguf(path)).as_dict()}
    known = counts_of(read_gguf(path), arch="gfx1201", ordering="canonical-1", ctx=256)
    text = replace(put_forward(tmp_path, bench_report(), validation()), models={"ab" * 32: described})
    decode = next(criterion for criterion in find_milestone("M1").criteria if criterion.id == "decode")
    for count, accepted in ((known.nodes[0], True), (known.nodes[-1], True), (known.nodes[0] + 1, False)):
        bench = bench_report()
        bench["ctx"] = 256
        nodes(count)(bench, {})
        offered = replace(text.reports[0], report=bench)
        case = OfferedReport(decode, offered, bench["results"][0], text)
        assert (graph(case) is None) is accepted, graph(case)


def test_tier_that_is_not_built_is_refused(tmp_path: Path) -> None:
    bench = bench_report()
    bench["device"] |= {"tier": "t_intel", "name": "Intel Arc B770", "arch": "xe2"}
    bench["results"][0]["tier"] = "t_intel"
    argument = put_forward(tmp_path, bench, validation())
    criterion = next(criterion for criterion in find_milestone("M7").criteria if criterion.id == "decode")
    reasons = refusals(OfferedReport(criterion, argument.reports[0], bench["results"][0], argument))
    assert any("has no tier t_intel" in reason for reason in reasons)
    assert any("no row for B770" in reason for reason in reasons)


def test_prompt_speed_beyond_the_operations_of_the_card_is_refused(tmp_path: Path) -> None:
    bench, valid = bench_report(), validation()
    bench["device"]["tier"] = "t1"
    valid["details"]["devices"]["t1"] = valid["details"]["devices"].pop("t2")
    for result in (*bench["results"], *valid["results"]):
        result["tier"] = "t1"
    bench["details"]["workload"]["prompt_tokens"] = 3500
    prompts = scattered(3500 / 90_000)
    bench["results"][1]["measure"] |= {
        "tokens_per_second": 3500 / prompts[2],
        "prompt_tokens": 3500,
        "runs": prompts,
    }
    bench["results"][2]["measure"] |= {"seconds": prompts[2] + 1e-4, "runs": [prompt + 1e-4 for prompt in prompts]}
    result = decided(put_forward(tmp_path, bench, valid), "prefill", "M2")
    assert names_of(result) == {"ceiling"} and "tera-operations" in result.reason, result.reason
