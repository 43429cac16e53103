"""Peers that are Python packages. A script in this folder runs in the package's environment, which may be a
different one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.validate.compare.child import run_child
from zinc_rt.validate.compare.peer import ComparedPeer, PeerOutcome, PeerTask

SCRIPTS = {  # peer -> the package it needs, the script
    "llama-cpp-python": ("llama_cpp", "llama_cpp_python_child.py"),
    "tinygrad": ("tinygrad", "tinygrad_child.py"),
    "transformers": ("transformers", "transformers_child.py"),
}


def list_python_peers(pythons: Mapping[str, str]) -> list[ComparedPeer]:
    """Return one peer per package. `pythons` maps peers to the interpreter of an environment with the package; the
    default is this interpreter, if the package is installed.
    """
    installed = []
    for name, (package, script) in SCRIPTS.items():
        python = pythons.get(name)
        absent = None
        if python is None and find_spec(package) is None:
            absent = f"{package} is not installed here", f"--python {name}=/path/to/venv/bin/python"
        installed.append(ComparedPeer(name, partial(_run, name, script, python or sys.executable), absent))
    return installed


def _run(name: str, script: str, python: str, task: PeerTask) -> PeerOutcome:
    """Measure values and speed in separate processes, so that a failure of one does not affect the other."""
    outcome = PeerOutcome(name)
    context = task.ctx or max(256, len(task.tokens), task.prompt_tokens + task.new_tokens + 1)
    words = [python, str(Path(__file__).with_name(script)), "--model", str(task.model), "--tokens", task.ids]
    words += ["--context", str(context)]
    path = task.folder / f"{name}.npz"
    if task.values and _run_child(outcome, [*words, "--out", str(path)], task, f"{name}, values") is not None:
        with np.load(path) as arrays:
            outcome.logits = arrays["logits"]
            outcome.layers = dict(enumerate(arrays["l_out"])) if "l_out" in arrays else {}
    if task.speed and not outcome.hung:
        load = ["--prompt-tokens", str(task.prompt_tokens), "--new-tokens", str(task.new_tokens)]
        output = _run_child(outcome, [*words, *load], task, f"{name}, speed") or {}
        outcome.prefill_tokens_per_second = output.get("prefill_tokens_per_second")
        outcome.decode_tokens_per_second = output.get("decode_tokens_per_second")
    return outcome


def run_values(
    outcome: PeerOutcome, python: str, task: PeerTask, tokens: str, context: int
) -> dict[str, np.ndarray]:
    """Return what transformers_child.py computes for prompts such as 1,2;3,4: `logits` f32 [T, V] of the first
    one, `last` f32 [N, V] after the others. Empty after a failure, which `outcome` describes.
    """
    script, path = Path(__file__).with_name(SCRIPTS["transformers"][1]), task.folder / "transformers.npz"
    words = [python, str(script), "--model", str(task.model), "--tokens", tokens, "--context", str(context)]
    if _run_child(outcome, [*words, "--out", str(path)], task, "transformers") is None:
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def _run_child(outcome: PeerOutcome, words: list[str], task: PeerTask, what: str) -> dict[str, Any] | None:
    """Return the line of JSON at the end of the output, or None if there is none."""
    ran = run_child(words, task.timeout_seconds)
    if not outcome.take(ran, what):
        return None
    try:
        output: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        outcome.version, outcome.backend = str(output["version"]), str(output["backend"])
    except (ValueError, LookupError, TypeError):
        outcome.failed = True
        outcome.problem = outcome.problem or f"{what}: no line of JSON at the end of what it printed"
        return None
    return output
