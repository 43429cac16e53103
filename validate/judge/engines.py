"""Start an engine for a judgement, wait until it answers, and stop it with everything that it started."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.validate.judge.engine_client import EngineClient, RequestError

READY_SECONDS = 300.0
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """How an engine is started. `words`: its command line for a model, a port and the number of slots.
    `settings`: option changes that `--sweep` tries, one at a time. `has_values`: layers.py can read the values of
    its graph.
    """

    name: str
    words: Callable[[str, int, int, int], list[str]]
    settings: tuple[tuple[str, ...], ...] = ()
    has_values: bool = False


def _llama_server_command(model: str, port: int, slots: int, ctx: int) -> list[str]:
    program = shutil.which("llama-server")
    if program is None:
        raise UsageError("llama-server is not on PATH", next="install llama.cpp, or give the URL of a server")
    return [program, "-m", model, "--port", str(port), "-c", str(ctx * slots), "-np", str(slots)]


def _own_server_command(model: str, port: int, slots: int, ctx: int) -> list[str]:
    words = [sys.executable, "-m", "zinc_rt.cli", "serve", "--model", model]
    return [*words, "--port", str(port), "--slots", str(slots), "--ctx", str(ctx)]


ENGINES = {
    "llama-server": EngineProgram(
        "llama-server",
        _llama_server_command,
        (
            ("-ngl", "0"), ("-fa", "off"), ("-fa", "on"), ("-ub", "64"), ("-ub", "2048", "-b", "2048"),
            ("-np", "1"),
            ("-ctk", "f32", "-ctv", "f32"), ("-ctk", "f16", "-ctv", "f16"), ("--no-cont-batching",), ("-t", "1"),
        ),
        has_values=True,
    ),
    "ours": EngineProgram(
        "ours", _own_server_command, (("--tier", "t_cpu"), ("--tier", "t_cpu_native"), ("--slots", "1"))
    ),
}  # fmt: skip


@contextmanager
def start_engine(
    program: EngineProgram,
    model: str,
    arguments: Sequence[str],
    *,
    slots: int,
    ctx: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Start the engine and yield its URL and its command line. `environment`: variables to add.

    Raises UsageError if the program is missing, InputError with its last line if it ends or does not answer.
    """
    port = _free_port()
    words = [*program.words(model, port, slots, ctx), *arguments]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=None if environment is None else {**os.environ, **environment},
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            if not _is_ready(url, child):
                log.seek(0)
                lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
                ended = child.poll()
                how = f"no answer within {READY_SECONDS:g} s" if ended is None else f"exit code {ended}"
                advice = f"run it alone: {shlex.join(words)}"
                raise InputError(f"{program.name}: {how}: {lines[-1][:200] if lines else ''}", next=advice)
            yield url, shlex.join(words)
        finally:
            _stop(child)


def _is_ready(url: str, child: subprocess.Popen[bytes]) -> bool:
    """Wait until a completion is answered: servers accept connections before the model is loaded."""
    end = time.monotonic() + READY_SECONDS
    client = EngineClient(url, timeout_seconds=READY_SECONDS)
    while time.monotonic() < end and child.poll() is None:
        with suppress(RequestError):
            listed = client.get("/v1/models")
            name = str((listed.get("data") or [{}])[0].get("id", ""))
            client.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
            return True
        time.sleep(0.1)
    return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_SECONDS)
            return


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
