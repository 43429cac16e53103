"""Hostile processes on one served device, and a healthy one beside them that goes on checking its results.

    PYTHONPATH=tests python -m sim.hostile --minutes 10 --processes 8 [--seed 1]

Every hostile life opens the device and then does what comes: ioctls of any bytes, packets of any words in PM4,
SDMA and AQL queues, waves of any code, mappings and their ends in any order, messages that are none; and it dies
without a word. What it must not do: end the device, leave memory, files or shared memory behind, or hold up or
change what others compute. Exit code: 0 all that held, 1 it did not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sim import outsider
from sim.outsider import (
    AQL_QUEUE,
    COMPUTE_QUEUE,
    EXECUTABLE,
    PAGE,
    PUBLIC,
    SDMA_QUEUE,
    SYSTEM,
    VRAM,
    WRITABLE,
    Outsider,
)

KEPT_FILES = 32  # what the last dispatch of a process that is gone had mapped stays until the next one
PATIENCE_SECONDS = 30.0  # of the healthy one: its queues share two cores with eight that spin
ACTS = 60  # of a life, at most
EDGES = (0, 1, 2, PAGE - 1, PAGE, 1 << 31, (1 << 32) - 1, 1 << 47, 1 << 63, (1 << 64) - 1)
OPCODES = bytes.fromhex("101215 1E2228 373C3F 404649 505876 93D0D1")
SET_SH_REG, DISPATCH_DIRECT = 0x76, 0x15
END_PROGRAM = 0xBFB00000


@dataclass
class HostileVerdict:
    """The observations of the run; `wrong` is empty if everything was correct."""

    minutes: float = 0.0
    lives: int = 0  # hostile connections, as many as processes counted
    checks: int = 0  # results of the healthy client, all right
    slowest_check_seconds: float = 0.0
    rss_mib: tuple[float, float] = (0.0, 0.0)  # of the device: after the first tenth, at the end without hostiles
    files: tuple[int, int] = (0, 0)  # its open files, before the first and after the last hostile life
    findings: int = 0
    wrong: list[str] = field(default_factory=list)


# --- a hostile life


def random_number(random_: random.Random, known_values: list[int], bits: int) -> int:
    kind = random_.randrange(4)
    if kind == 0:
        return random_.choice(EDGES) % (1 << bits)
    if kind == 1 and known_values:
        return (random_.choice(known_values) + random_.choice((0, 0, 0, 8, -8, PAGE))) % (1 << bits)
    return random_.getrandbits(bits) if kind == 2 else random_.randrange(16)


def send_random_ioctl(client: Outsider, random_: random.Random, known_values: list[int]) -> None:
    kind = random_.choice("KKdd")
    numbers = range(1, 0x28) if kind == "K" else (*range(0x40, 0x58), *range(0x10), 0x2D, 0x2E, *range(0xBF, 0xD0))
    size = random_.choice((0, 4, 8, 16, 24, 32, 40, 64, 96, 104))
    body = b"".join(random_number(random_, known_values, 32).to_bytes(4, "little") for _ in range(size // 4))
    if (kind, which := random_.choice(numbers)) in (("K", 0x0C), ("d", 0xC3), ("d", 0xCA)):
        body = body[:16].ljust(size, b"\0")  # no time-out: nobody waits for ever
    array = random_.choice((b"", random_.randbytes(16), client.gpu_id.to_bytes(4, "little") * 4))
    fd = client.kfd if kind == "K" else client.drm
    client.ioctl(3 << 30 | size << 16 | ord(kind) << 8 | which, body, 0x7000, array, fd=fd)


def random_packets(random_: random.Random, known_values: list[int]) -> list[int]:
    words: list[int] = []
    for _ in range(random_.randrange(1, 12)):
        length = random_.randrange(1, 10)
        opcode = random_.choice(OPCODES) if random_.random() < 0.8 else random_.randrange(256)
        words.append(
            3 << 30 | (length - 1) << 16 | opcode << 8 | random_.choice((0, 0, 2, random_.randrange(256)))
        )
        words += [random_number(random_, known_values, 32) for _ in range(length)]
    return words


def random_waves(random_: random.Random, code: outsider.OutsideBuffer) -> list[int]:
    """A dispatch of random words, with registers mostly taken from a kernel."""
    assert code.host is not None
    start = random_.randrange(0, 8) * 256
    program = [random_.choice((random_.getrandbits(32), 0x7E000280 | random_.getrandbits(9) << 9, 0xBF800000))
               for _ in range(random_.randrange(1, 40))]  # fmt: skip
    if random_.random() < 0.1:
        program.append(0xBFA00000 | (-len(program) - 1 & 0xFFFF))  # s_branch to the start: for ever
    code.host[start : start + 4 * len(program) + 4] = struct.pack(f"<{len(program) + 1}I", *program, END_PROGRAM)
    words = []
    resources = [random_.choice((usual, random_.getrandbits(32))) for usual in (0x0AF, 0x90)]
    for register, values in (
        (0x20C, [(code.va + start >> 8) & 0xFFFFFFFF, code.va + start >> 40]),
        (0x212, resources),
        (0x207, [random_.choice((1, 32, 64, 1024, random_.getrandbits(16))), 1, 1]),
        (0x240, [random_.getrandbits(32) for _ in range(4)]),
    ):
        words += [3 << 30 | len(values) << 16 | SET_SH_REG << 8 | 2, register, *values]
    groups = [random_.choice((1, 2, 5, random_.getrandbits(16))), 1, 1]
    return [*words, 3 << 30 | 3 << 16 | DISPATCH_DIRECT << 8 | 2, *groups, 0x8001 | random_.choice((0, 1 << 15))]


def random_mapping_end(client: Outsider, random_: random.Random) -> None:
    buffer = random_.choice(client.buffers)
    request = random_.choice((outsider.UNMAP, outsider.MAP, outsider.FREE))
    if request == outsider.FREE:
        client.ioctl(request, struct.pack("<Q", buffer.handle))
    else:
        client.on_gpu(request, buffer)


def send_nonsense(client: Outsider, random_: random.Random) -> None:
    header = random_.choice((
        {"op": "ioctl"}, {"op": "mmap", "fd": -1, "size": 1 << 62, "offset": -1}, {"op": "munmap", "mapping": 99},
        {"op": "close", "fd": random_.randrange(9)}, {"op": "discard", "va": 1 << 63, "size": -5}, {"op": 7},
        {"op": "ioctl", "fd": client.kfd, "request": -1, "size": -8, "arrays": [[0, -1, True]]},
        {"op": "announce", "rows": [[random_.getrandbits(48), random_.getrandbits(40), "x" * 99]] * 50},
    ))  # fmt: skip
    client.wire.ask(**header)


def run_life(path: Path, random_: random.Random) -> None:
    client = Outsider(path)
    client.wire.socket.settimeout(20)
    buffers = [client.alloc(16 * PAGE, VRAM | PUBLIC | WRITABLE | EXECUTABLE), client.alloc(4 * PAGE, SYSTEM)]
    kinds = random_.sample((COMPUTE_QUEUE, SDMA_QUEUE, AQL_QUEUE), random_.randrange(1, 4))
    queues = []
    for kind in kinds:
        with contextlib.suppress(OSError):
            queues.append((kind, client.queue(kind)))
    known = [client.gpu_id, client.kfd, client.drm, *(item.queue_id for _, item in queues)]
    for buffer in buffers:
        known += [buffer.va & 0xFFFFFFFF, buffer.va >> 32, buffer.handle]
    for _ in range(random_.randrange(ACTS)):
        act = random_.randrange(10)
        with contextlib.suppress(OSError, AssertionError, struct.error, KeyError):
            if act < 3:
                send_random_ioctl(client, random_, known)
            elif act < 8 and queues:
                kind, queue = random_.choice(queues)
                if kind == COMPUTE_QUEUE and random_.random() < 0.5:
                    queue.submit(random_waves(random_, buffers[0]))
                elif kind == COMPUTE_QUEUE:
                    queue.submit(random_packets(random_, known))
                else:
                    queue.submit([random_number(random_, known, 32) for _ in range(random_.randrange(1, 64))])
            elif act == 8:
                random_mapping_end(client, random_)
            else:
                send_nonsense(client, random_)
        if random_.random() < 0.05:
            time.sleep(random_.random() / 10)
    if random_.random() < 0.2:  # bytes that are no message
        client.wire.socket.sendall(random_.randbytes(random_.randrange(1, 200)))
    if random_.random() < 0.1:
        os.kill(os.getpid(), signal.SIGKILL)
    client.wire.socket.close()


def run_hostile(path: Path, seed: int) -> int:
    """Runs until it is killed or its connection is closed."""
    random_ = random.Random(seed)
    lives = 0
    while True:
        try:
            run_life(path, random_)
        except (ConnectionRefusedError, FileNotFoundError):
            return 1
        except (OSError, ValueError, struct.error, AssertionError, KeyError):
            pass  # refused, or cut off: the next life begins
        lives += 1
        print(lives, flush=True)


# --- the healthy one


class HealthyClient:
    """Repeat a fill by the command processor and a copy by the DMA engine, and check every byte."""

    def __init__(self, path: Path) -> None:
        self.client = Outsider(path)
        self.compute, self.sdma = self.client.queue(COMPUTE_QUEUE), self.client.queue(SDMA_QUEUE)
        self.data = self.client.alloc(4 * PAGE, SYSTEM)
        self.turn = 0

    def check(self) -> str:
        """ "" where it came out right, else what did not."""
        self.turn += 1
        data, value = self.data, self.turn * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        self.compute.submit(outsider.release_mem(data.va, value))
        self.compute.submit(outsider.release_mem(data.va + 64, self.turn))
        self.sdma.submit([
            *outsider.sdma_poll_at_least(data.va + 64, self.turn), *outsider.sdma_copy(data.va + PAGE, data.va, 8),
            *outsider.sdma_fence(data.va + 128, self.turn),
        ])  # fmt: skip
        late = time.monotonic() + PATIENCE_SECONDS
        while data.u64(128) & 0xFFFFFFFF != self.turn:
            if time.monotonic() > late:
                return f"turn {self.turn}: no fence within {PATIENCE_SECONDS} s ({data.u64(64)}, {data.u64(128)})"
            time.sleep(0.0005)
        got = data.u64(PAGE)
        return "" if got == value else f"turn {self.turn}: 0x{got:x} was copied, not 0x{value:x}"


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


def file_count(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def open_file_names(pid: int) -> str:
    names = Counter(path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir())
    return ", ".join(f"{count} {name}" for name, count in names.items())


def run_clients(minutes: float, processes: int, seed: int, folder: Path) -> HostileVerdict:
    verdict = HostileVerdict()
    path, log = folder / "device.sock", folder / "device.log"
    words = [
        sys.executable,
        "-m",
        "zinc_rt.cli",
        "sim",
        "--socket",
        str(path),
        "--stay",
        "--time-scale",
        "0.05",
    ]
    with log.open("w") as output:
        device = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=output, text=True)
    assert device.stdout is not None and json.loads(device.stdout.readline()) == {"ready": str(path)}
    children: list[subprocess.Popen[str] | None] = [None] * processes
    counts = [folder / f"{n}.lives" for n in range(processes)]
    healthy, start = HealthyClient(path), time.monotonic()
    verdict.wrong += filter(None, [healthy.check()])
    alone = file_count(device.pid)
    settled = 0.0
    starts = 0
    result = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    while (now := time.monotonic()) < start + 60 * minutes and not verdict.wrong:
        for n, child in enumerate(children):
            if child is None or child.poll() is not None:
                starts += 1
                mine = [
                    sys.executable,
                    "-m",
                    "sim.hostile",
                    "--hostile",
                    str(path),
                    "--seed",
                    str(seed * 100003 + starts),
                ]
                with counts[n].open("a") as out:
                    children[n] = subprocess.Popen(
                        mine, stdout=out, stderr=subprocess.DEVNULL, env=result, text=True
                    )
        before = time.monotonic()
        try:
            wrong = healthy.check()
        except OSError as error:
            wrong = f"the healthy client: {error}"
        verdict.checks += not wrong
        verdict.slowest_check_seconds = max(verdict.slowest_check_seconds, round(time.monotonic() - before, 3))
        if wrong:
            verdict.wrong.append(wrong)
        if device.poll() is not None:
            verdict.wrong.append(f"the device ended with {device.returncode}: {log.read_text()[-2000:]}")
        elif not settled and now > start + 6 * minutes:
            settled = rss_mib(device.pid)
        time.sleep(0.01)
    verdict.minutes = round((time.monotonic() - start) / 60, 2)
    for child in children:
        if child is not None:
            child.kill()
            child.wait()
    verdict.lives = sum(len(count.read_text().split()) for count in counts if count.exists())
    if device.poll() is None:
        find_leftovers(device, healthy, verdict, settled, alone)
        device.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            device.wait(20)
        if device.poll() is None:
            verdict.wrong.append("the device does not end")
            device.kill()
            device.wait()
    if text := log.read_text().strip():
        verdict.wrong.append(f"the device wrote: {text[-2000:]}")
    return verdict


def find_leftovers(
    device: subprocess.Popen[str], healthy: HealthyClient, verdict: HostileVerdict, settled: float, baseline: int
) -> None:
    """Check that the resources of the hostile processes are freed after they exit."""
    late = time.monotonic() + 20
    while file_count(device.pid) > baseline + KEPT_FILES and time.monotonic() < late:
        time.sleep(0.1)
    verdict.files = baseline, file_count(device.pid)
    verdict.rss_mib = round(settled, 1), round(rss_mib(device.pid), 1)
    if verdict.files[1] > baseline + KEPT_FILES:
        verdict.wrong.append(
            f"{verdict.files[1]} open files of the device, {baseline} before: {open_file_names(device.pid)}"
        )
    try:
        verdict.findings = len(healthy.client.wire.request_or_raise(op="findings")["findings"])
        if wrong := healthy.check():
            verdict.wrong.append(f"alone again: {wrong}")
    except OSError as error:
        verdict.wrong.append(f"alone again: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hostile", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hostile:
        return run_hostile(args.hostile, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        verdict = run_clients(args.minutes, args.processes, args.seed, Path(folder))
    print(json.dumps(asdict(verdict), indent=1))
    print("FAIL" if verdict.wrong else "PASS")
    return bool(verdict.wrong)


if __name__ == "__main__":
    sys.exit(main())
