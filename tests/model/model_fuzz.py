"""Runs tiny models with damaged metadata and tensors: `python model_fuzz.py COUNT SEED`.

test_model_fuzz.py runs it. Every file is a valid GGUF; what it says may be wrong, missing or absurd. Prints one
JSON line of counts when every model ran or was refused with a ZincError. Anything else (another exception, over
20 s, memory) ends the process with the case's seed and what was damaged.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
from zinc_rt.golden.tiny_models.writer import ModelContent, build_tiny, write_content
from zinc_rt.host.errors import ZincError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer

EXTRA_MEMORY_BYTES = 2 << 30
TIME_LIMIT_SECONDS = 20
UNKIND: tuple[object, ...] = (0, 1, 3, 7, 1 << 31, (1 << 32) - 1, 0.0, -1.0, 1e30, float("nan"), float("inf"))
UNKIND += ("text", "", True, False, [1], [0] * 100, [-1, 2, 3], ["a"])


def change_slightly(value: object, rng: random.Random) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return rng.choice(UNKIND)
    return rng.choice(
        (value * 2, value // 2 if isinstance(value, int) else value / 2, value + 1, rng.choice(UNKIND))
    )


RESHAPED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda values: np.ascontiguousarray(values.T),
    "one row fewer": lambda values: values[:-1] if len(values) > 1 else np.concatenate([values, values]),
    "one column fewer": lambda values: (
        np.ascontiguousarray(values[..., :-1]) if values.shape[-1] > 1 else values[None]
    ),
    "flat": lambda values: values.reshape(-1),
    "deeper": lambda values: values[None, None],
    "NaN": lambda values: np.full_like(values, np.nan),
    "huge": lambda values: values * np.float32(1e20),
}


def damage_content(content: ModelContent, rng: random.Random) -> tuple[ModelContent, str]:
    metadata, tensors = dict(content.metadata), dict(content.tensors)
    extra = dict(content.vocabulary.extra)
    result = []
    for _ in range(rng.choice((1, 1, 2))):
        where = rng.choices(("key gone", "key", "tensor gone", "tensor", "vocabulary"), (15, 50, 10, 15, 10))[0]
        key = rng.choice(list(metadata))
        name = rng.choice(list(tensors))
        if where == "key gone":
            del metadata[key]
            result.append(f"no {key}")
        elif where == "key":
            metadata[key] = change_slightly(metadata[key], rng)
            result.append(f"{key} = {metadata[key]!r}")
        elif where == "tensor gone":
            del tensors[name]
            result.append(f"no {name}")
        elif where == "tensor":
            how = rng.choice(list(RESHAPED))
            tensors[name] = RESHAPED[how](tensors[name])
            result.append(f"{name} {how}")
        else:
            key = rng.choice(list(extra))
            extra[key] = rng.choice((0, -0.5, 10**6, "x", True, [1]))
            result.append(f"{key} = {extra[key]!r}")
    vocabulary = dataclasses.replace(content.vocabulary, extra=extra)
    return dataclasses.replace(content, metadata=metadata, tensors=tensors, vocabulary=vocabulary), ", ".join(
        result
    )


def run_case(seed: int, path: Path) -> tuple[str, str]:
    """(how it ended, what was damaged); raises what is no ZincError."""
    rng = random.Random(seed)
    architecture = list(ARCHITECTURES)[seed % len(ARCHITECTURES)]
    content, result = damage_content(
        build_tiny(architecture, seed=1, hidden=32, heads=2, kv_heads=1, vocab=400), rng
    )
    try:
        write_content(path, content, quant=rng.choice(("f32", "q8_0")))
    except Exception:  # the writer is not what is tested: a list of mixed types, a number out of range
        return "unwritable", result
    try:
        model = read_gguf(path)
        ids = Tokenizer.from_metadata(model.metadata).encode("The quick brown fox")
        with Engine(model, CpuBackend("float32-dequant")) as engine:
            logits = engine.forward([token % 300 for token in ids] or [0])
    except ZincError as refused:
        return type(refused).__name__, result
    except BaseException as error:
        raise RuntimeError(f"seed {seed}, {architecture}: {result}") from error
    return "ran" if np.isfinite(logits).all() else "ran, not finite", result


def too_slow(signal_number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a model took more than {TIME_LIMIT_SECONDS} s")


def main() -> None:
    count, first_seed = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")  # overflow in damaged arithmetic is expected
    in_use_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (in_use_bytes + EXTRA_MEMORY_BYTES,) * 2)
    signal.signal(signal.SIGALRM, too_slow)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first_seed, first_seed + count):
            signal.alarm(TIME_LIMIT_SECONDS)
            path = Path(folder, f"{seed}.gguf")
            outcomes[run_case(seed, path)[0]] += 1
            signal.alarm(0)
            path.unlink(missing_ok=True)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
