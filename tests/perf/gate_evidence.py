"""A bench report and a validation that a gate accepts, for tests that spoil one thing in them."""

from __future__ import annotations

import copy
import json
import random
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Result
from zinc_rt.host.machine import describe_host
from zinc_rt.perf.gate.figures import compute_speeds
from zinc_rt.perf.gate.milestones import find_milestone
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.history.chain import append_entry, read
from zinc_rt.perf.intervals import compute_ratio_interval
from zinc_rt.perf.refusals.rules import AGAINST, RULES, TIMED_RULES
from zinc_rt.perf.structure.lab import Lab

MODEL = "ab" * 32
CODE = "c0de" * 16
LAYERS = 40
WHAT = {  # of the class that M1 is of
    "path": "M.gguf",
    "digest": MODEL,
    "architecture": "qwen35moe",
    "size_bytes": 21_000_000_000,
    "layers": LAYERS,
    "width": 2048,
    "vocab": 248_320,
    "parameters": 34_660_000_000,
    "weights": {"f32": 40_000_000, "q4_k": 15_900_000_000, "q8_0": 5_000_000_000},
    "quantisation": "q4_k, 4.83 bits a weight",
}
HOST = {"processor": "AMD Ryzen 9", "cores": 16, "memory_gb": 67.2, "system": "Linux 6.18.2"}
SETTINGS = dict.fromkeys(("lm_head_rows", "max_decode_tokens", "decode_topk"), 0) | {"gemma4_attn_scale": 0.0}
DEVICE = {
    "tier": "t2",
    "name": "Radeon AI PRO R9700",
    "arch": "gfx1201",
    "simulated": False,
    "profile": "",
    "kernel": "6.18.2",
    "firmware": "MEC 3100",
    "memory_bytes_per_second": 644.1e9,
    "memory_bytes": 34_208_743_424,
    "pci_id": "1002:7551",
}
NODES = 515  # of the decode graph of that class, fused
NOW = datetime.now(UTC).replace(microsecond=0)
SECONDS_A_TOKEN = 1 / 150


def past_timestamp(**span: float) -> str:
    """A time before now, as reports write it."""
    return (NOW - timedelta(**span)).isoformat()


def timed_runs(seconds: float, runs: int = 5, tokens: int = 128, seed: int = 0) -> list[list[float]]:
    """Runs of tokens that each take that many seconds on average, with the jitter of a device and its host."""
    dice, rows = random.Random(seed), []
    for number in range(runs):
        row = [1 + dice.gauss(0, 0.004) + 2e-5 * position for position in range(tokens)]
        scale = seconds * tokens / sum(row) * (1 + 1e-5 * (number - runs // 2))
        rows.append([round(scale * value, 9) for value in row])
    return rows


def scattered_runs(value: float, runs: int = 5, seed: int = 0) -> list[float]:
    """A realistic figure for every run: all different, with a median near `value`."""
    dice = random.Random(seed)
    return [value * (1 + 1e-4 * (number - runs // 2) + dice.uniform(-2e-5, 2e-5)) for number in range(runs)]


def sensor_readings(count: int = 9) -> list[dict[str, float]]:
    """Sensor samples of a card under load, every 0.6 s."""
    dice = random.Random(1)
    return [
        {
            "at_seconds": round(12 + 0.6 * number, 3),
            "gpu_clock_mhz": 2350.0 + dice.randint(-9, 9),
            "gpu_temperature_c": 60.0 + dice.randint(0, 2),
            "power_w": 240.0 + dice.randint(-4, 4),
        }
        for number in range(count)
    ]


def bench_report() -> dict[str, Any]:
    """150 tok/s on T2 of an R9700."""
    measure = {"tokens_per_second": 150.0, "slots": 1, "runs": timed_runs(SECONDS_A_TOKEN)}
    prompts = scattered_runs(0.5)
    prefill = {"tokens_per_second": 256.0, "prompt_tokens": 128, "runs": prompts}
    first = {"seconds": prompts[2] + 4e-5, "runs": [prompt + 4e-5 for prompt in prompts]}
    workload = {"slots": 1, "prompt_tokens": 128, "tokens": 128, "runs": 5, "warmup": 1, "nodes": NODES}
    return {
        "schema": "zinc-rt-report/1",
        "command": "perf bench",
        "started": past_timestamp(hours=2),
        "wall_seconds": 41.5,
        "device": dict(DEVICE),
        "model": copy.deepcopy(WHAT),
        "ordering": "canonical-1",
        "ctx": 4096,
        "shortcuts": [],
        "direct_compute_ops": NODES,
        "details": {
            "code": CODE,
            "host": dict(HOST),
            "settings": dict(SETTINGS),
            "workload": workload,
            "samples": sensor_readings(),
            "sampled": {"device": 5 * 128, "host": 5},
        },
        "results": [
            {"id": name, "kind": "bench", "tier": "t2", "status": "pass", "measure": item}
            for name, item in (("decode", measure), ("prefill", prefill), ("ttft", first))
        ],
    }


def validation_report() -> dict[str, Any]:
    """Every layer and logit of T2, bit-identical on the same device."""
    exact: dict[str, Any] = {"tier": "t2", "reference": "t_cpu", "status": "pass", "limit": {"bits": True}}
    device = {key: value for key, value in DEVICE.items() if key != "tier"}
    return {
        "schema": "zinc-rt-report/1",
        "command": "validate",
        "started": past_timestamp(hours=3),
        "wall_seconds": 600.0,
        "device": dict(DEVICE),
        "model": copy.deepcopy(WHAT),
        "ordering": "canonical-1",
        "shortcuts": [],
        "details": {
            "code": CODE,
            "host": dict(HOST),
            "settings": dict(SETTINGS),
            "jobs": {"m": {"tokens": 8, "steps": 2, "layers": [0, LAYERS, LAYERS]}},
            "devices": {
                "t2": {**device, "ordering": "canonical-1"},
                "t_cpu": {"name": "AMD Ryzen 9", "ordering": "canonical-1"},
            },
        },
        "results": [
            *(
                {
                    "id": f"m/t2/l_out-{layer}",
                    "kind": "layer",
                    "measure": {"equal_bits": True, "max_abs": 0.0, "nonfinite": 0},
                    **copy.deepcopy(exact),
                }
                for layer in range(LAYERS)
            ),
            {
                "id": "m/t2/logits",
                "kind": "logits",
                "measure": {"equal_bits": True, "positions": 10},
                **copy.deepcopy(exact),
            },
        ],
    }


def llama_bench_output(speed: float, run: int = 0) -> str:
    """The output of `llama-bench -o json` for one text generation test on the card."""
    row = {
        "build_commit": "0c1e57098",
        "build_number": 6900,
        "cpu_info": "AMD Ryzen 9",
        "gpu_info": "AMD Radeon AI PRO R9700 (RADV GFX1201)",
        "backends": "Vulkan",
        "model_filename": "M.gguf",
        "model_type": "qwen35moe 35B.A3B Q4_K - Medium",
        "model_size": 20_940_000_000,
        "model_n_params": 34_660_000_000,
        "n_gpu_layers": 99,
        "n_prompt": 0,
        "n_gen": 128,
        "test_time": f"2026-11-20T10:00:{10 + run}Z",
        "avg_ts": speed,
        "samples_ts": [speed],
    }
    return json.dumps([row])


def add_peer(bench: dict[str, Any], own_speeds: float = 150.0, peer_speeds: float = 160.0) -> dict[str, Any]:
    """The bench report with runs of llama-bench in addition to its own."""
    bench["results"] = [result for result in bench["results"] if result["id"] == "decode"]
    measured = bench["results"][0]["measure"]
    measured |= {"runs": timed_runs(1 / own_speeds), "tokens_per_second": own_speeds}
    pairs = [
        [one, other] for one, other in zip(compute_speeds(measured), scattered_runs(peer_speeds), strict=True)
    ]
    low = compute_ratio_interval(*zip(*pairs, strict=True))[1]
    ratio = statistics.geometric_mean(one / other for one, other in pairs)
    peer = {
        "program": "llama-bench",
        "sha256": "11" * 32,
        "kind": "ELF",
        "command": ["llama-bench", "-m", "M.gguf", "-p", "0", "-n", "128", "-r", "1", "-o", "json"],
        "outputs": [llama_bench_output(pair[1], run) for run, pair in enumerate(pairs)],
    }
    measure = {"ratio": ratio, "ratio_low": low, "pairs": pairs, "peer": peer}
    bench["results"].append({"id": "against", "tier": "t2", "reference": "llama-bench", "measure": measure})
    return bench


NATIVE_MODEL = {
    "digest": MODEL,
    "architecture": "qwen3",
    "size_bytes": 640_000_000,
    "layers": 28,
    "width": 1024,
    "vocab": 151_936,
    "parameters": 596_000_000,
    "weights": {"q8_0": 633_000_000},
}


def native_details(peer_speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The fields of a zinc-rt perf native report for host, model and peer: llama-bench, with a decode run in
    `outputs` for each of `peer_speeds`, in tok/s by setting.
    """
    outputs = []
    for setting, of_setting in peer_speeds.items():
        repack = "1" if setting == "repack" else "0"
        words = f"llama-bench -m /m/qwen3-0.6b-q8_0.gguf -p 128 -n 64 -r 1 -t 2 --repack {repack} -o json"
        for speed in of_setting:
            rows = [{"build_commit": "0c1e57098", "n_gen": n, "avg_ts": speed} for n in (0, 64)]
            outputs.append({"command": words.split(), "stdout": json.dumps(rows)})
    peer = {"program": "llama-bench", "sha256": "11" * 32, "kind": "ELF", "version": "6900", "outputs": outputs}
    return {"host": describe_host(), "models": {"qwen3-0.6b-q8_0": copy.deepcopy(NATIVE_MODEL)}, "llama_cpp": peer}


def record_report(folder: Path, *reports: dict[str, Any], record: bool = True) -> GateInput:
    """Record the reports in a history, note its head, and submit both to a gate."""
    history = folder / "history.jsonl"
    history.touch()
    offered = []
    for number, report in enumerate(reports):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(report))
        offered.append(ReportFile(path, report))
        if record:
            append_entry(history, report["command"], report, {})
    known = read(history)
    return GateInput(offered, (), known, MODEL, known.head if known.entries else "", CODE, host=HOST)


Change = Callable[[dict[str, Any], dict[str, Any]], Any]


DOT = re.compile(r"\.(?=[a-z_-]|\d+(?:\.|$))")  # a model's name has others


def set_field(path: str, value: Any, report: str = "bench") -> Change:
    """Set one field, for example "details.samples.0.power_w". A path that ends in "-" takes it away."""

    def change_report(bench: dict[str, Any], valid: dict[str, Any]) -> None:
        location: Any = bench if report == "bench" else valid
        *folders, last = DOT.split(path)
        for name in folders:
            location = location[int(name)] if isinstance(location, list) else location[name]
        if last.startswith("-"):
            del location[last[1:]]
        else:
            location[int(last) if isinstance(location, list) else last] = value

    return change_report


def decide_criterion(reports: GateInput, only: str = "decode", milestone: str = "M1") -> Result:
    with Lab() as lab:
        (result,) = evaluate(find_milestone(milestone), lab, reports, only=only)
    return result


def result_names(result: Result) -> set[str]:
    """Return the rules that rejected the report, as displayed to the user."""
    return {name for name in (*RULES, *AGAINST, *TIMED_RULES) if f"{name}: " in result.reason}
