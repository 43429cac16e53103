"""The simulated machine as a Driver in this process. For a separate device process: sim.serve.client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from zinc_rt.kmd.driver import ANONYMOUS, KernelToCompile, Mapping
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.driver.host_mappings import map_host
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.executions import KernelExecution
from zinc_rt.sim.interfaces import DeviceFinding
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions
from zinc_rt.sim.memory.buffers import Bo
from zinc_rt.sim.stores import ObservedStore

POLL_SECONDS = 0.001


class SimDriver:
    """System calls of one process of `machine`. Without a machine it creates one with these `options` of
    MachineOptions and closes it in close_all(). Host mappings are real mappings of memfds, so reserved
    addresses are honoured."""

    simulated = True

    def __init__(self, machine: SimMachine | None = None, process: Process | None = None, **options: Any) -> None:
        self._owns = machine is None
        self.machine = machine or SimMachine(MachineOptions(**options))
        self.process = process or self.machine.create_process()
        self._host = LinuxDriver()
        self._mapped: dict[Mapping, Bo | None] = {}

    @property
    def open_fds(self) -> dict[int, str]:
        return {fd: file.path for fd, file in self.process.files.items()}

    @property
    def live_mappings(self) -> set[Mapping]:
        return self._host.live_mappings

    def open(self, path: str, flags: int) -> int:
        return self.machine.open(self.process, path, flags)

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        self.machine.ioctl(self.process, fd, request, arg)

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        if fd == ANONYMOUS:
            return self._host.mmap(fd, size_bytes, offset, prot, fixed_va)
        with self.machine.lock:
            shown = map_host(self.machine, self.process, fd, size_bytes, offset)
            try:
                mapping = self._host.mmap(shown.memory.fd, size_bytes, shown.offset, prot, fixed_va)
            except OSError:
                if shown.bo is not None:
                    shown.bo.remove_host_mapping()
                raise
            self._mapped[mapping] = shown.bo
        return mapping

    def munmap(self, mapping: Mapping) -> None:
        self._host.munmap(mapping)
        bo = self._mapped.pop(mapping, None)
        if bo is not None:
            bo.remove_host_mapping()

    def close(self, fd: int) -> None:
        self.machine.close_file(self.process, fd)

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self.machine.lock:
                files = self.process.files
                ready = [fd for fd in fds if fd in files and files[fd].readable]
            left = deadline - time.monotonic()
            if ready or left <= 0 or self.process.is_interrupted():
                return ready
            time.sleep(min(POLL_SECONDS, left))

    def read_file(self, path: str) -> bytes:
        return self.machine.tree.read(path)

    def list_dir(self, path: str) -> list[str]:
        return self.machine.tree.names(path)

    # --- beyond hardware: for reports and sanitizers ---

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        """Announce a suballocation [va, va + size_bytes); size 0 withdraws it."""
        self.announce_all([(va, size_bytes, name)])

    def announce_all(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Announce many suballocations at once, in every address space of the process."""
        with self.machine.lock:
            for file in self.process.list_drm_files():
                file.vm.announce_all(rows)

    def announce_allocation(self, va: int, size_bytes: int, room_bytes: int, name: str) -> None:
        """Announce an allocation of a client that does not know this device (GpuVm.announce_allocation); size 0
        withdraws it."""
        with self.machine.lock:
            for file in self.process.list_drm_files():
                if size_bytes:
                    self.machine.allocations += file.vm.announce_allocation(va, size_bytes, room_bytes, name)
                else:
                    file.vm.withdraw_allocation(va)

    def discard(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, except where the host maps them."""
        with self.machine.lock:
            for file in self.process.list_drm_files():
                file.vm.discard(va, size_bytes)

    def discard_mapped(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, although the host maps them."""
        with self.machine.lock:
            for file in self.process.list_drm_files():
                file.vm.discard_mapped(va, size_bytes)

    def initialised(self, va: int, size_bytes: int) -> bytes:
        """Return one bit for each byte, the first in the low bit: whether it is initialised."""
        with self.machine.lock:
            result = np.zeros(size_bytes, np.uint8)
            for file in self.process.list_drm_files():
                result |= file.vm.initialised(va, size_bytes)
        return np.packbits(result, bitorder="little").tobytes()

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Compile kernels that will be dispatched soon."""
        for file in self._drm_files():
            file.gpu.precompile(file.vm, kernels)

    def set_watchpoint(self, va: int, size_bytes: int) -> None:
        """Record the waves that store to these bytes in `watchpoint_hits`, from the next dispatch on; size
        0: none."""
        for file in self._drm_files():
            file.gpu.set_watchpoint(file.vm, va, size_bytes)

    def watchpoint_hits(self) -> list[ObservedStore]:
        """Return the stores to the watched bytes, in dispatch order."""
        return [
            watchpoint_hit for file in self._drm_files() for watchpoint_hit in file.gpu.watchpoint_hits(file.vm)
        ]

    def _drm_files(self) -> list[DrmFile]:
        with self.machine.lock:
            return self.process.list_drm_files()

    def findings(self) -> list[DeviceFinding]:
        return list(self.machine.findings)

    def executions(self) -> list[KernelExecution]:
        """Return the executions that completed since the last call, by kernel; empty unless the machine counts
        them (`profile`).
        """
        return [execution for gpu in self.machine.gpus for execution in gpu.executions()]

    def counters(self) -> list[dict[str, Any]]:
        """Return the counters of each kernel since the device began (sim.shader.run.profile.KernelCounters)."""
        return [asdict(item) for gpu in self.machine.gpus for item in gpu.profile()]

    def tell_again(self) -> None:
        for gpu in self.machine.gpus:
            gpu.tell_again()

    def tell_unfinished(self) -> None:
        for gpu in self.machine.gpus:
            gpu.tell_unfinished()

    def consulted(self, since: int = 0) -> tuple[int, list[str]]:
        return self.machine.consulted.take_since(since)

    def exit(self) -> None:
        """Perform the kernel's clean-up for the end of this process."""
        self.machine.end_process(self.process)
        for mapping, bo in list(self._mapped.items()):
            if bo is not None:
                bo.remove_host_mapping()
            self._mapped[mapping] = None

    def close_all(self) -> None:
        self.exit()
        if self._owns:
            self.machine.close()
