"""A simulated GPU that stays open for the launches of a Triton program."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.host.errors import CheckFailed
from zinc_rt.host.sanitizer_rules import CACHECHECK, choose_mode
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.kfd import KfdGpu, KfdProcess
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.launching.code_object import CodeImage, CodeKernel, read_code_object
from zinc_rt.launching.dispatch import KernelOnQueue
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.hostcall import HostcallBuffer, print_text
from zinc_rt.launching.kernarg import LaunchShape, Matched, Triple, pack, require_supported
from zinc_rt.launching.launch import LaunchStopped, refuse_unsimulated
from zinc_rt.launching.launch_findings import LaunchFindings, choose_tools
from zinc_rt.launching.located import strip_parameter_types
from zinc_rt.launching.source_lines import SourceLines, read_source_lines, shorten_path
from zinc_rt.launching.triton_memory import DeviceCopies, HostPointer
from zinc_rt.sim.serve.client import SimClient

TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ChipOptions:
    """A simulated chip and the checks of its kernels. `sanitizer` to `reverse_lanes`: see `launch`."""

    chip: str = DEFAULT_ARCH
    sanitizer: str = "full"
    tools: tuple[str, ...] | None = None
    coherence: str | None = None
    reorder: int | None = None
    reverse_lanes: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def checked(self) -> frozenset[str]:
        """The tools whose findings count. Raise UsageError for an unknown one."""
        return choose_tools(self.sanitizer, self.tools)

    def machine(self) -> dict[str, Any]:
        """Return the options of the simulated machine."""
        options: dict[str, Any] = {"chip": self.chip, "sanitizer": choose_mode(self.checked), "profile": True}
        if self.coherence is not None or CACHECHECK in (self.tools or ()):
            options["coherence"] = self.coherence or "caches"
        if self.reorder is not None:
            options["reorder"] = self.reorder
        if self.reverse_lanes:
            options["reverse_lanes"] = True
        return options


@dataclass(eq=False, slots=True)
class TritonKernelCode:
    """A compiled kernel. `digest`: SHA-256 of its code object. `buffer`: its code on the GPU opened in `epoch`; it
    is loaded again after a fault.
    """

    image: CodeImage
    kernel: CodeKernel
    digest: str
    buffer: DeviceBuffer | None = None
    epoch: int = 0

    @property
    def name(self) -> str:
        return strip_parameter_types(self.kernel.name)


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """The findings and remarks of a launch, and its counters: wave instructions and bytes, without LDS."""

    findings: tuple[FindingGroup, ...]
    remarks: tuple[FindingGroup, ...]
    instructions: int = 0
    bytes: int = 0


class _ReusedQueue(KernelOnQueue):
    """A queue for many launches: allocations of a launch are freed after it, and scratch memory is kept."""

    def __init__(self, gpu: KfdGpu, announce: Any) -> None:
        self._of_launch: list[DeviceBuffer] = []
        self._scratch: dict[tuple[int, int], tuple[int, int]] = {}
        self.hostcalls: HostcallBuffer | None = None
        super().__init__(gpu, announce)

    def put(self, content: np.ndarray | bytes, name: str) -> DeviceBuffer:
        self._of_launch.append(super().put(content, name))
        return self._of_launch[-1]

    def scratch(self, kernel: CodeKernel) -> tuple[int, int]:
        key = (kernel.private_bytes, kernel.wave)
        if key not in self._scratch or not kernel.rsrc2 & 1:
            self._scratch[key] = super().scratch(kernel)
        return self._scratch[key]

    def has_ended(self, fence: int) -> bool:
        if self.hostcalls is not None:
            self.hostcalls.serve()
        return super().has_ended(fence)

    def find_hostcall_va(self) -> int:
        """Return the address of the buffer for host calls, which is allocated for the first kernel with any."""
        if self.hostcalls is None:
            self.hostcalls = HostcallBuffer(self._find_shared_buffer, print_text)
        return self.hostcalls.va

    def _find_shared_buffer(self, size_bytes: int, name: str) -> DeviceBuffer:
        buffer = self._gpu.alloc(size_bytes, Placement.GTT, name)
        if self._announce is not None:
            self._announce(buffer.gpu_va, size_bytes, name)
        return buffer

    def free_launch(self) -> None:
        for item in self._of_launch:
            if self._announce is not None:
                self._announce(item.gpu_va, 0, "")
            item.free()
        self._of_launch.clear()


def _move_to_file(lines: SourceLines, source: Path | None) -> SourceLines:
    """Return source lines with the file that currently contains the kernel. Triton's cache finds kernels by their
    text, so cached code may refer to another file with the same text.
    """
    files = {line.rpartition(":")[0] for line in lines.lines} - {""}
    package = Path(sys.modules["triton"].__file__ or "").parent if "triton" in sys.modules else Path("triton")
    own = {file for file in files if not (Path.cwd() / file).is_relative_to(package)}
    now = shorten_path(source) if source is not None else ""
    if not now or now in own or len(own) != 1:
        return lines
    [before] = own
    renamed = tuple(
        f"{now}:{line.rpartition(':')[2]}" if line.rpartition(":")[0] == before else line for line in lines.lines
    )
    return replace(lines, lines=renamed)


class TritonDevice:
    """One simulated GPU for this process, opened at the first launch and again after a fault or a fork."""

    def __init__(self, options: ChipOptions) -> None:
        self.options = options
        self._open = ExitStack()
        self._pid = 0
        self.epoch = 0  # counts how often the GPU was opened
        self.reverse = False  # the last workgroups of a grid first
        self.arch = options.chip

    def load(self, data: bytes, name: str, source: Path | None = None) -> TritonKernelCode:
        """Read a code object. `source`: the file of its kernel, if it is known.

        Raise InputError if it is damaged, UnsupportedError if its instructions are not supported on the simulated
        chip.
        """
        lines = _move_to_file(read_source_lines(data, name), source)
        image = replace(read_code_object(data, name), line_at=lines.at, lines_missing=lines.missing)
        kernel = image.kernels[name] if name in image.kernels else next(iter(image.kernels.values()))
        require_supported(kernel)
        refuse_unsimulated(image, kernel)
        return TritonKernelCode(image, kernel, hashlib.sha256(data).hexdigest())

    def unload(self, loaded: TritonKernelCode) -> None:
        if loaded.buffer is not None and self._is_open and loaded.epoch == self.epoch:
            loaded.buffer.free()
        loaded.buffer = None

    def close(self) -> None:
        """Close the GPU. The next launch opens it again."""
        if self._pid == os.getpid():
            self._open.close()
        else:  # inherited by fork: the parent's connection is not ours to close
            self._open.pop_all()
        self._pid = 0

    @property
    def _is_open(self) -> bool:
        return self._pid == os.getpid()

    def _open_if_closed(self) -> None:
        if self._is_open:
            return
        self.close()
        with ExitStack() as stack:
            client = SimClient(name=f"triton-{os.getpid()}", **self.options.machine())
            stack.callback(client.close_all)
            node = next(gpu.node for gpu in find_gpus(client).gpus if gpu.node is not None)
            process = stack.enter_context(KfdProcess(client))
            self._client, self._gpu, self.arch = client, process.open_gpu(node), node.arch
            self._queue = _ReusedQueue(self._gpu, client.announce)
            self._copies = DeviceCopies(self._gpu, client)
            self._open = stack.pop_all()
        self._pid = os.getpid()
        self.epoch += 1

    def run(
        self,
        loaded: TritonKernelCode,
        grid: Triple,
        threads: int,
        arguments: Mapping[str, np.generic | HostPointer | None],
        dynamic_lds_bytes: int,
        *,
        counted: bool = False,
    ) -> CheckedLaunch:
        """Run a kernel and wait for its end. `arguments` are in the order of the code object's. `counted`: with
        counters.

        Raise LaunchStopped if it faulted or did not end; its findings are in the error.
        """
        self._open_if_closed()
        if loaded.buffer is None or loaded.epoch != self.epoch:
            loaded.buffer, loaded.epoch = self._queue.load_buffer(loaded.image), self.epoch
        pointers = [argument for argument in arguments.values() if isinstance(argument, HostPointer)]
        numbers = [int(argument) for argument in arguments.values() if isinstance(argument, np.integer)]
        self._copies.begin(pointers, numbers)
        placed = [
            pointer.placed(self._copies.va(pointer.address))
            for pointer in pointers
            if pointer.allocation is not None
        ]
        findings = LaunchFindings(self._client, loaded.image, self.options.checked, placed)
        before = self._read_counters(counted)
        shape = LaunchShape(grid, (threads, 1, 1), dimensions=3)
        kernel = loaded.kernel
        matched: Matched = [
            (wanted, name, self._to_value(value))
            for wanted, (name, value) in zip(kernel.shown, arguments.items(), strict=True)
        ]
        segment, lds_bytes = pack(kernel, matched, {}, shape, dynamic_lds_bytes)
        segment = self._with_hostcalls(segment, kernel)
        try:
            segment_va = self._queue.put(segment, "kernarg").gpu_va if segment else 0
            places = (loaded.buffer.gpu_va, segment_va)
            packets = self._queue.packets(kernel, *places, shape, lds_bytes, reverse=self.reverse)
            self._queue.run(packets, self.options.timeout_seconds, findings.stopped)
        except CheckFailed as stop:
            doing = findings.describe_timeout()
            groups = findings.groups()
            about = {"arch": self.arch, "simulated": True}
            self.close()
            raise LaunchStopped(f"{strip_parameter_types(kernel.name)}: {stop}{doing}", groups, about) from None
        self._copies.end(pointers)
        self._queue.free_launch()
        groups = findings.groups()
        remarks = tuple(group for group in groups if is_remark(group.rule, loaded.image.compiler))
        after = self._read_counters(counted)
        errors = tuple(group for group in groups if group not in remarks)
        return CheckedLaunch(errors, remarks, after[0] - before[0], after[1] - before[1])

    def _with_hostcalls(self, segment: bytes, kernel: CodeKernel) -> bytes:
        """Return the kernarg segment with the address of the buffer for host calls, if the kernel has any."""
        offset = next(
            (argument.offset for argument in kernel.arguments if argument.kind == "hidden_hostcall_buffer"), None
        )
        if offset is None:
            return segment
        return segment[:offset] + self._queue.find_hostcall_va().to_bytes(8, "little") + segment[offset + 8 :]

    def _to_value(self, value: np.generic | HostPointer | None) -> np.generic | None:
        if isinstance(value, HostPointer):
            return np.uint64(self._copies.va(value.address))
        if isinstance(value, (np.int64, np.uint64)):
            return np.uint64(self._copies.va(int(value)) & (1 << 64) - 1)
        return value

    def _read_counters(self, counted: bool) -> tuple[int, int]:
        if not counted:
            return 0, 0
        rows = self._client.counters()
        return sum(row["instructions"] for row in rows), sum(row["bytes"] for row in rows)
