"""A Driver whose device is in another process, started on demand and shared by name."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zlib import crc32

from zinc_rt.host.errors import UsageError
from zinc_rt.host.facts import flipped
from zinc_rt.host.files import cache_folder
from zinc_rt.host.sanitizer_rules import Severity
from zinc_rt.kmd.driver import ANONYMOUS, KernelToCompile, Mapping
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.driver.client_memory import InProcessMemory
from zinc_rt.sim.executions import KernelExecution, parse_execution
from zinc_rt.sim.interfaces import CodePlace, DeviceFinding, DevicePageFault, OtherAccess
from zinc_rt.sim.machine_options import DEFAULT_OPTIONS, MachineOptions
from zinc_rt.sim.serve import wire
from zinc_rt.sim.serve.interrupts import DeferredInterrupts
from zinc_rt.sim.serve.shared_pages import SharedPages
from zinc_rt.sim.serve.socket_path import DeviceLost, find_runtime_dir, lock_socket
from zinc_rt.sim.shader.run import crash
from zinc_rt.sim.stores import ObservedStore
from zinc_rt.sim.tables import amdgpu, drm, kfd
from zinc_rt.sim.tables.structs import Fields, decode_size_bytes, make_request_key

IOCTLS = {**kfd.IOCTLS, **drm.IOCTLS, **amdgpu.IOCTLS}
START_ATTEMPTS = 5
_USERPTR = {
    ("K", kfd.IOC_ALLOC_MEMORY_OF_GPU.number): ("mmap_offset", "size"),
    ("d", amdgpu.IOCTL_GEM_USERPTR.number): ("addr", "size"),
}


def start(name: str = "default", **options: Any) -> Path:
    """Return the socket of the device with this name and these options (of MachineOptions); start the device
    unless it runs. Devices with the same name but different options are different devices."""
    path = find_runtime_dir() / f"{name}{_format_suffix(options)}.sock"
    with lock_socket(path):
        if not _is_answering(path):
            path.unlink(missing_ok=True)
            _spawn(path, options)
    return path


def _format_suffix(options: dict[str, Any]) -> str:
    """Return the part of a device's name for its options; "" for the defaults."""
    usual, chosen = DEFAULT_OPTIONS.to_json(), _make_options(options)
    different = {key: value for key, value in chosen.items() if value != usual[key]}
    return f"-{crc32(json.dumps(different, sort_keys=True).encode()):08x}" if different else ""


def _make_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return all options of a device. Raise DeviceLost for an invalid value."""
    try:
        return MachineOptions(**options).to_json()
    except ValueError as error:
        raise DeviceLost(f"the simulated device did not start: {error}") from None


def _is_answering(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _spawn(path: Path, options: dict[str, Any]) -> None:
    words = [sys.executable, "-m", "zinc_rt.sim.serve.server", "--socket", str(path)]
    for name, value in options.items():
        if isinstance(value, bool):
            words += [f"--{name.replace('_', '-')}"] * value
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            words += [f"--{name.replace('_', '-')}", str(item)]
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # ^C of the client is not the device's
        text=True,
    )
    assert child.stdout is not None and child.stderr is not None
    line = child.stdout.readline()
    child.stdout.close()
    if not line:
        text = child.stderr.read().strip()
        child.wait()
        raise DeviceLost(f"the simulated device did not start: {text}")
    child.stderr.close()
    json.loads(line)
    threading.Thread(target=child.wait, daemon=True).start()  # no zombie


class SimClient:
    """System calls on a served device. One connection per thread; the device sees one process.

    `path`: the socket of a running device; otherwise the device with this name and these `options` (of
    MachineOptions) is used, and started if it does not run. Raise UsageError if a device at `path` differs in one
    of `options`. After the device has ended every call returns ENODEV at once.
    """

    simulated = True

    def __init__(self, path: Path | None = None, *, name: str = "default", **options: Any) -> None:
        self.path = path or Path()
        self._local = threading.local()
        self._interrupts = DeferredInterrupts()
        self._token: str | None = None
        self._lost = False
        self._expected: dict[str, Any] = {}  # options that the device must have
        self._end = "the simulated device's process has ended"
        self._host = LinuxDriver()
        self._memory = InProcessMemory()
        self._pages = SharedPages()
        self._mapped: dict[Mapping, int] = {}
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.open_fds: dict[int, str] = {}
        self.device: dict[str, Any] = {}
        if path is not None:
            every = _make_options(options)
            self._expected = {key: every[key] for key in options}
            self._open_connection()
        else:
            self._start(name, options)

    def _start(self, name: str, options: dict[str, Any]) -> None:
        """Connect. A device that is ending may accept a connection and then drop it; in this case start another
        one.
        """
        if flipped.get():
            options = {**options, "flip": list(dict.fromkeys((*options.get("flip", ()), *flipped.get())))}
        self._expected = _make_options(options)
        for attempt in range(START_ATTEMPTS):
            self.path = start(name, **options)
            try:
                self._open_connection()
                return
            except OSError as error:
                if attempt == START_ATTEMPTS - 1:
                    raise DeviceLost(f"the simulated device at {self.path} exited before it answered") from error
                self._lost = False
                time.sleep(0.05)

    @property
    def live_mappings(self) -> set[Mapping]:
        return self._host.live_mappings

    def _open_connection(self) -> socket.socket:
        result = getattr(self._local, "socket", None)
        if result is not None:
            return result
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
            wire.send(connection, wire.WireMessage({"token": self._token, "version": wire.VERSION}))
            hello = wire.receive(connection)
        except (OSError, wire.ConnectionClosed) as error:
            connection.close()
            raise self._make_lost_error() from error
        try:
            self._check_options(hello.header.get("options", {}))
        except UsageError:
            connection.close()
            raise
        self._token = hello.header["token"]
        self.device = hello.header["device"]
        self._local.socket = connection
        with self._lock:
            self._sockets.append(connection)
        return connection

    def _check_options(self, actual: dict[str, Any]) -> None:
        differ = [key for key, value in self._expected.items() if actual.get(key) != value]
        if differ:
            listed = ", ".join(f"{key} {actual.get(key)}, expected {self._expected[key]}" for key in differ)
            raise UsageError(
                f"the simulated device at {self.path} was started with different options: {listed}",
                next="end its other clients, or use another socket",
            )

    def _make_lost_error(self) -> OSError:
        if not self._lost:
            self._lost = True
            result = crash.keep_records(self.path, cache_folder() / "crashes")
            if result is not None:
                self._end += f" while waves ran ({result[1]}); what they ran is kept in {result[0]}"
        return OSError(errno.ENODEV, self._end)

    def _ask(self, header: dict[str, Any], body: bytes = b"", fds: Sequence[int] = ()) -> wire.WireMessage:
        with self._interrupts.defer():
            if self._lost:
                raise self._make_lost_error()
            connection = self._open_connection()
            try:
                wire.send(connection, wire.WireMessage(header, body, list(fds)))
                return wire.receive(connection)
            except (OSError, wire.ConnectionClosed) as error:
                raise self._make_lost_error() from error
            except BaseException:
                del self._local.socket  # an answer is still to come: the next request goes by another connection
                raise

    def _ask_checked(self, header: dict[str, Any]) -> wire.WireMessage:
        answer = self._ask(header)
        _raise_errno(answer)
        return answer

    # --- Driver ---

    def open(self, path: str, flags: int) -> int:
        fd = int(self._ask_checked({"op": "open", "path": path, "flags": flags}).header["fd"])
        self.open_fds[fd] = path
        return fd

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        size = decode_size_bytes(request)
        arrays: list[tuple[int, int, bool]] = []
        body, header = bytearray(arg[:size].ljust(size, b"\0")), {"op": "ioctl", "fd": fd, "request": request}
        command = IOCTLS.get(make_request_key(request))
        fds: list[int] = []
        if command is not None and command.layout is not None:
            record = command.layout.read(arg)
            for array in command.layout.list_pointers(record):
                if array.size_bytes > wire.MAX_ARRAY_BYTES:
                    continue  # unreadable: the device returns the kernel's error
                try:
                    content = self._memory.read(array.address, array.size_bytes)
                except OSError:
                    continue
                comes = array.array.way != "out"
                arrays.append((array.address, array.size_bytes, comes))
                body += content if comes else b""
            fds = self._convert_user_pages(request, record, header)
        header |= {"size": size, "arrays": arrays}
        answer = self._ask(header, bytes(body), fds)
        keep = min(len(arg), size)
        arg[:keep] = answer.body[:keep]
        index = size
        for address, length in answer.header.get("written", ()):
            self._memory.write(address, answer.body[index : index + length])
            index += length
        _raise_errno(answer)

    def _convert_user_pages(self, request: int, values: Fields, header: dict[str, Any]) -> list[int]:
        """Convert a USERPTR buffer's pages to shared memory first."""
        names = _USERPTR.get(make_request_key(request))
        if names is None or (
            names[0] == "mmap_offset" and not values["flags"] & kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR
        ):
            return []
        address, size = values[names[0]], values[names[1]]
        if names[0] == "mmap_offset":
            size = round_up(size, PAGE_BYTES)
        try:
            fd = self._pages.share(address, size)
        except OSError:
            return []  # none: the device returns EFAULT or EINVAL like the kernel
        header["pages"] = (address, size)
        return [fd]

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        if fd == ANONYMOUS:
            return self._host.mmap(fd, size_bytes, offset, prot, fixed_va)
        answer = self._ask_checked({"op": "mmap", "fd": fd, "size": size_bytes, "offset": offset})
        try:
            mapping = self._host.mmap(answer.fds[0], size_bytes, answer.header["offset"], prot, fixed_va)
        except OSError:
            self._ask_checked({"op": "munmap", "mapping": answer.header["mapping"]})
            raise
        finally:
            os.close(answer.fds[0])
        self._mapped[mapping] = answer.header["mapping"]
        return mapping

    def munmap(self, mapping: Mapping) -> None:
        self._host.munmap(mapping)
        number = self._mapped.pop(mapping, None)
        if number is not None and not self._lost:
            self._ask_checked({"op": "munmap", "mapping": number})

    def close(self, fd: int) -> None:
        self._ask_checked({"op": "close", "fd": fd})
        self.open_fds.pop(fd, None)

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        header = {"op": "poll", "fds": list(fds), "timeout_seconds": timeout_seconds}
        return list(self._ask_checked(header).header["ready"])

    def read_file(self, path: str) -> bytes:
        return self._ask_checked({"op": "read_file", "path": path}).body

    def list_dir(self, path: str) -> list[str]:
        return list(self._ask_checked({"op": "list_dir", "path": path}).header["names"])

    # --- beyond hardware ---

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        self.announce_all([(va, size_bytes, name)])

    def announce_all(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Announce many suballocations at once."""
        self._ask_checked({"op": "announce", "rows": list(rows)})

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Compile kernels that will be dispatched soon; return when this is done."""
        self._ask_checked({"op": "precompile", "kernels": [asdict(kernel) for kernel in kernels]})

    def discard(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, except where the host maps them."""
        self._ask_checked({"op": "discard", "va": va, "size": size_bytes})

    def discard_mapped(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, although the host maps them."""
        self._ask_checked({"op": "discard", "va": va, "size": size_bytes, "mapped": True})

    def initialised(self, va: int, size_bytes: int) -> bytes:
        """Return one bit for each byte, the first in the low bit: whether it is initialised."""
        return self._ask_checked({"op": "initialised", "va": va, "size": size_bytes}).body

    def set_watchpoint(self, va: int, size_bytes: int) -> None:
        """Record the waves that store to these bytes in `watchpoint_hits`, from the next dispatch on; size
        0: none."""
        self._ask_checked({"op": "set_watchpoint", "va": va, "size": size_bytes})

    def watchpoint_hits(self) -> list[ObservedStore]:
        rows = self._ask_checked({"op": "watchpoint_hits"}).header["hits"]
        return [ObservedStore(**{**row, "group": tuple(row["group"])}) for row in rows]

    def findings(self) -> list[DeviceFinding]:
        findings: list[DeviceFinding] = []
        while True:
            answer = self._ask_checked({"op": "findings", "since": len(findings)}).header
            findings += [_parse_finding(row) for row in answer["findings"]]
            if not answer["findings"] or len(findings) >= answer["count"]:
                return findings

    def executions(self) -> list[KernelExecution]:
        """Return the executions that completed since the last call, by kernel; empty unless the device counts them
        (`profile`).
        """
        return [parse_execution(row) for row in self._ask_checked({"op": "executions"}).header["executions"]]

    def tell_again(self) -> None:
        self._ask_checked({"op": "tell_again"})

    def tell_unfinished(self) -> None:
        self._ask_checked({"op": "tell_unfinished"})

    def dmesg(self) -> list[str]:
        """Return the last thousand lines of the kernel log."""
        return list(self._ask_checked({"op": "findings"}).header["dmesg"])

    def count_allocations(self) -> int:
        """Return how many allocations of HIP and of the HSA runtime the programs of this device made."""
        return int(self._ask_checked({"op": "findings"}).header["allocations"])

    def injected(self) -> dict[str, Any]:
        """Return what the injected faults did and what programs did afterwards (Injector.report)."""
        return dict(self._ask_checked({"op": "findings"}).header["injected"])

    def consulted(self, since: int = 0) -> tuple[int, list[str]]:
        answer = self._ask_checked({"op": "consulted", "since": since}).header
        return int(answer["period"]), list(answer["marks"])

    def counters(self) -> list[dict[str, Any]]:
        """Return the counters of each kernel since the device began (sim.shader.run.profile.KernelCounters)."""
        return list(self._ask_checked({"op": "counters"}).header["kernels"])

    def inject(self, name: str) -> None:
        self._ask_checked({"op": "inject", "name": name})

    def close_all(self) -> None:
        """End this client, like the exit of its process."""
        self._lost = True
        with self._lock:
            for socket in self._sockets:
                socket.close()
            self._sockets.clear()
        self.open_fds.clear()


def _parse_finding(row: dict[str, Any]) -> DeviceFinding:
    location, fault = row["place"], row.get("fault")
    if location is not None:
        other = location.get("other")
        other_access = OtherAccess(**_convert_group(other)) if other else None
        location = CodePlace(**{**_convert_group(location), "other": other_access})
    return DeviceFinding(
        **{
            **row,
            "severity": Severity(row["severity"]),
            "place": location,
            "fault": DevicePageFault(**fault) if fault else None,
        }
    )


def _convert_group(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "group": None if row["group"] is None else tuple(row["group"])}


def _raise_errno(answer: wire.WireMessage) -> None:
    if answer.header.get("errno"):
        raise OSError(answer.header["errno"], answer.header.get("message", ""))
