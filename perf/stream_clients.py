"""Clients of a server in a process of their own: streams over SSE, each read to its end.

    python3 -m zinc_rt.perf.stream_clients http://127.0.0.1:8080 < bodies.json

Standard input is a JSON list of bodies of POST /v1/completions, all sent at once. One line of JSON is printed,
with a StreamTimes for each. It speaks HTTP by itself, so that a client's own work is as little as it can be.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """When the events of a stream came. `times_ms`: of each event before [DONE], counted from the request."""

    times_ms: list[float]

    @property
    def first_seconds(self) -> float:
        return self.times_ms[0] / 1000

    @property
    def gaps_ms(self) -> list[float]:
        """Return the time from each event to the next."""
        return [after - before for before, after in zip(self.times_ms, self.times_ms[1:], strict=False)]


def read_streams(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[StreamTimes]:
    """Send the bodies at once from another process, and return what came. Raise RuntimeError for an error
    response or a stream without events.
    """
    argv = [sys.executable, "-m", "zinc_rt.perf.stream_clients", url]
    result = subprocess.run(argv, input=json.dumps(bodies), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip().rpartition("\n")[2])
    streams = [StreamTimes(**one) for one in json.loads(result.stdout)]
    if not all(one.times_ms for one in streams):
        raise RuntimeError(f"{url}: a stream without events")
    return streams


async def _read_stream(host: str, port: int, body: bytes) -> StreamTimes:
    reader, writer = await asyncio.open_connection(host, port)
    start = time.perf_counter()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r} {(await reader.read(2000))!r}")
    times: list[float] = []
    async for line in reader:
        if line.startswith(b"data: {"):
            times.append(1000 * (time.perf_counter() - start))
    writer.close()
    return StreamTimes(times)


async def _read_all(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[StreamTimes]:
    where = urlsplit(url)
    assert where.hostname and where.port
    contents = [json.dumps(body).encode() for body in bodies]
    return await asyncio.gather(*(_read_stream(where.hostname, where.port, content) for content in contents))


if __name__ == "__main__":
    print(json.dumps([asdict(one) for one in asyncio.run(_read_all(sys.argv[1], json.load(sys.stdin)))]))
