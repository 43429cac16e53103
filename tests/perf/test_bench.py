"""Bench: every token's seconds kept, warm-up left out, the other program in alternation, sensors from sysfs."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
from planted_kernel import UNINITIALISED, FakeSanitizer

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.cli.logits import compute_logits
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.ir.graph import TokenRole
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.bench.runs import (
    BenchWorkload,
    alternate_runs,
    compare_with_peer,
    count_nodes,
    make_results,
    measure_runs,
)
from zinc_rt.perf.bench.scaling import make_scaling_results, run_in_turns
from zinc_rt.perf.bench.versus import make_runner, parse_speed
from zinc_rt.perf.command import main
from zinc_rt.perf.gate.figures import compute_figure, compute_percentile
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.model_counts import count_model
from zinc_rt.perf.history.chain import append_entry, collect_figures, read
from zinc_rt.perf.history.trends import group_series
from zinc_rt.perf.intervals import compute_ratio_interval, find_change_points
from zinc_rt.perf.machine import Sampler, describe_machine, find_gpu_folder
from zinc_rt.perf.profile.steps import ProfileWorkload, measure

MODEL = FOLDER / "qwen3-q.gguf"
BENCH = ("bench", "--model", str(MODEL), "--tier", "t_cpu")


@pytest.fixture
def engine() -> Engine:
    return Engine(read_gguf(MODEL), CpuBackend("canonical-1"), slots=3)


@pytest.mark.rest
def test_every_measured_run_is_kept_and_warmup_is_dropped(engine: Engine) -> None:
    load = BenchWorkload(prompt_tokens=3, tokens=4, slots=3, warmup=2, runs=2)
    *_, timed = measure_runs(engine, load, Sampler())
    assert [len(run) for run in timed.tokens] == [4, 4]
    assert len(timed.prompts) == len(timed.firsts) == 6
    assert all(first >= prompt for first, prompt in zip(timed.firsts, timed.prompts, strict=True))
    assert not engine.sequences, "slots are given back"
    result = {result.id: result.measure for result in make_results(timed, load, "t_cpu", Sampler())}
    assert set(result) == {"aggregate", "prefill", "ttft"}
    rates = [3 * 4 / sum(run) for run in timed.tokens]
    assert result["aggregate"]["tokens_per_second"] == pytest.approx(sum(rates) / 2)


def test_gate_recomputes_same_figures_from_samples(engine: Engine) -> None:
    load = BenchWorkload(prompt_tokens=3, tokens=4, warmup=0, runs=3)
    *_, timed = measure_runs(engine, load, Sampler())
    result = {result.id: {"measure": result.measure} for result in make_results(timed, load, "t_cpu", Sampler())}
    for criterion in find_milestone("M2").criteria:
        if criterion.measure in result:
            assert (
                compute_figure(criterion, result[criterion.measure])
                == result[criterion.measure]["measure"][criterion.figure]
            )


def test_prompts_of_all_measurements_have_the_prefill_ordering() -> None:
    options, tokens = EngineOptions(prefill_ordering="wmma-f16"), [3, 1, 4]
    with Engine(read_gguf(MODEL), CpuBackend("canonical-1"), slots=3, options=options) as engine:
        list(measure_runs(engine, BenchWorkload(prompt_tokens=3, tokens=1, warmup=0, runs=1), Sampler()))
        assert {variant.graph.name.endswith("-prompt") for variant in engine.variants.ran()} == {True, False}
        assert "prompt" in measure(engine, ProfileWorkload(steps=1, prefill=3)).graph.name
        assert "prompt" not in measure(engine, ProfileWorkload(steps=1)).graph.name
        logits, _ = compute_logits(engine, tokens, prefill="batched", rows="last", layers=False)
        of_roles: list[TokenRole] = ["prompt", "decode"]
        same = [np.array_equal(logits, engine.forward(tokens, rows="last", role=role)) for role in of_roles]
        assert same == [True, False]


def test_own_and_peer_runs_alternate(engine: Engine) -> None:
    order: list[str] = []
    real = engine.step

    def timed_step(*arguments: object, **options: object) -> object:
        if not order or order[-1] != "ours":
            order.append("ours")
        return real(*arguments, **options)  # type: ignore[arg-type]

    engine.step = timed_step  # type: ignore[method-assign, assignment]

    def peer_speed() -> float:
        order.append("theirs")
        return 10.0

    load = BenchWorkload(prompt_tokens=1, tokens=1, warmup=0, runs=4)
    _, pairs = alternate_runs(engine, load, Sampler(), peer_speed)
    assert order == ["ours", "theirs", "theirs", "ours", "theirs", "theirs", "ours"]
    assert len(pairs) == 4 and all(pair[1] == 10.0 for pair in pairs)
    result = compare_with_peer(pairs, "other", "t_cpu")
    assert result.measure["ratio_low"] <= result.measure["ratio"] <= result.measure["ratio_high"]


def test_interval_contains_ratio_and_narrows_with_agreement() -> None:
    ratio, low, high = compute_ratio_interval([10, 20, 30], [5, 10, 15])
    assert (ratio, low, high) == pytest.approx((2, 2, 2)), "what slows both runs of a pair cancels"
    ratio, low, high = compute_ratio_interval([10, 12, 8, 11], [10, 10, 10, 10])
    assert low < ratio < high
    with pytest.raises(ValueError, match="two or more pairs"):
        compute_ratio_interval([1], [1])


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("| qwen3 8B Q4_K | 4.68 GiB | 8.19 B | Vulkan | 99 |  tg128 |  115.02 ± 0.31 |", 115.02),
        ("eval time =  800.00 ms / 128 runs   (  6.25 ms per token,   160.00 tokens per second)", 160.0),
        ("warm-up 11.0 tok/s\ngenerated 98.5 tok/s", 98.5),
        (json.dumps([{"n_gen": 0, "avg_ts": 900.0}, {"n_gen": 128, "avg_ts": 101.5}]), 101.5),
        (json.dumps({"results": [{"id": "decode", "measure": {"tokens_per_second": 7.5}}]}), 7.5),
    ],
)
def test_peer_speed_is_parsed_from_its_output(text: str, speed: float) -> None:
    assert parse_speed(text, text) == speed


@pytest.mark.rest
def test_slot_counts_alternate_and_ratio_is_paired_per_run(engine: Engine) -> None:
    loads = [BenchWorkload(2, 2, slots, warmup=0, runs=3) for slots in (1, 3)]
    timed = run_in_turns(engine, loads, Sampler())
    result = {result.id: result.measure for result in make_scaling_results(timed, loads, "t_cpu", Sampler())}
    assert set(result) == {"decode", "prefill", "ttft", "aggregate-3", "scaling-3"}
    one, three = ([sum(run) for run in item.tokens] for item in timed)
    ratios = [3 * a / b for a, b in zip(one, three, strict=True)]
    assert result["scaling-3"]["ratio"] == pytest.approx(statistics.geometric_mean(ratios))
    assert min(ratios) * (1 - 1e-12) <= result["scaling-3"]["ratio_low"] <= result["scaling-3"]["ratio"]


@pytest.mark.rest
def test_several_slot_counts_can_be_given_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*BENCH, "-p", "2", "-n", "2", "--warmup", "0"]
    assert main([*line, "--slots", "1,2", "--runs", "2", "--json", str(tmp_path / "r.json")]) == 0
    assert "times the tokens a second of 1 slot at 2 slots" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["details"]["workload"]["slots"] == [1, 2], "no gate takes it for a report of one number"
    with pytest.raises(SystemExit, match="2"):
        main([*line, "--slots", "0"])
    assert "expected a number of slots" in capsys.readouterr().err
    for wrong, says in (
        (["--slots", "1,2", "--runs", "1"], "--runs 2 or more"),
        (["--slots", "1,2", "--history", str(tmp_path / "h")], "a single number of slots"),
    ):
        assert main([*line, *wrong]) == 2
        assert says in capsys.readouterr().err


def test_finding_fails_the_bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "instrument", FakeSanitizer(UNINITIALISED))
    line = [*BENCH, "-p", "2", "-n", "2", "--warmup", "0", "--runs", "1"]
    assert main([*line, "--json", "-"]) == 1
    seen = capsys.readouterr()
    assert seen.err.splitlines()[-2].startswith("FAIL      the simulated device reported 1 error")
    report = json.loads(seen.out)
    assert report["verdict"]["exit"] == 1 and report["details"]["findings"] == [UNINITIALISED.text]


def test_missing_speed_gives_no_ratio() -> None:
    with pytest.raises(InputError, match="no decode speed"):
        parse_speed("done", "done")
    with pytest.raises(InputError, match="exited with 3"):
        make_runner(f"{sys.executable} -c 'raise SystemExit(3)'", None, 60)()
    with pytest.raises(UsageError, match="program no-such-program-here not found"):
        make_runner("no-such-program-here", None, 60)()
    with pytest.raises(UsageError, match="expected a group"):
        make_runner("x", "tok/s", 60)


def create_card(root: Path, vendor: str = "0x1002", *, render: int = 128, celsius: int = 61) -> Path:
    hwmon = root / f"class/drm/renderD{render}/device/hwmon/hwmon3"
    hwmon.mkdir(parents=True)
    (hwmon.parents[1] / "vendor").write_text(vendor + "\n")
    for name, text in (
        ("temp1_input", f"{celsius}000"),
        ("freq1_input", "2350000000"),
        ("power1_average", "241000000"),
    ):
        (hwmon / name).write_text(text + "\n")
    return hwmon


def test_sensors_are_read_in_their_units(tmp_path: Path) -> None:
    create_card(tmp_path)
    now = [0.0]
    sampler = Sampler(tmp_path, lambda: now[0])
    for seconds in (0.0, 0.2, 0.6):
        now[0] = seconds
        sampler.look()
    assert [sample["at_seconds"] for sample in sampler.samples] == [0.0, 0.6]
    assert sampler.samples[0]["gpu_clock_mhz"] == 2350 and sampler.samples[0]["gpu_temperature_c"] == 61
    assert sampler.samples[0]["power_w"] == 241


def test_sensors_are_those_of_the_gpu_that_runs(tmp_path: Path) -> None:
    create_card(tmp_path, celsius=35)
    second = create_card(tmp_path, render=129, celsius=70)
    create_card(tmp_path, "0x10de", render=130)
    sampler = Sampler(tmp_path, render_path="/dev/dri/renderD129")
    sampler.look()
    assert sampler.samples[0]["gpu_temperature_c"] == 70
    assert find_gpu_folder(tmp_path, "/dev/dri/renderD129") == second
    for path in ("", "/dev/dri/renderD130", None):
        other = Sampler(tmp_path, render_path=path)
        other.look()
        assert "gpu_temperature_c" not in other.samples[0], "unknown, another vendor's, or no GPU runs"


def test_card_of_another_vendor_is_ignored(tmp_path: Path) -> None:
    create_card(tmp_path, vendor="0x10de")
    assert find_gpu_folder(tmp_path) is None
    governor = tmp_path / "devices/system/cpu/cpu0/cpufreq"
    governor.mkdir(parents=True)
    (governor / "scaling_governor").write_text("performance\n")
    assert describe_machine(tmp_path)["governor"] == "performance"
    assert "governor" not in describe_machine(tmp_path / "nothing")


def test_percentiles_are_observed_values() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [compute_percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50, 90, 99]
    assert compute_percentile([7.0], 0.99) == 7


def test_level_drop_is_detected_and_single_outlier_is_not() -> None:
    steady = [100.0, 101, 99, 100, 102, 98, 101, 100, 99, 101]
    assert find_change_points(steady) == []
    assert find_change_points([*steady[:5], 40.0, *steady[5:]]) == []
    (change,) = find_change_points([*steady, *(0.9 * value for value in steady)])
    assert change.index == 10 and change.ratio == pytest.approx(0.9, abs=0.01) and change.p < 0.01


def test_regression_of_recorded_series_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    for number in range(20):
        speed = (100 if number < 10 else 90) + number % 3
        ttft = (1.0 if number < 10 else 0.5) + number % 3 / 100  # better: no regression
        decode = {"id": "decode", "measure": {"tokens_per_second": speed}}
        first = {"id": "ttft", "measure": {"seconds": ttft}}
        report = {"started": str(number), "device": {"tier": "t2", "name": "x"}, "results": [decode, first]}
        append_entry(path, "perf bench", report, collect_figures(report))
    result = {series.figure: series for series in group_series(read(path).entries)}
    assert result["decode"].find_regression() is not None
    assert result["ttft"].find_changes() and result["ttft"].find_regression() is None
    assert main(["history", str(path), "--plot", str(tmp_path / "p.html")]) == 1
    seen = capsys.readouterr().out
    assert seen.count("REGRESSION") == 1 and read(path).head in seen
    assert (tmp_path / "p.html").read_text().count("<svg") == 2


def test_other_workloads_and_devices_are_separate_series(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for tier, slots, code in (("t1", 1, "a"), ("t2", 1, "a"), ("t2", 4, "a"), ("t2", 4, "b")):
        report = {
            "device": {"tier": tier},
            "details": {"workload": {"slots": slots}, "code": code},
            "results": [{"id": "decode", "measure": {"tokens_per_second": 1.0}}],
        }
        append_entry(path, "perf bench", report, collect_figures(report))
    assert [len(series.entries) for series in group_series(read(path).entries)] == [1, 1, 2]


def test_png_without_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "history.jsonl"
    path.touch()
    assert main(["history", str(path), "--plot", str(tmp_path / "p.png")]) == 2
    assert "zinc-rt[report]" in capsys.readouterr().err


def test_command_measures_and_records_input_of_the_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, history = tmp_path / "b.json", tmp_path / "h.jsonl"
    line = [*BENCH, "--prompt-tokens", "3", "--tokens", "3", "--runs", "3"]
    assert main([*line, "--json", str(report), "--history", str(history)]) == 0
    written = json.loads(report.read_text())
    entry = read(history).entries[0]
    assert read(history).contains_report(entry.report) and entry.figures["decode"] > 0
    assert written["details"]["workload"]["nodes"] == written["direct_compute_ops"]
    assert main(["gate", "--milestone", "M1", "--only", "decode", "--evidence", str(report), "--history",
                 str(history)]) == 77  # fmt: skip
    seen = " ".join(capsys.readouterr().out.split())
    assert "ran on t_cpu, expected t2" in seen and "3 generated tokens" in seen
    assert "not in the history" not in seen


@pytest.mark.parametrize(
    "option", [["--tokens", "0"], ["--runs", "0"], ["--warmup", "-1"], ["--prompt-tokens", "999"]]
)
def test_invalid_workload_is_rejected(option: list[str]) -> None:
    assert main(["bench", "--model", str(MODEL), "--tier", "t_cpu", *option]) == 2


def test_node_count_excludes_barriers(engine: Engine) -> None:
    ran = [item.graph for item in engine.variants.ran() if item.graph.stage == "decode"]
    graph = max(ran or [engine.graph("decode")], key=lambda item: len(item.nodes))
    assert 0 < count_nodes(engine) <= len(graph.nodes)
    assert count_nodes(engine) == sum(node.op.name != "BARRIER" for node in graph.nodes)


def test_workload_counts_the_nodes_of_the_graph_that_ran(tmp_path: Path) -> None:
    """T1 fuses: the count is that of the fused graph, and all of it ran on the tier."""
    report = tmp_path / "r.json"
    load = ["--prompt-tokens", "4", "--tokens", "2", "--runs", "1", "--warmup", "0"]
    assert (
        main(["bench", "--model", str(MODEL), "--tier", "t1", "--device", "sim", *load, "--json", str(report)])
        == 0
    )
    body = json.loads(report.read_text())
    assert body["details"]["workload"]["nodes"] == body["direct_compute_ops"]
    counts = count_model(read_gguf(MODEL), arch="gfx1201", ordering="canonical-1", ctx=body["ctx"])
    assert body["direct_compute_ops"] in counts.nodes
    assert body["device"]["pci_id"] == "1002:7551"
