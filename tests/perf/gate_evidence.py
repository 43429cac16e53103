"""A bench report and a validation that a gate accepts, for tests that spoil one thing in them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from zinc_rt.perf.evidence import Evidence
from zinc_rt.perf.gate import Given
from zinc_rt.perf.history import append, read

MODEL = "ab" * 32
CODE = "c0de" * 16
DEVICE = {
    "tier": "t2",
    "name": "Radeon AI PRO R9700",
    "arch": "gfx1201",
    "simulated": False,
    "profile": "",
    "kernel": "6.18.2",
    "firmware": "MEC 3100",
}
SECONDS_A_TOKEN = 1 / 150


def bench_report() -> dict[str, Any]:
    """150 tok/s on T2 of an R9700."""
    runs = [[SECONDS_A_TOKEN] * 128 for _ in range(5)]
    measure = {"tokens_per_second": 150.0, "slots": 1, "runs": runs}
    settings = dict.fromkeys(("lm_head_rows", "max_decode_tokens", "decode_topk"), 0) | {"gemma4_attn_scale": 0.0}
    samples = [{"gpu_clock_mhz": 2350.0, "gpu_temperature_c": 61.0, "power_w": 240.0} for _ in range(9)]
    return {
        "schema": "zinc-rt-report/1",
        "command": "perf bench",
        "started": "2026-11-20T10:00:00+00:00",
        "device": dict(DEVICE),
        "model": {"path": "M.gguf", "digest": MODEL, "architecture": "qwen35moe"},
        "ordering": "canonical-1",
        "ctx": 4096,
        "shortcuts": [],
        "direct_compute_ops": 812,
        "details": {
            "code": CODE,
            "settings": settings,
            "workload": {"slots": 1, "prompt_tokens": 128, "nodes": 812},
            "samples": samples,
        },
        "results": [{"id": "decode", "kind": "bench", "tier": "t2", "status": "pass", "measure": measure}],
    }


def validation() -> dict[str, Any]:
    """Every layer and logit of T2 to the bit, on the same device."""
    exact: dict[str, Any] = {"tier": "t2", "reference": "t_cpu", "status": "pass", "limit": {"bits": True}}
    return {
        "schema": "zinc-rt-report/1",
        "command": "validate",
        "started": "2026-11-20T09:00:00+00:00",
        "device": dict(DEVICE),
        "model": {"path": "M.gguf", "digest": MODEL, "architecture": "qwen35moe"},
        "shortcuts": [],
        "details": {
            "code": CODE,
            "devices": {"t2": {k: v for k, v in DEVICE.items() if k != "tier"}, "t_cpu": {}},
        },
        "results": [
            {"id": "m/t2/l_out-0", "kind": "layer", "measure": {"equal_bits": True}, **exact},
            {"id": "m/t2/logits", "kind": "logits", "measure": {"equal_bits": True}, **copy.deepcopy(exact)},
        ],
    }


def put_forward(folder: Path, *reports: dict[str, Any], record: bool = True) -> Given:
    """The reports recorded in a history and offered to a gate."""
    history = folder / "history.jsonl"
    history.touch()
    offered = []
    for number, report in enumerate(reports):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(report))
        offered.append(Evidence(path, report))
        if record:
            append(history, report["command"], report, {})
    return Given(offered, (), read(history), MODEL, "", CODE)
