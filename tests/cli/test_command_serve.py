"""`zinc-rt serve` as a process: what it says, when it is ready, how signals end it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rest

LINE = [sys.executable, "-m", "zinc_rt.cli", "serve", "--tier", "t_cpu", "--threads", "1", "--port", "0"]
SECONDS = 60  # for what takes one or two, on a machine that does other things too


@contextmanager
def running_server(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that is ready, and its URL."""
    process = subprocess.Popen([*LINE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        output = process.stdout.readline()
        assert output.startswith("ready     http://127.0.0.1:"), output or process.communicate()
        yield process, output.split()[1]
    finally:
        process.kill()
        process.communicate()


def post(url: str, body: dict[str, Any]) -> Any:
    """An open answer to a body."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=SECONDS)


def test_serve_without_model_warns_of_random_weights_and_exits_cleanly() -> None:
    with running_server() as (process, url):
        with urllib.request.urlopen(f"{url}/health", timeout=SECONDS) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        _, output = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
    assert "qwen3-q, which ships with the package: its weights are random" in output
    assert "Traceback" not in output


def test_faster_ordering_is_named_on_a_cpu() -> None:
    """An embedded model has weights in Q8_0; in canonical-1-q8 nothing is faster."""
    for ordering, named in (("canonical-1", True), ("canonical-1-q8", False)):
        with running_server("--tier", "t_cpu_native", "--ordering", ordering) as (process, _):
            process.send_signal(signal.SIGTERM)
            _, output = process.communicate(timeout=SECONDS)
            assert ("canonical-1-q8 is faster" in output) == named


def test_address_in_use_is_reported() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = subprocess.run([*LINE[:-1], port], capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 2
    assert f"127.0.0.1:{port}: cannot listen: Address already in use" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "missing.gguf"), "missing.gguf"),
        (("--tier", "t9"), "t9"),
        (("--slots", "0"), "slots 0: expected 1 to 512"),
        (("--port", "70000"), "--port 70000: expected 0 to 65535"),
        (("--facts", "f.json"), "f.json"),
    ],
)
def test_unopenable_model_or_config_exits_with_message(words: tuple[str, ...], message: str) -> None:
    result = subprocess.run([*LINE, *words], capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 2
    assert message in result.stderr and "Traceback" not in result.stderr, result.stderr


def test_configuration_is_served_and_conflicting_option_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(
        "version: 1\nserver: {port: 1}\ndevice: {tier: t_cpu, threads: 1}\n"
        "models: [{id: small, path: qwen3-q, slots: 2}]\n"
    )
    line = [sys.executable, "-m", "zinc_rt.cli", "serve", "--config", str(file), "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        with urllib.request.urlopen(f"{url}/v1/models", timeout=SECONDS) as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["small"]
    finally:
        process.kill()
        process.communicate()
    result = subprocess.run([*line, "--slots", "3"], capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 2 and "--slots cannot be used with --config" in result.stderr
    file.write_text("version: 1\nmodels: [{id: a, pth: x}]\n")
    result = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)
    assert result.returncode == 2 and "serve.yaml:2: " in result.stderr and "path" in result.stderr
    assert "Traceback" not in result.stderr


def test_sigterm_drains_running_requests_and_rejects_new_ones() -> None:
    with running_server("--ctx", "256") as (process, url):
        body = {"model": "qwen3-q", "prompt": [5, 6], "max_tokens": 150, "ignore_eos": True, "stream": True}
        with post(f"{url}/v1/completions", body) as answer:
            assert answer.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            rest = answer.read()
        assert rest.rstrip().endswith(b"data: [DONE]")
        _, output = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, output
        assert "draining  1 request," in output


def test_second_signal_exits_immediately() -> None:
    with running_server("--ctx", "4096") as (process, url):
        body = {"model": "qwen3-q", "prompt": [5], "max_tokens": 4000, "ignore_eos": True, "stream": True}
        with post(f"{url}/v1/completions", body) as answer:
            assert answer.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            while not process.stderr.readline().startswith("draining"):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=SECONDS)
        assert process.returncode == 130
