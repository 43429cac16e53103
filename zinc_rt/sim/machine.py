"""A simulated machine: GPUs, the driver's state, processes and their open files."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.pm4.generation import generation_of
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.defects import LaneDefect, find_lane_defect
from zinc_rt.sim.driver import drm_ioctls, kfd_ioctls
from zinc_rt.sim.driver.client_memory import InProcessMemory, UserMemory
from zinc_rt.sim.driver.files import DrmFile, File, FolderFile, KfdFile, TextFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall, IoctlHandler
from zinc_rt.sim.driver.kfd_state import KfdProcessState
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.driver.sysfs import FileTree
from zinc_rt.sim.gpu import CommandProcessor, CommandProcessorMaker, SimGpu
from zinc_rt.sim.inject import Injector
from zinc_rt.sim.interfaces import DeviceFinding, Kmd
from zinc_rt.sim.machine_options import DEFAULT_OPTIONS, MachineModel, MachineOptions, make_machine_model
from zinc_rt.sim.shader_engine import NoShaderEngine, ShaderEngine
from zinc_rt.sim.tables.structs import StructLayout, decode_size_bytes, make_request_key

if TYPE_CHECKING:
    from zinc_rt.sim.shader.run.debugger import WaveDebugger

MAX_PROCESSES = 512  # KFD_MAX_NUM_OF_PROCESSES
FD_FIRST = 0x10000  # far from the caller's own, so that a mix-up is EBADF


def make_command_processor(
    kmd: Kmd,
    chip: Chip,
    poll: Callable[[], object],
    *,
    model: MachineModel,
    consulted: Coverage,
    crash_record: Path | None,
    defect: LaneDefect | None = None,
    debugger: WaveDebugger | None = None,
) -> CommandProcessor:
    """Create the simulated command processor with its own thread. `crash_record`: a file for the data
    available if waves crash. `debugger` stops the waves of its launches."""
    from zinc_rt.sim.cp.command_processor import CommandProcessor as Simulated  # late: only queues need one

    processor = Simulated(
        kmd,
        generation=generation_of(chip.gfx),
        engine=_make_engine(kmd, chip, model, consulted, crash_record, defect, debugger),
        reorder_seed=model.options.reorder,
        behaviour=model.behaviour,
        consulted=consulted,
        poll=lambda: (poll(), None)[1],
    )
    processor.start()
    return processor


def _make_engine(
    kmd: Kmd,
    chip: Chip,
    model: MachineModel,
    consulted: Coverage,
    crash_record: Path | None,
    defect: LaneDefect | None,
    debugger: WaveDebugger | None,
) -> ShaderEngine:
    if not chip.isa.has_decoder:
        return NoShaderEngine()
    from zinc_rt.sim.shader.run.crash import CrashRecord  # late: brings a compiler along
    from zinc_rt.sim.shader.run.engine import GfxEngine
    from zinc_rt.sim.shader.run.warm_up import warm_up_in_background

    warm_up_in_background(chip.isa)
    return GfxEngine(
        chip.isa,
        level=model.options.sanitizer,
        perturb=model.perturb,
        reverse_lanes=model.options.reverse_lanes,
        threads=model.options.threads,
        profile=model.options.profile,
        behaviour=model.behaviour,
        processors=chip.processors,
        crashes=lambda: kmd.injected("shader-crash"),
        record=CrashRecord(crash_record) if crash_record is not None else None,
        consulted=consulted,
        caches=model.cache_seed,
        defect=defect,
        vgpr_seed=model.order_seed,
        order_seed=model.order_seed,
        debugger=debugger,
    )


class SimMachine:
    """GPUs and the driver over them. `crash_records(index)` returns the path of a GPU's crash record;
    `command_processor(kmd, chip, look)` creates the object that runs its queues and calls look()
    between turns."""

    def __init__(
        self,
        options: MachineOptions = DEFAULT_OPTIONS,
        *,
        crash_records: Callable[[int], Path] | None = None,
        command_processor: CommandProcessorMaker | None = None,
        debugger: WaveDebugger | None = None,
    ) -> None:
        model = self.model = make_machine_model(options)
        self.linux = model.linux
        version, *proposals = options.linux.split("+")
        self.consulted = Coverage(
            f"kernel {version}",
            *(f"proposed {proposal}" for proposal in proposals),
            *(f"chip {chip.key}" for chip in model.chips),
        )
        self.injector = Injector(options.inject)
        self.lock = threading.RLock()  # the driver's state: ioctls that do not sleep
        self.changed = threading.Condition()  # events and fences; never held while acquiring `lock`
        self.dmesg: list[str] = []
        self.processes: list[Process] = []
        self._pids = itertools.count(os.getpid() if os.getpid() > 1 else 1000)
        self._fds = itertools.count(FD_FIRST)
        self.gpus = [
            SimGpu(
                model,
                index,
                injector=self.injector,
                consulted=self.consulted,
                log=self.dmesg.append,
                make_cp=command_processor
                or partial(
                    make_command_processor,
                    model=model,
                    consulted=self.consulted,
                    crash_record=crash_records(index) if crash_records else None,
                    defect=find_lane_defect(self.injector),
                    debugger=debugger,
                ),
            )
            for index in range(len(model.chips))
        ]
        self.tree = FileTree(self)
        self.allocations = 0  # announced by clients that do not know this device
        self.closed = False

    @property
    def findings(self) -> list[DeviceFinding]:
        for gpu in self.gpus:
            gpu.settle()
        return [finding for gpu in self.gpus for finding in gpu.findings]

    # --- processes and files ---

    def create_process(self, memory: UserMemory | None = None, pid: int | None = None) -> Process:
        process = Process(
            next(self._pids) if pid is None else pid, memory or InProcessMemory(), self._fds, dead=self.closed
        )
        with self.lock:
            self.processes.append(process)
        return process

    def open(self, process: Process, path: str, flags: int) -> int:
        with self.lock:
            process.check_alive()
            return process.add_file(self._make_file(process, path, flags))

    def _make_file(self, process: Process, path: str, flags: int) -> File:
        if path not in self.tree.list_devices():
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            if self.tree.is_folder(path):
                if writes:
                    raise OSError(errno.EISDIR, path)
                return FolderFile(path)
            if not self.tree.is_file(path):
                raise OSError(errno.ENOENT, path)
            if flags & os.O_DIRECTORY:
                raise OSError(errno.ENOTDIR, path)
            if writes:
                raise OSError(errno.EACCES, path)
            return TextFile(path)
        if self.injector.is_due("no-access"):
            raise OSError(errno.EACCES, path)
        if path == "/dev/kfd":
            return self._open_kfd(process, path)
        gpu = next(gpu for gpu in self.gpus if path.endswith(f"renderD{gpu.render_minor}"))
        gpu.check_alive()
        return DrmFile(path, gpu, self.changed)

    def _open_kfd(self, process: Process, path: str) -> File:
        if self.injector.is_due("reset-in-progress") or any(gpu.resetting for gpu in self.gpus):
            raise OSError(errno.EAGAIN, "a GPU is being reset")
        if process.kfd is None:
            if sum(item.kfd is not None for item in self.processes) >= MAX_PROCESSES:
                raise OSError(errno.ENOMEM, "512 KFD processes")
            process.kfd = KfdProcessState(self.gpus, self.changed)
        return KfdFile(path)

    def close_file(self, process: Process, fd: int) -> None:
        with self.lock:
            process.release(process.take_file(fd))

    def end_process(self, process: Process) -> None:
        """End the process, by exit or by a signal."""
        with self.lock:
            if process.dead:
                return
            process.end()
            self.processes.remove(process)
        with self.changed:
            self.changed.notify_all()

    # --- ioctls ---

    def ioctl(self, process: Process, fd: int, request: int, arg: bytearray) -> None:
        """Perform an ioctl. Raises OSError with the kernel's errno for any invalid arguments."""
        file = process.file(fd)
        if not isinstance(file, KfdFile | DrmFile):
            raise OSError(errno.ENOTTY, "no device")
        handler = self._find_handler(file, request)
        self.consulted.add_mark(f"ioctl {handler.ioctl.name}")
        layout = handler.ioctl.layout
        size = decode_size_bytes(request)
        record = (layout or _EMPTY).read(bytes(arg[:size]).ljust(size, b"\0") if layout else b"")
        call = IoctlCall(self, process, file, record)
        number = 0
        try:
            if handler.unlocked:
                handler.run(call)
            else:
                with self.lock:
                    process.check_alive()
                    handler.run(call)
        except OSError as error:
            number = error.errno or errno.EIO
            raise
        finally:
            self.injector.aftermath.record_call(handler.ioctl.name, number)
            if handler.ioctl.writes:
                view = memoryview(arg)[:size]
                keep = min(len(view), len(record.raw))
                view[:keep] = record.raw[:keep]

    def _find_handler(self, file: File, request: int) -> IoctlHandler:
        kind, number = make_request_key(request)
        if isinstance(file, KfdFile):
            handler = kfd_ioctls.HANDLERS.get(number) if kind == "K" else None
            since = kfd_ioctls.SINCE_MINOR.get(number, 0)
            if handler is None or self.linux.kfd_minor < since:
                raise OSError(errno.ENOTTY, f"no KFD ioctl 0x{number:02x}")
            return handler
        handler = drm_ioctls.HANDLERS.get(number) if kind == "d" else None
        if handler is None:  # the DRM core returns EINVAL for unknown numbers, ENOTTY for another type
            raise OSError(errno.EINVAL if kind == "d" else errno.ENOTTY, f"no DRM ioctl 0x{number:02x}")
        return handler

    def close(self) -> None:
        self.closed = True
        for process in list(self.processes):
            self.end_process(process)
        for gpu in self.gpus:
            gpu.close()


_EMPTY = StructLayout("no argument", 0, {})
