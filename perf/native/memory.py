"""Measure the resident bytes and page faults that a model's engine adds to a process, in a separate process.

    python -m zinc_rt.perf.native.memory MODEL TIER ORDERING THREADS SLOTS CTX      prints one line of JSON

In a process that has computed before, reused freed memory would distort the measurement.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import NothingRan
from zinc_rt.host.machine import read_process_memory
from zinc_rt.mem.plan import count_buffer_bytes
from zinc_rt.model.gguf import read_gguf

SECONDS = 600.0
PROMPT = 32  # tokens, then as many are generated


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """`resident_bytes` and `major_faults` are differences from before the engine was opened to after its last
    token; `cache_bytes` is the size of its sequences' state.
    """

    resident_bytes: int
    cache_bytes: int
    major_faults: int


def measure_memory(model: Path, tier: str, ordering: str, threads: int, slots: int, ctx: int) -> EngineMemory:
    """Measure the memory that the engine of a model adds to this process."""
    gguf = read_gguf(model)
    before = read_process_memory()
    backend = open_backend(choose_tier(tier, "cpu"), ordering, threads=threads)
    with Engine(gguf, backend, ctx=ctx, slots=slots) as engine:
        tokens = [1 + number % 7 for number in range(PROMPT)]
        sequence = engine.open()
        engine.extend(sequence, tokens)
        for token in tokens:
            engine.extend(sequence, [token])
        after = read_process_memory()
        cache = sum(count_buffer_bytes(spec, {}) for spec in engine.graph("decode").by_role("state"))
    faults = (after.major_faults or 0) - (before.major_faults or 0)
    return EngineMemory(after.resident_bytes - before.resident_bytes, cache, faults)


def measure_in_child(model: Path, tier: str, ordering: str, threads: int, slots: int, ctx: int) -> EngineMemory:
    """Measure the engine's memory in a separate process. Raise NothingRan with the end of the program's output."""
    argument = (str(model), tier, ordering, str(threads), str(slots), str(ctx))
    words = [sys.executable, "-m", "zinc_rt.perf.native.memory", *argument]
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NothingRan(f"memory of {model.name}: not measured within {SECONDS:g} s") from None
    if result.returncode != 0:
        raise NothingRan(f"memory of {model.name}: {result.stderr.strip().rpartition(chr(10))[2]}")
    return EngineMemory(**json.loads(result.stdout))


if __name__ == "__main__":
    model, tier, ordering, *numbers = sys.argv[1:]
    threads, slots, ctx = map(int, numbers)
    print(json.dumps(asdict(measure_memory(Path(model), tier, ordering, threads, slots, ctx))))
