"""What a tenant notices of another one's attacks: the time from token to token of its stream, with and without.

    python3 ci/run.py bench perf/bench_attacks.py

A server in a process of its own, one stream after the other read here, the attacker in a third process. Calm and
attack alternate, so that a busy machine is slow in both; the noise is how far the calm halves lie apart.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from zinc_rt.serve.tenants.keys import new_key

MODEL = "qwen3-q"
TURNS, SECONDS = 3, 2.0  # of calm and of each attack
WORDS = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 250, "ignore_eos": True, "stream": True}
SERVE = str(Path(sys.executable).parent / "zinc-rt-serve")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server with two tenants: its URL, and each one's key."""
    made = {name: new_key(name) for name in ("alice", "mallory")}
    tenants = [
        f"  - {{id: {name}, slots_max: 4, keys: [{{id: {name}, sha256: {kept.sha256}}}]}}"
        for name, (_, kept) in made.items()
    ]
    lines = [f"models: [{{id: {MODEL}, path: {MODEL}, slots: 8}}]", "log: {level: error}", "tenants:", *tenants]
    (folder / "serve.yaml").write_text("\n".join(lines))
    line = [SERVE, "--config", str(folder / "serve.yaml"), "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1], {name: key for name, (key, _) in made.items()}
    finally:
        process.terminate()
        process.wait()


def gaps_ms(url: str, key: str, seconds: float) -> list[float]:
    """From one piece of an answer to the next, stream after stream."""
    found: list[float] = []
    until = time.monotonic() + seconds
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(headers=headers, timeout=60) as client:
        while time.monotonic() < until:
            with client.stream("POST", f"{url}/v1/completions", json=WORDS) as answer:
                last = 0.0
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        now = time.monotonic()
                        if last:
                            found.append(1000 * (now - last))
                        last = now
    return found


def wrong_keys(url: str, key: str) -> None:
    with httpx.Client() as client:
        while True:
            client.get(f"{url}/v1/models", headers={"authorization": "Bearer zrt_alice_" + "a" * 52})


def slow_bodies(url: str, key: str) -> None:
    where = httpx.URL(url)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 1000\r\n\r\n"
    )
    held: list[socket.socket] = []
    while True:
        while len(held) < 300:
            held.append(socket.create_connection((where.host, where.port)))
            held[-1].sendall(head.encode())
        for each in held:
            with suppress(OSError):
                each.send(b" ")
        time.sleep(0.1)


def posting(path: str, content: bytes) -> Callable[[str, str], None]:
    def post(url: str, key: str) -> None:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        with httpx.Client(headers=headers, timeout=60) as client:
            while True:
                client.post(f"{url}{path}", content=content)

    return post


def _body(**more: object) -> bytes:
    return json.dumps({"model": MODEL, "prompt": [5, 6], "max_tokens": 2, **more}).encode()


ATTACKS: dict[str, Callable[[str, str], None]] = {
    "wrong keys": wrong_keys,
    "300 slow bodies": slow_bodies,
    "8 MiB of text": posting("/v1/completions", _body(prompt="a" * 8_000_000)),
    "8 MiB of brackets": posting("/v1/completions", b"[" * 8_000_000),
    "a million ids": posting("/v1/completions", _body(prompt=[5] * 1_000_000)),
    "wide regex": posting("/v1/completions", _body(guided_regex="(a|b|c|d){1,5000}(x{1,3000}){1,3000}")),
    "a flood of requests": posting("/v1/completions", _body(prompt=[[5, 6]] * 60)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_bench_a_stream_beside_an_attack(attack: str, tmp_path: Path) -> None:
    calm: list[list[float]] = []
    under: list[float] = []
    with served(tmp_path) as (url, keys):
        gaps_ms(url, keys["alice"], 1.0)
        for _ in range(TURNS):
            calm.append(gaps_ms(url, keys["alice"], SECONDS))
            attacker = multiprocessing.Process(target=ATTACKS[attack], args=(url, keys["mallory"]), daemon=True)
            attacker.start()
            time.sleep(0.3)
            under += gaps_ms(url, keys["alice"], SECONDS)
            attacker.kill()
            attacker.join()
    p99 = [float(np.percentile(each, 99)) for each in calm]
    every = np.concatenate(calm)
    print(
        f"\n{attack}: token to token {np.median(every):.1f} ms, under it {np.median(under):.1f}; p99 "
        f"{np.percentile(every, 99):.1f} ({min(p99):.1f} to {max(p99):.1f} from turn to turn), "
        f"under it {np.percentile(under, 99):.1f}"
    )
