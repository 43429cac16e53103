"""The device in a process of its own: several clients, their deaths, its death."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kmd import unsent_ioctls

from zinc_rt.host.errors import UsageError
from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.sim.chips import CHIPS
from zinc_rt.sim.inject import BY_NAME, Injector
from zinc_rt.sim.interfaces import DeviceFinding
from zinc_rt.sim.profiles import LINUX_VERSIONS
from zinc_rt.sim.serve import client as served
from zinc_rt.sim.serve import operations
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.sim.serve.operations import ClientSession
from zinc_rt.sim.serve.server import format_listing
from zinc_rt.sim.serve.wire import MAX_HEADER_BYTES, WireMessage

NOP = 0xFFFF1000
IDLE_CPU_LIMIT = (
    0.06  # of one core, of a device with a queue and nothing to do; the goal is 0.02 on an idle machine
)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield


def run_nops(driver: Driver, count: int = 16, seconds: float = 10) -> bool:
    """Create a queue, submit NOPs, ring the doorbell; return whether the read pointer reached the end."""
    node = find_gpus(driver).gpus[0].node
    assert node is not None
    with KfdProcess(driver) as process:
        gpu = process.open_gpu(node)
        queue = gpu.create_queue(ring_bytes=1 << 16)
        words = queue.ring.host.view.cast("I")
        for index in range(count):
            words[index] = NOP
        del words
        ctypes.c_uint64.from_address(queue.wptr.host.address).value = count
        ctypes.c_uint64.from_address(queue.doorbell_address).value = count
        rptr = ctypes.c_uint64.from_address(queue.rptr.host.address)
        deadline = time.monotonic() + seconds
        while rptr.value != count and time.monotonic() < deadline:
            time.sleep(0.001)
        return rptr.value == count


def is_removed(path: Path, seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not path.exists()


@pytest.mark.usefixtures("device")
class TestServed:
    def test_packets_run_and_device_exits_with_its_last_client(self) -> None:
        first, second = SimClient(), SimClient()
        assert first.path == second.path and first.device["chip"] == "r9700"
        assert run_nops(first) and run_nops(second)
        assert not first.open_fds and not first.live_mappings
        first.close_all()
        third = SimClient()
        assert third.path == second.path and run_nops(third)
        third.close_all()
        second.close_all()
        assert is_removed(second.path)
        with pytest.raises(OSError) as caught:
            second.read_file("/proc/version")
        assert caught.value.errno == errno.ENODEV

    def test_killed_client_leaves_nothing_and_others_continue(self) -> None:
        watcher = SimClient()
        script = (
            "import sys, os\n"
            "from zinc_rt.sim.serve.client import SimClient\n"
            "from zinc_rt.kmd.discover import find_gpus\n"
            "from zinc_rt.kmd.kfd import KfdProcess\n"
            "from zinc_rt.kmd.transport import Placement\n"
            "driver = SimClient()\n"
            "gpu = KfdProcess(driver).open_gpu(find_gpus(driver).gpus[0].node)\n"
            "gpu.create_queue(ring_bytes=1 << 16)\n"
            "gpu.alloc(1 << 30, Placement.VRAM, 'big')\n"
            "print('up', flush=True)\n"
            "sys.stdin.read()\n"
        )
        victim = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert victim.stdout is not None and victim.stdout.readline() == "up\n"
        used = "/sys/class/drm/renderD128/device/mem_info_vram_used"
        assert int(watcher.read_file(used)) >= 1 << 30
        victim.kill()
        victim.wait()
        deadline = time.monotonic() + 10
        while int(watcher.read_file(used)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert int(watcher.read_file(used)) == 0
        assert run_nops(watcher)
        watcher.close_all()

    def test_crashed_device_gives_enodev_to_every_client_and_never_hangs(self) -> None:
        first, sleeper = SimClient(), SimClient()
        fd = sleeper.open("/dev/kfd", os.O_RDWR)
        event = kfd.CREATE_EVENT.new()
        sleeper.ioctl(fd, kfd.IOC_CREATE_EVENT.request, event.raw)
        errors: list[int | None] = []

        def wait_for_event() -> None:
            array = HostArray(bytes(kfd.EVENT_DATA.new(event_id=event["event_id"]).raw))
            wait = kfd.WAIT_EVENTS.new(events_ptr=array.address, num_events=1, timeout=60000)
            try:
                sleeper.ioctl(fd, kfd.IOC_WAIT_EVENTS.request, wait.raw)
            except OSError as error:
                errors.append(error.errno)

        thread = threading.Thread(target=wait_for_event)
        thread.start()
        time.sleep(0.1)
        first.inject("device-crash")
        with pytest.raises(Exception, match=r"gone|ended|ENODEV"):
            run_nops(first, seconds=0.5)
            first.read_file("/proc/version")
        thread.join(10)
        assert errors == [errno.ENODEV]
        for item in (first, sleeper):
            with pytest.raises(OSError) as caught:
                item.read_file("/proc/version")
            assert caught.value.errno == errno.ENODEV
        client = SimClient()  # the next one starts a fresh device
        assert run_nops(client)
        client.close_all()

    def test_user_pages_are_shared_in_place(self) -> None:
        driver = SimClient()
        node = find_gpus(driver).gpus[0].node
        assert node is not None
        with KfdProcess(driver) as process:
            gpu = process.open_gpu(node)
            buffer = gpu.alloc(8192, Placement.USERPTR, "mine")
            buffer.host.view[:4] = b"mine"
            assert bytes(buffer.host.view[:4]) == b"mine"
        driver.close_all()

    def test_client_cannot_shrink_memory_mapped_by_the_device(self) -> None:
        driver = SimClient()
        node = find_gpus(driver).gpus[0].node
        assert node is not None
        with KfdProcess(driver) as process:
            buffer = process.open_gpu(node).alloc(8192, Placement.GTT, "mine")
            number = buffer.host.address
            files = Path("/proc/self/map_files")
            span = f"{number:x}-{number + 8192:x}"
            if not os.access(files / span, os.W_OK):
                pytest.skip("/proc/self/map_files is not readable here")
            with (files / span).open("r+b") as memory, pytest.raises(PermissionError):
                os.ftruncate(memory.fileno(), 0)
        driver.close_all()

    def test_bad_pointer_is_efault_in_the_client(self) -> None:
        driver = SimClient()
        fd = driver.open("/dev/kfd", os.O_RDWR)
        for address in (4096, 0xFFFF_8000_0000_0000):
            wait = kfd.WAIT_EVENTS.new(events_ptr=address, num_events=1)
            with pytest.raises(OSError) as caught:
                driver.ioctl(fd, kfd.IOC_WAIT_EVENTS.request, wait.raw)
            assert caught.value.errno == errno.EFAULT
            assert wait["wait_result"] == unsent_ioctls.KFD_IOC_WAIT_RESULT_FAIL
        driver.close_all()

    @pytest.mark.rest(keep=1)
    @pytest.mark.parametrize(
        "noise", [b"\xff" * 64, bytes(13), b"GET / HTTP/1.1\r\n\r\n" * 9], ids=["ones", "zeros", "http"]
    )
    def test_malformed_input_closes_only_its_connection(self, noise: bytes) -> None:
        driver = SimClient()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(str(driver.path))
            stranger.sendall(noise)
            stranger.settimeout(10)
            with contextlib.suppress(ConnectionError):
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(1) == b""
        assert driver.read_file("/proc/version")
        driver.close_all()

    @pytest.mark.rest
    def test_idle_device_with_a_queue_sleeps(self) -> None:
        driver = SimClient()
        node = find_gpus(driver).gpus[0].node
        assert node is not None
        with KfdProcess(driver) as process:
            process.open_gpu(node).create_queue(ring_bytes=1 << 16)
            pid = _device_pid(driver.path)
            time.sleep(0.3)
            before, started = _cpu_seconds(pid), time.monotonic()
            time.sleep(1.0)
            share = (_cpu_seconds(pid) - before) / (time.monotonic() - started)
        assert share < IDLE_CPU_LIMIT, f"{share:.1%} of a core"
        driver.close_all()

    @pytest.mark.rest
    def test_options_reach_the_device_and_bad_ones_give_a_clear_error(self) -> None:
        driver = SimClient(name="other", chip="gfx1100", linux="6.12")
        assert driver.device["chip"] == "gfx1100"
        assert b"6.12" in driver.read_file("/proc/version")
        driver.close_all()
        with pytest.raises(served.DeviceLost, match="unknown chip 'nonsense'"):
            SimClient(name="bad", chip="nonsense")

    def test_options_are_part_of_the_devices_name_and_checked_by_its_clients(self) -> None:
        first, second = SimClient(name="d"), SimClient(name="d", reorder=1)
        assert first.path != second.path
        same = SimClient(second.path, reorder=1)
        with pytest.raises(UsageError, match="reorder 1, expected 2"):
            SimClient(second.path, reorder=2)
        for item in (first, second, same):
            item.close_all()

    @pytest.mark.rest
    def test_stale_socket_is_replaced(self) -> None:
        first = SimClient()
        os.kill(_device_pid(first.path), signal.SIGKILL)
        second = SimClient()
        assert run_nops(second)
        second.close_all()


def test_socket_directory_is_private_to_the_user(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = served.find_runtime_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(served.DeviceLost, match="0700"):
        served.find_runtime_dir()


def _device_pid(path: Path) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(str(path))
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.usefixtures("device")
def test_external_client_from_the_manual_runs(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("docs/simulated-device.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    path = served.start("page", chip="gfx1100")
    output = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert output.returncode == 0, output.stderr
    assert output.stdout.startswith("KFD 1.20\n") and "gfx_target_version 110000\n" in output.stdout


def test_listing_names_every_row() -> None:
    shown = format_listing()
    assert all(name in shown for name in (*CHIPS, *LINUX_VERSIONS, *BY_NAME))


@pytest.mark.rest
def test_findings_exceeding_one_message_are_split() -> None:
    result = [DeviceFinding(Severity.FINDING, "alignment", 0, number, "x" * 300) for number in range(60_000)]
    session = SimpleNamespace(
        driver=SimpleNamespace(findings=lambda: result),
        machine=SimpleNamespace(dmesg=[], allocations=0, injector=Injector([])),
    )

    def check_answer(header: dict[str, object]) -> WireMessage:
        answered = operations.answer(cast(ClientSession, session), WireMessage(header))
        assert len(json.dumps(answered.header)) < MAX_HEADER_BYTES
        return answered

    findings = SimClient.findings(cast(SimClient, SimpleNamespace(_ask_checked=check_answer)))
    assert [finding.position for finding in findings] == list(range(60_000))
