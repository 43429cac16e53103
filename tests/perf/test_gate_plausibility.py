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
    add_peer,
    bench_report,
    decide_criterion,
    past_timestamp,
    record_report,
    result_names,
    scattered_runs,
    sensor_readings,
    set_field,
    timed_runs,
    validation_report,
)

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.identity import identify_model
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.model_counts import count_model
from zinc_rt.perf.gate.offered import SubmittedReport
from zinc_rt.perf.refusals.board import is_named
from zinc_rt.perf.refusals.graph import graph
from zinc_rt.perf.refusals.rules import RULES, find_refusals

Row = tuple[str, Change]


def combine_forgeries(*changes: Change) -> Change:
    def apply_forgery(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for change in changes:
            change(bench, valid)

    return apply_forgery


def set_device_field(name: str, value: Any) -> Change:
    """Both reports agree."""
    return combine_forgeries(
        set_field(f"device.{name}", value), set_field(f"details.devices.t2.{name}", value, "validation")
    )


def set_linux(release: str) -> Change:
    host = {**HOST, "system": f"Linux {release}"}
    return combine_forgeries(
        set_device_field("kernel", release),
        set_field("details.host", host),
        set_field("details.host", host, "validation"),
    )


def set_sensor(name: str, *values: float) -> Change:
    """Readings of one sensor, repeated over the samples."""

    def apply_forgery(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for number, sample in enumerate(bench["details"]["samples"]):
            sample[name] = values[number % len(values)]

    return apply_forgery


def remove_sensor(name: str) -> Change:
    def apply_forgery(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        for sample in bench["details"]["samples"]:
            del sample[name]

    return apply_forgery


def set_node_count(count: int) -> Change:
    return combine_forgeries(set_field("direct_compute_ops", count), set_field("details.workload.nodes", count))


def set_decode_runs(runs: list[list[float]]) -> Change:
    middle = sorted(len(run) / sum(run) for run in runs)[len(runs) // 2]
    return combine_forgeries(
        set_field("results.0.measure.runs", runs), set_field("results.0.measure.tokens_per_second", middle)
    )


def alter_runs(of_first: Callable[[list[float], int], list[float]], count: int = 5) -> Change:
    """Derive every run after the first from it."""
    first = timed_runs(1 / 150, 1)[0]
    return set_decode_runs([first, *(of_first(first, number) for number in range(1, count))])


def shuffle_run(run: list[float], number: int) -> list[float]:
    row = list(run)
    random.Random(number).shuffle(row)
    return row


def start_just_now(bench: dict[str, Any], valid: dict[str, Any]) -> None:
    bench["started"] = datetime.now(UTC).isoformat(timespec="seconds")


IMPOSSIBLE: dict[str, Row] = {
    # the board
    "a name that contains the board's": ("hardware", set_device_field("name", "NotAnR9700x")),
    "a suffix to the board's name": ("hardware", set_device_field("name", "Radeon AI PRO R9700 replica")),
    "16 GiB of memory": ("board", set_device_field("memory_bytes", 17_095_983_104)),
    "128 GiB of memory": ("board", set_device_field("memory_bytes", 128 << 30)),
    "no memory": ("board", set_device_field("memory_bytes", 0)),
    "memory of twice the bandwidth": ("board", set_device_field("memory_bytes_per_second", 1288e9)),
    "memory of an unknown bandwidth": ("board", set_device_field("memory_bytes_per_second", 0.0)),
    "another board's PCI id": ("board", set_device_field("pci_id", "1002:7550")),
    "another maker's PCI id": ("board", set_device_field("pci_id", "10de:2684")),
    "Linux 6.12 on user queues": ("board", set_linux("6.12.57")),
    "Linux 6.14 on user queues": ("board", set_linux("6.14.11")),
    "Linux 5.15": ("board", set_linux("5.15.0")),
    "a Linux that does not exist": ("board", set_linux("42.0.1")),
    "no release": ("board", set_linux("generic")),
    "a device on another Linux than its host": ("board", set_device_field("kernel", "6.19.8")),
    "firmware below the minimum": ("board", set_device_field("firmware", "MEC 3049")),
    "no firmware": ("board", set_device_field("firmware", "")),
    "firmware 0": ("board", set_device_field("firmware", "MEC 0")),
    # sensors
    "500 MHz under load": ("sensors", set_sensor("gpu_clock_mhz", 500.0, 503.0)),
    "1200 MHz under load": ("sensors", set_sensor("gpu_clock_mhz", 1200.0, 1190.0)),
    "5 GHz": ("sensors", set_sensor("gpu_clock_mhz", 5000.0, 4990.0)),
    "one sample of 9 GHz": ("sensors", set_sensor("gpu_clock_mhz", *[2350.0] * 8, 9000.0)),
    "9 W under load": ("sensors", set_sensor("power_w", 9.0, 9.5)),
    "40 W under load": ("sensors", set_sensor("power_w", 40.0, 42.0)),
    "900 W": ("sensors", set_sensor("power_w", 900.0, 890.0)),
    "a power of zero in one sample": ("sensors", set_sensor("power_w", *[240.0] * 8, 0.0)),
    "no power": ("sensors", remove_sensor("power_w")),
    "-40 degrees": ("sensors", set_sensor("gpu_temperature_c", -40.0)),
    "12 degrees at 240 W": ("sensors", set_sensor("gpu_temperature_c", 12.0)),
    "300 degrees": ("sensors", set_sensor("gpu_temperature_c", 300.0)),
    "samples after the report's end": ("sensors", set_sensor("at_seconds", *[100.0 + n for n in range(9)])),
    "samples in another order": ("sensors", set_sensor("at_seconds", *[20.0 - n for n in range(9)])),
    "all samples at once": ("sensors", set_sensor("at_seconds", 12.0)),
    # the graph
    "one node of one": ("graph", set_node_count(1)),
    "a node for each layer": ("graph", set_node_count(40)),
    "half of the nodes": ("graph", set_node_count(NODES // 2)),
    "twice the nodes": ("graph", set_node_count(2 * NODES)),
    # counts
    "a prefill of other prompts": ("counts", set_field("results.1.measure.prompt_tokens", 4096)),
    "three runs of five": ("counts", set_field("details.workload.runs", 3)),
    "no run": ("counts", set_field("details.workload.runs", 0)),
    "a prompt of less than nothing": ("counts", set_field("details.workload.prompt_tokens", -128)),
    "a prompt and a half": ("counts", set_field("details.workload.prompt_tokens", 128.5)),
    "more tokens than the context": ("counts", set_field("details.workload.prompt_tokens", 4000)),
    "prompts of one run left out": ("counts", set_field("results.1.measure.runs", scattered_runs(0.5, 4))),
    "a first token before its prompt": ("counts", set_field("results.2.measure.runs", scattered_runs(0.1))),
    "tokens that nobody drew": ("counts", set_field("details.sampled", {"device": 8, "host": 5})),
    # runs
    "one run three times": ("repeats", set_decode_runs(timed_runs(1 / 150, 1) * 3)),
    "one run five times": ("repeats", alter_runs(lambda run, number: list(run))),
    "one run scaled": ("repeats", alter_runs(lambda run, number: [v * (1 + number * 1e-3) for v in run])),
    "one run shifted in time": ("repeats", alter_runs(lambda run, number: [v + number * 1e-6 for v in run])),
    "one run rotated": ("repeats", alter_runs(lambda run, number: run[number:] + run[:number])),
    "one run reversed and scaled": (
        "repeats",
        alter_runs(lambda run, number: [v * 1.001**number for v in run[::-1]]),
    ),
    "one run in other orders": ("repeats", alter_runs(shuffle_run)),
    "two runs that share half of their tokens": (
        "repeats",
        set_decode_runs([*timed_runs(1 / 150, 4), timed_runs(1 / 150, 4)[0][:64] + timed_runs(1 / 150, 1, 64,
        seed=9)[0]]),
    ),
    "runs without jitter": ("repeats", set_decode_runs([[1 / (150 + number)] * 128 for number in range(5)])),
    "jitter of two values": ("repeats", set_decode_runs([[1 / 150, 1 / (151 + n)] * 64 for n in range(5)])),
    "jitter in equal steps": (
        "repeats",
        set_decode_runs([[1 / 150 + position * 1e-8 + n * 1e-9 for position in range(128)] for n in range(5)]),
    ),
    "prompts that all take the same time": ("repeats", set_field("results.1.measure.runs", [0.5] * 5)),
    # times
    "runs that do not fit the wall time with the warm-up": (
        "order",
        combine_forgeries(set_field("wall_seconds", 7.0), set_field("details.samples", sensor_readings(1)),
        set_sensor("at_seconds", 1.0)),
    ),
    "a report of last year": (
        "order",
        combine_forgeries(set_field("started", past_timestamp(days=400)), set_field("started",
        past_timestamp(days=401), "validation")),
    ),
    "a report recorded before its runs ended": ("order", start_just_now),
    "a validation after the speed": ("bits", set_field("started", past_timestamp(hours=1), "validation")),
    "a validation during the speed": ("bits", set_field("started", past_timestamp(hours=2, minutes=5),
    "validation")),
    "a validation of last month": ("bits", set_field("started", past_timestamp(days=31), "validation")),
    "a validation without its wall time": ("bits", set_field("-wall_seconds", None, "validation")),
    "a validation in no time": ("bits", set_field("wall_seconds", 0, "validation")),
    # contradictions
    "a driver that computes on the processor": ("simulated", set_field("device.software", True)),
    "a device that was not checked": ("shortcuts", set_field("device.unchecked", "pm4-test has not run")),
    "an execution on another tier": (
        "whole-model",
        set_field("model_execution", f"t_cpu: {NODES} of {NODES} nodes of qwen35moe-decode, in canonical-1"),
    ),
    "a program with nodes left out": (
        "graph",
        set_field("details.programs", [{"graph": "decode", "stage": "decode", "nodes": 400, "of": NODES}]),
    ),
    "two systems in one report": ("board", set_field("details.machine", {"system": "Linux 6.8.0"})),
    "a validation without a prompt": ("bits", set_field("details.jobs.m.tokens", 0, "validation")),
    # what a sweep over every field of both reports let pass
    "a token in microseconds": ("ceiling", set_field("results.0.measure.runs.2.5", 6.7e-6)),
    "a setting without a value": ("shortcuts", set_field("details.settings.decode_topk", None)),
    "half a run to warm up": ("counts", set_field("details.workload.warmup", 0.5)),
    "first tokens that the host did not draw": ("counts", set_field("details.sampled.host", 0)),
    "a first token long after its prompt": ("counts", set_field("results.2.measure.runs.1", 400.0)),
    "a host without its processor": ("bits", set_field("details.host.-processor", None)),
    "two processors in one report": ("board", set_field("details.machine", {"processor": "Intel Xeon"})),
    "a quarter of a watt in one sample": ("sensors", set_field("details.samples.4.power_w", 0.25)),
    "a report that is not over yet": ("order", set_field("wall_seconds", 40_000.0)),
    "a result that no bench has": ("numbers", set_field("results.1.id", "speed")),
    "another result of another tier": ("numbers", set_field("results.1.tier", "t1")),
    "another result that failed": ("numbers", set_field("results.2.status", "fail")),
    "a better summary of another result": ("numbers", set_field("results.1.measure.tokens_per_second", 900.0)),
    "a simulated validation": ("bits", set_field("device.simulated", True, "validation")),
    "a validation on another PCI id": ("bits", set_field("details.devices.t2.pci_id", "1002:7550", "validation")),
    "a validation with other memory": ("bits", set_field("details.devices.t2.memory_bytes", 1, "validation")),
    "a validation in another ordering as a whole": ("bits", set_field("ordering", "canonical-1-q8", "validation")),
    # bandwidth and operations
    "more bytes a second than the memory has": ("ceiling", set_decode_runs(timed_runs(1 / 300))),
}  # fmt: skip

NEAR: dict[str, Change] = {
    "as amdgpu's Vulkan driver names it": set_device_field("name", "AMD Radeon AI PRO R9700 (RADV GFX1201)"),
    "the first Linux with user queues": set_linux("6.16.0"),
    "a distribution's release": set_linux("6.17.0-22-generic"),
    "a release of next year": set_linux("8.0.1"),
    "the oldest firmware for user queues": set_device_field("firmware", "MEC 3050"),
    "memory with a larger reservation": set_device_field("memory_bytes", 31 << 30),
    "a low clock": set_sensor("gpu_clock_mhz", 1760.0, 1770.0),
    "a high clock": set_sensor("gpu_clock_mhz", 3300.0, 3290.0),
    "idle before the first run": set_sensor("gpu_clock_mhz", 0.0, *[2350.0] * 20),
    "little power": set_sensor("power_w", 80.0, 82.0),
    "all the power": set_sensor("power_w", 300.0, 302.0),
    "a water-cooled board": set_sensor("gpu_temperature_c", 27.0, 28.0),
    "a hot board": set_sensor("gpu_temperature_c", 98.0, 99.0),
    "readings in whole units that do not change": combine_forgeries(
        set_sensor("gpu_clock_mhz", 2350.0), set_sensor("power_w", 240.0), set_sensor("gpu_temperature_c", 61.0)
    ),
    "older reports without PCI id": combine_forgeries(
        set_field("device.-pci_id", None), set_field("details.devices.t2.-pci_id", None, "validation")
    ),
    "the graph with its sampling": set_node_count(NODES + 2),
    "seconds in whole microseconds": set_decode_runs([[round(v, 6) for v in run] for run in timed_runs(1 / 150)]),
    "a cost that depends on the position": set_decode_runs(
        [[v * (1.02 if not p % 16 else 1.0) for p, v in enumerate(run)] for run in timed_runs(1 / 150)]
    ),
    "a validation of yesterday": set_field("started", past_timestamp(days=1), "validation"),
    "a slow card": set_decode_runs(timed_runs(1 / 141)),
    "a fast card": set_decode_runs(timed_runs(1 / 220)),
}


@pytest.mark.parametrize("forgery", IMPOSSIBLE)
def test_impossible_figure_is_refused_by_its_rule(forgery: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation_report()
    rule, change = IMPOSSIBLE[forgery]
    change(bench, proof)
    result = decide_criterion(record_report(tmp_path, bench, proof))
    assert result.status == "blocked"
    assert rule in result_names(result), result.reason


@pytest.mark.parametrize("change", NEAR)
def test_figure_that_a_card_can_have_passes(change: str, tmp_path: Path) -> None:
    bench, proof = bench_report(), validation_report()
    NEAR[change](bench, proof)
    result = decide_criterion(record_report(tmp_path, bench, proof))
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
    bench = add_peer(bench_report())
    assert (
        decide_criterion(record_report(tmp_path, copy.deepcopy(bench), validation_report()), "against-peer").status
        == "pass"
    )
    pairs = bench["results"][1]["measure"]["pairs"]
    bench["results"][1]["measure"]["pairs"] = [[ours, 160.0] for ours, _ in pairs]
    (tmp_path / "b").mkdir()
    result = decide_criterion(record_report(tmp_path / "b", bench, validation_report()), "against-peer")
    assert "repeats" in result_names(result), result.reason


def test_nodes_are_those_of_the_named_file(tmp_path: Path) -> None:
    """With --models, the count is exact: a node more or less is refused."""
    path = FOLDER / "qwen35moe-q.gguf"
    described = {"path": str(path), **identify_model(read_gguf(path)).as_dict()}
    known = count_model(read_gguf(path), arch="gfx1201", ordering="canonical-1", ctx=256)
    text = replace(record_report(tmp_path, bench_report(), validation_report()), models={"ab" * 32: described})
    decode = next(criterion for criterion in find_milestone("M1").criteria if criterion.id == "decode")
    for count, accepted in ((known.nodes[0], True), (known.nodes[-1], True), (known.nodes[0] + 1, False)):
        bench = bench_report()
        bench["ctx"] = 256
        set_node_count(count)(bench, {})
        offered = replace(text.reports[0], report=bench)
        case = SubmittedReport(decode, offered, bench["results"][0], text)
        assert (graph(case) is None) is accepted, graph(case)


def test_tier_that_is_not_built_is_refused(tmp_path: Path) -> None:
    bench = bench_report()
    bench["device"] |= {"tier": "t_intel", "name": "Intel Arc B770", "arch": "xe2"}
    bench["results"][0]["tier"] = "t_intel"
    argument = record_report(tmp_path, bench, validation_report())
    criterion = next(criterion for criterion in find_milestone("M7").criteria if criterion.id == "decode")
    reasons = find_refusals(SubmittedReport(criterion, argument.reports[0], bench["results"][0], argument))
    assert any("has no tier t_intel" in reason for reason in reasons)
    assert any("no row for B770" in reason for reason in reasons)


def test_prompt_speed_beyond_the_operations_of_the_card_is_refused(tmp_path: Path) -> None:
    bench, valid = bench_report(), validation_report()
    bench["device"]["tier"] = "t1"
    valid["details"]["devices"]["t1"] = valid["details"]["devices"].pop("t2")
    for result in (*bench["results"], *valid["results"]):
        result["tier"] = "t1"
    bench["details"]["workload"]["prompt_tokens"] = 3500
    prompts = scattered_runs(3500 / 90_000)
    bench["results"][1]["measure"] |= {
        "tokens_per_second": 3500 / prompts[2],
        "prompt_tokens": 3500,
        "runs": prompts,
    }
    bench["results"][2]["measure"] |= {"seconds": prompts[2] + 1e-4, "runs": [prompt + 1e-4 for prompt in prompts]}
    result = decide_criterion(record_report(tmp_path, bench, valid), "prefill", "M2")
    assert result_names(result) == {"ceiling"} and "tera-operations" in result.reason, result.reason
