"""Clients that end at any point: the device drops what they did and ends with the last of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sim.hostile import KEPT_FILES
from support import Counts

from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.sim.serve.program import make_environment

CLIENTS = Path(__file__).parent / "clients"
PATIENCE_SECONDS = 60.0
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc)")
WAITING = """
import sys, threading
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.events import EventKind
from zinc_rt.sim.serve.client import SimClient
client = SimClient()
with KfdProcess(client) as process:
    gpu = process.open_gpu(find_gpus(client).gpus[0].node)
    gpu.create_queue(ring_bytes=1 << 16)
    if sys.argv[1] == "events":
        wait = lambda: process.events.wait([process.events.create(EventKind.SIGNAL)], 1e6)
    else:
        fd = client.open("/dev/dri/renderD128", 2)
        wait = lambda: client.poll([fd], 1e6)
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    print("waiting", flush=True)
    thread.join()
"""


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the devices' sockets, of this test alone; a socket's path has at most 107 bytes."""
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "zinc-rt"


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def left_behind(sockets: Path) -> list[str]:
    return sorted(path.name for path in sockets.iterdir() if path.name != "start.lock")


def find_processes(word: str) -> list[int]:
    """Return the processes, other than this one, whose command line contains the word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in b" ".join(words) and entry.name != str(os.getpid()):
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("kind", ["events", pytest.param("poll", marks=pytest.mark.rest)])
def test_device_ends_with_a_client_killed_in_an_endless_wait(kind: str, sockets: Path) -> None:
    client = subprocess.Popen([sys.executable, "-c", WAITING, kind], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None and client.stdout.readline() == "waiting\n"
    assert any(name.endswith(".sock") for name in left_behind(sockets))
    client.kill()
    client.wait()
    client.stdout.close()
    assert becomes_true(lambda: not left_behind(sockets)), left_behind(sockets)
    assert becomes_true(lambda: not find_processes(str(sockets)))


@needs_cc
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.rest)], ids=lambda item: item.name
)
def test_killed_command_leaves_no_program_device_or_folder(number: signal.Signals, sockets: Path) -> None:
    marker = f"sleep {1e5 + random.randrange(10**5)}"
    words = [sys.executable, "-m", "zinc_rt.cli", "sim", "--", "sh", "-c", f"echo up; exec {marker}"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None and command.stdout.readline() == "up\n"
    assert {Path(name).suffix for name in left_behind(sockets)} >= {".sock", ".files"}
    command.send_signal(number)
    assert command.wait(PATIENCE_SECONDS) == (-number if number == signal.SIGKILL else 128 + number)
    command.stdout.close()
    assert becomes_true(lambda: not find_processes(marker))
    assert becomes_true(lambda: not left_behind(sockets)), left_behind(sockets)
    assert becomes_true(lambda: not find_processes(str(sockets)))


@pytest.mark.rest
@needs_cc
def test_clients_killed_at_random_points_leave_nothing(sockets: Path, tmp_path: Path, slow_counts: Counts) -> None:
    """A program with memory, queues, user pages, threads and children; with --slow it is killed 1,000 times."""
    program, draw = tmp_path / "raw_kfd", random.Random(7)
    subprocess.run(["cc", "-O1", str(CLIENTS / "raw_kfd.c"), "-o", str(program), "-pthread"], check=True)
    watcher = SimClient()
    environment = make_environment(watcher, tmp_path / "files")
    started = time.monotonic()
    subprocess.run([program], env=environment, check=True, stdout=subprocess.DEVNULL)
    whole_seconds = time.monotonic() - started
    node = find_gpus(watcher).gpus[0].node
    assert node is not None
    [device] = [pid for pid in find_processes(str(sockets)) if pid != os.getpid()]
    used = "/sys/class/drm/renderD128/device/mem_info_vram_used"

    def count_files() -> int:
        return len(list(Path(f"/proc/{device}/fd").iterdir()))

    def count_shared_memory() -> int:
        return Path(f"/proc/{device}/maps").read_text().count("memfd:")

    def is_unused() -> bool:
        return int(watcher.read_file(used)) == 0

    assert becomes_true(is_unused)
    before, mapped = count_files(), count_shared_memory()
    for _ in range(slow_counts(8, 1000)):
        victim = subprocess.Popen([program], env=environment, stdout=subprocess.DEVNULL, process_group=0)
        time.sleep(draw.uniform(0, whole_seconds))
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
    assert becomes_true(is_unused), watcher.read_file(used)
    assert becomes_true(lambda: count_files() <= before + KEPT_FILES), (before, count_files())
    assert becomes_true(lambda: count_shared_memory() <= mapped + KEPT_FILES), (mapped, count_shared_memory())
    with KfdProcess(watcher) as process:
        process.open_gpu(node).create_queue(ring_bytes=1 << 16)
    watcher.close_all()
    assert becomes_true(lambda: not left_behind(sockets)), left_behind(sockets)
