"""Engines that are Python packages: a script beside this file runs in their environment, which may not be ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from zinc_rt.compare.child import run
from zinc_rt.compare.peer import Outcome, Peer, Task

SCRIPTS = {  # peer -> the package it needs, the script
    "llama-cpp-python": ("llama_cpp", "llama_cpp_python_child.py"),
    "tinygrad": ("tinygrad", "tinygrad_child.py"),
}


def peers(pythons: Mapping[str, str]) -> list[Peer]:
    """`pythons`: by peer, the interpreter of an environment that has it; else this one, if it is here."""
    found = []
    for name, (package, script) in SCRIPTS.items():
        python = pythons.get(name)
        absent = None
        if python is None and find_spec(package) is None:
            absent = f"{package} is not installed here", f"--python {name}=/path/to/venv/bin/python"
        found.append(Peer(name, partial(_run, name, script, python or sys.executable), absent))
    return found


def _run(name: str, script: str, python: str, task: Task) -> Outcome:
    outcome = Outcome(name)
    path = task.folder / f"{name}.npz"
    words = [python, str(Path(__file__).with_name(script)), "--model", str(task.model), "--tokens", task.ids]
    words += ["--context", str(task.ctx or max(256, len(task.tokens), task.prompt_tokens + task.new_tokens + 1))]
    if task.values:
        words += ["--out", str(path)]
    if task.speed:
        words += ["--prompt-tokens", str(task.prompt_tokens), "--new-tokens", str(task.new_tokens)]
    ran = run(words, task.timeout_seconds)
    if not outcome.take(ran, name):
        return outcome
    try:
        said = json.loads(ran.stdout.splitlines()[-1])
        outcome.version, outcome.backend = str(said["version"]), str(said["backend"])
        outcome.prefill_tokens_per_second = said.get("prefill_tokens_per_second")
        outcome.decode_tokens_per_second = said.get("decode_tokens_per_second")
    except (ValueError, KeyError, IndexError, TypeError):
        outcome.failed, outcome.problem = True, f"{name}: no line of JSON at the end of what it printed"
        return outcome
    if task.values:
        with np.load(path) as arrays:
            outcome.logits = arrays["logits"]
            outcome.layers = dict(enumerate(arrays["l_out"])) if "l_out" in arrays else {}
    return outcome
