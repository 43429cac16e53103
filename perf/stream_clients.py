"""Clients of a server in separate processes: streams over SSE, each read to its end.

    python3 -m zinc_rt.perf.stream_clients http://127.0.0.1:8080 64 '{"model": "m", ...}'

Asks so many times at once, and prints a line of JSON: seconds to each stream's first event with text, and how many
events and bytes came in all. It speaks HTTP by itself, so that a client's own work is as little as it can be.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit


async def measure_stream(host: str, port: int, body: bytes) -> tuple[float, int, int]:
    """Return the seconds to the first event that is not a comment, events, bytes. Raise RuntimeError for an error
    response.
    """
    reader, writer = await asyncio.open_connection(host, port)
    start = time.perf_counter()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r} {(await reader.read(2000))!r}")
    first, events, size = 0.0, 0, 0
    async for line in reader:
        size += len(line)
        if line.startswith(b"data: "):
            events += 1
            first = first or time.perf_counter() - start
    writer.close()
    return first, events, size


async def run_clients(url: str, count: int, body: bytes) -> dict[str, object]:
    where = urlsplit(url)
    assert where.hostname and where.port
    ends = await asyncio.gather(*(measure_stream(where.hostname, where.port, body) for _ in range(count)))
    firsts, events, sizes = zip(*ends, strict=True)
    return {"first_seconds": sorted(firsts), "events": sum(events), "bytes": sum(sizes)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_clients(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()))))
