"""Recorded runs of the embedded models."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.backends.base import Backend
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf
from zinc_rt.trace.recorder import record
from zinc_rt.trace.records import Level

MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q")
PROMPT = [1, 7, 2, 9, 4]


def cpu_backend() -> Backend:
    return CpuBackend("canonical-1")


def run_steps(engine: Engine, steps: int = 2) -> None:
    """Run two sequences one after the other in one slot; state is zeroed between them."""
    for prompt in (PROMPT, PROMPT[:2]):
        sequence = engine.open()
        logits = engine.extend(sequence, prompt)
        for _ in range(steps):
            logits = engine.extend(sequence, [int(logits[-1].argmax())])
        engine.release(sequence)


def record_run(
    path: Path,
    model: str,
    level: Level = "inputs",
    *,
    backend: Backend | None = None,
    embed_weights: bool = False,
    steps: int = 2,
) -> Path:
    gguf = read_gguf(FOLDER / f"{model}.gguf")
    with (
        Engine(gguf, backend or cpu_backend(), ctx=32) as engine,
        record(engine, path, level, embed_weights=embed_weights, warn=lambda text: None),
    ):
        run_steps(engine, steps)
    return path
