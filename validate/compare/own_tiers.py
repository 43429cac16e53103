"""This runtime's own tiers, each in a separate process, as listed in the registry."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.engine.devices import probe_tiers
from zinc_rt.host.version import __version__
from zinc_rt.validate.compare.child import run_child
from zinc_rt.validate.compare.peer import ComparedPeer, PeerOutcome, PeerTask

PROGRAM = (sys.executable, "-m", "zinc_rt.cli")


def list_tier_peers(device: str) -> list[ComparedPeer]:
    """Return every built tier. A tier that cannot run on the `device` has a reason."""
    tiers = []
    for row, answer in probe_tiers(device):
        if row.built:
            absent = None if answer.usable else (answer.why, answer.next or "zinc-rt devices says more")
            tiers.append(ComparedPeer(row.tier, partial(_run, row.tier, device), absent))
    return tiers


def _run(tier: str, device: str, task: PeerTask) -> PeerOutcome:
    row = registry.spec(tier)
    simulated = device == "sim" and row.simulable
    outcome = PeerOutcome(tier, f"zinc-rt {__version__}", simulated=simulated)
    where = [
        "--model",
        str(task.model),
        "--tier",
        tier,
        "--device",
        device if row.simulable or device.partition(":")[0] == tier else "auto",
    ]
    where += ["--ordering", task.ordering, *(["--ctx", str(task.ctx)] if task.ctx else [])]
    if task.values:
        _collect_values(outcome, task, where)
    if task.speed and not outcome.hung:
        _collect_speed(outcome, task, where)
    return outcome


def _collect_values(outcome: PeerOutcome, task: PeerTask, where: list[str]) -> None:
    path = task.folder / f"{outcome.peer}.npz"
    ran = run_child(
        [*PROGRAM, "logits", *where, "--tokens", task.ids, "--out", str(path), "--json", "-"], task.timeout_seconds
    )
    if not outcome.take(ran, "logits"):
        return
    report = json.loads(ran.stdout)
    outcome.backend, outcome.software = _describe_device(report), bool(report["device"].get("software"))
    with np.load(path) as arrays:
        outcome.logits = arrays["logits"]
        outcome.layers = dict(enumerate(arrays["l_out"]))


def _collect_speed(outcome: PeerOutcome, task: PeerTask, where: list[str]) -> None:
    load = ["--prompt-tokens", str(task.prompt_tokens), "--tokens", str(task.new_tokens), "--runs", str(task.runs)]
    ran = run_child([*PROGRAM, "perf", "bench", *where, *load, "--json", "-"], task.timeout_seconds)
    if not outcome.take(ran, "perf bench"):
        return
    report = json.loads(ran.stdout)
    outcome.backend = outcome.backend or _describe_device(report)
    outcome.software = bool(report["device"].get("software"))
    speeds = {
        result["id"]: result["measure"]["tokens_per_second"]
        for result in report["results"]
        if result["id"] != "ttft"
    }
    outcome.decode_tokens_per_second = speeds.get("decode")
    outcome.prefill_tokens_per_second = speeds.get("prefill")


def _describe_device(report: dict[str, Any]) -> str:
    device = report["device"]
    facts = [device.get("name", ""), device.get("kernel", ""), device.get("firmware", "")]
    return ", ".join(fact for fact in facts if fact)
