"""Reads mutated GGUF files under a memory limit: `python gguf_fuzz.py COUNT SEED FILE...`.

test_gguf_fuzz.py runs it. Prints one JSON line of counts when every mutation ended as it may: read, or refused
with a ZincError. Anything else (another exception, over 2 s, memory) ends the process with the case's seed.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

from zinc_rt.host.errors import ZincError
from zinc_rt.model.gguf import GGUFFile, read_gguf

EXTRA_MEMORY_BYTES = 256 << 20
TIME_LIMIT_SECONDS = 2
UNKIND = (
    0,
    1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    (1 << 48) + 1,
    1 << 60,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)

Mutation = Callable[[random.Random, bytearray], None]


def truncate_data(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def truncate_header(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(min(len(data), 4096)) :]


def flip_bits(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[rng.randrange(min(len(data), rng.choice((64, 4096, len(data)))))] ^= 1 << rng.randrange(8)


def unkind_number(rng: random.Random, data: bytearray) -> None:
    """Overwrite a field that looks like a count or a length: 8 bytes with a small number."""
    end = min(len(data) - 8, 8192)
    for _ in range(200):
        index = rng.randrange(end)
        if 0 < int.from_bytes(data[index : index + 8], "little") < 4096:
            break
    width = rng.choice((4, 8))
    value = rng.choice((*UNKIND, len(data), len(data) + 1, len(data) - index)) & ((1 << 8 * width) - 1)
    data[index : index + width] = value.to_bytes(width, "little")


def unkind_counts(rng: random.Random, data: bytearray) -> None:
    index = rng.choice((4, 8, 16))  # version, tensor count, key count
    value = rng.choice((*UNKIND, rng.randrange(1 << 12)))
    data[index : index + 8] = value.to_bytes(8, "little")


def copy_range(rng: random.Random, data: bytearray) -> None:
    size = rng.randrange(1, 200)
    source, target = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[source : source + size]
    data[target : target + rng.choice((0, len(piece)))] = piece


def delete_range(rng: random.Random, data: bytearray) -> None:
    index = rng.randrange(min(len(data), 8192))
    del data[index : index + rng.randrange(1, 64)]


def add_noise(rng: random.Random, data: bytearray) -> None:
    index = rng.randrange(4, min(len(data), 8192))
    data[index : index + 32] = rng.randbytes(32)


MUTATIONS: tuple[Mutation, ...] = (
    truncate_data,
    truncate_header,
    flip_bits,
    unkind_number,
    unkind_counts,
    copy_range,
    delete_range,
    add_noise,
)


def look_at(model: GGUFFile, data: bytes) -> None:
    """Check that every view is inside the file and has the file's bytes."""
    for tensor in model.tensors.values():
        raw = tensor.data.reshape(-1).view(np.uint8)
        assert 0 < raw.nbytes <= len(data)
        assert not tensor.data.flags.writeable
        assert data.find(raw[:64].tobytes()) >= 0
        raw.sum(dtype=np.uint64)


def too_slow(signal_number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"reading took more than {TIME_LIMIT_SECONDS} s")


def address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    count, first_seed = int(sys.argv[1]), int(sys.argv[2])
    samples = [Path(name).read_bytes() for name in sys.argv[3:]]
    limit = address_space_bytes() + EXTRA_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, too_slow)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first_seed, first_seed + count):
            rng = random.Random(seed)
            data = bytearray(rng.choice(samples))
            for mutation in rng.choices(MUTATIONS, k=rng.choice((1, 1, 1, 2))):
                if len(data) > 64:
                    mutation(rng, data)
            path = Path(folder, f"{seed}.gguf")
            path.write_bytes(data)
            signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_SECONDS)
            try:
                look_at(read_gguf(path), bytes(data))
                outcomes["read"] += 1
            except ZincError as refused:
                outcomes[type(refused).__name__] += 1
            except BaseException:
                print(f"seed {seed}", file=sys.stderr)
                raise
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            path.unlink()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
