"""Check deploy/ray_serve.py with two replicas on this machine: equal answers, streams, affinity, error
responses.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from check_kit import FOLDER, MODEL, check, post, print_result

EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "ray_serve.py"
START_SECONDS = 180
LONG = "One two three four five six seven eight nine ten. " * 4


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def open_url(path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    data = None if body is None else json.dumps({"model": MODEL, **body}).encode()
    headers["content-type"] = "application/json"
    return urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=60)


def post_completion(**body: Any) -> Any:
    session = body.pop("session", "")
    with open_url("/v1/completions", {"max_tokens": 8, "seed": 7, **body}, **{"x-session-id": session}) as answer:
        return json.load(answer)


def is_ready() -> bool:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and running.poll() is None:
        try:
            with open_url("/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(1)
    return False


port = free_port()
url = f"http://127.0.0.1:{port}"
environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
argv = [sys.executable, str(EXAMPLE), "--replicas", "2", "--tier", "t_cpu", "--ctx", "2048", "--port", str(port)]
with (FOLDER / "ray.log").open("w") as log:
    running = subprocess.Popen(argv, stdout=log, stderr=log, env=environment, start_new_session=True)
try:
    check("two replicas come up", is_ready(), (FOLDER / "ray.log").read_text()[-2000:])
    wanted = post("/v1/completions", prompt="Once", max_tokens=8, seed=7)["choices"][0]["text"]
    sessions = [f"session {number}" for number in range(6)]
    texts = {post_completion(prompt="Once", session=session)["choices"][0]["text"] for session in sessions}
    check("both give what one server gives", texts == {wanted}, texts)
    cached = []
    for number in range(6):
        for _ in range(2):
            usage = post_completion(prompt=f"{number} {LONG}", session="ada")["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    check("a prompt goes where its beginning is cached", all(cached), cached)
    with open_url("/v1/completions", {"prompt": "Once", "max_tokens": 8, "seed": 7, "stream": True}) as answer:
        lines = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    streamed = "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])
    check("a stream", streamed == wanted and lines[-1] == "[DONE]", lines)
    try:
        post_completion(prompt="Once", model="nobody")
    except urllib.error.HTTPError as error:
        check("a refusal is the server's", error.code == 404 and "model_not_found" in error.read().decode())
    else:
        check("a refusal is the server's", False)
finally:
    os.killpg(running.pid, signal.SIGTERM)
    try:
        running.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
print_result("ray")
