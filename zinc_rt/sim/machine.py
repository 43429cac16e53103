"""A simulated machine: GPUs, the driver's state, processes and their open files."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from zinc_rt.facts import flipped as flipped_here
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.pm4.generation import Generation, generation_of
from zinc_rt.sim import flip as flips
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.chips import chip as chip_row
from zinc_rt.sim.consulted import Consulted
from zinc_rt.sim.driver import drm_ioctls, kfd_ioctls
from zinc_rt.sim.driver.client_memory import InProcessMemory, UserMemory
from zinc_rt.sim.driver.drm_memory import close_handle
from zinc_rt.sim.driver.files import DmaBufFile, DrmFile, File, FolderFile, KfdFile, Process, SmiFile, TextFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall, IoctlHandler
from zinc_rt.sim.driver.kfd_state import KfdProcessState
from zinc_rt.sim.driver.sysfs import FileTree
from zinc_rt.sim.driver.userq_state import UserQueues
from zinc_rt.sim.facts import DEFAULT, Behaviour, load
from zinc_rt.sim.gpu import CommandProcessor, CommandProcessorMaker, SimGpu
from zinc_rt.sim.inject import Injector
from zinc_rt.sim.interfaces import DeviceFinding, Kmd
from zinc_rt.sim.profiles import linux as linux_row
from zinc_rt.sim.shader_engine import LEVELS, NoShaderEngine, ShaderEngine
from zinc_rt.sim.stores import StoreSeen
from zinc_rt.sim.tables.structs import StructLayout, request_key, request_size_bytes

MAX_PROCESSES = 512  # KFD_MAX_NUM_OF_PROCESSES
MAX_FILES = 1024  # ulimit -n
FD_FIRST = 0x10000  # far from the caller's own, so that a mix-up is EBADF
MAX_ARG_BYTES = (1 << 14) - 1


@dataclass(frozen=True, slots=True)
class ShaderOptions:
    """How waves run. `sanitizer`: off, fast, full. `perturb`: a seed that moves inexact instructions by up to one
    ULP, 0 for none. `threads`: None for all cores. `profile`: instructions and bytes are counted, too.
    `crash_record`: a file for what is known if they crash."""

    sanitizer: str = "fast"
    perturb: int = 0
    threads: int | None = None
    profile: bool = False
    crash_record: Path | None = None
    behaviour: Behaviour = DEFAULT

    def __post_init__(self) -> None:
        if self.sanitizer not in LEVELS:
            raise ValueError(f"sanitizer {self.sanitizer!r}: wanted {', '.join(LEVELS)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"{self.threads} threads: wanted 1 or more")


def simulated_command_processor(
    kmd: Kmd,
    chip: Chip,
    poll: Callable[[], object],
    *,
    reorder_seed: int | None = None,
    shaders: ShaderOptions = ShaderOptions(),
    consulted: Consulted | None = None,
) -> CommandProcessor:
    """The simulated one, in a thread of its own."""
    from zinc_rt.sim.cp.command_processor import (
        CommandProcessor as Simulated,  # late: a machine without queues needs none
    )

    processor = Simulated(
        kmd,
        generation=generation_of(chip.gfx),
        engine=_engine(kmd, chip, shaders, consulted or Consulted()),
        reorder_seed=reorder_seed,
        behaviour=shaders.behaviour,
        consulted=consulted,
        poll=lambda: (poll(), None)[1],
    )
    processor.start()
    return processor


def _engine(kmd: Kmd, chip: Chip, shaders: ShaderOptions, consulted: Consulted) -> ShaderEngine:
    if generation_of(chip.gfx) is not Generation.GFX12:
        return NoShaderEngine()
    from zinc_rt.sim.noting_engine import NotingEngine  # late: brings a compiler along
    from zinc_rt.sim.shader.run.crash import CrashRecord

    return NotingEngine(
        consulted,
        level=shaders.sanitizer,
        perturb=shaders.perturb,
        threads=shaders.threads,
        profile=shaders.profile,
        behaviour=shaders.behaviour,
        processors=chip.processors,
        crashes=lambda: kmd.injected("shader-crash"),
        record=CrashRecord(shaders.crash_record) if shaders.crash_record is not None else None,
    )


class SimMachine:
    """`chip`: rows of sim.chips, several separated by commas. `linux`: a row of sim.profiles.

    `inject`: faults of sim.inject. `coherence`: "bar" (two copies of VRAM) or "direct". `time_scale` shortens the
    driver's time-outs. `reorder` is a seed that lets concurrent work finish in any order, so that missing
    barriers bite. `sanitizer`, `perturb`, `threads`, `profile` are those of Shaders; `crash_records(index)` is a
    GPU's file.
    `facts`: a file of sim.facts, whose findings this machine behaves by; `force_facts` takes any.
    `flip`: rows of facts.yaml at their other value, beside those of zinc_rt.facts.flipped.
    `command_processor(kmd, chip, look)` makes what runs the queues; it calls look() between turns.
    """

    def __init__(
        self,
        chip: str = "r9700",
        linux: str = "7.0",
        inject: Iterable[str] = (),
        coherence: str = "bar",
        time_scale: float = 1.0,
        *,
        reorder: int | None = None,
        sanitizer: str = "fast",
        perturb: int = 0,
        threads: int | None = None,
        profile: bool = False,
        facts: str | Path | None = None,
        force_facts: bool = False,
        flip: Iterable[str] = (),
        crash_records: Callable[[int], Path] | None = None,
        command_processor: CommandProcessorMaker | None = None,
    ) -> None:
        self.options = {"chip": chip, "kernel": linux, "coherence": coherence, "time_scale": time_scale}
        if reorder is not None:
            self.options["reorder"] = reorder
        self.options["sanitizer"] = sanitizer
        if perturb:
            self.options["perturb"] = perturb
        behaviour = DEFAULT
        if facts is not None:
            self.options["facts"] = str(facts)
            first = chip_row(chip.split(",")[0])
            behaviour = load(Path(facts), chip=first.gfx, force=force_facts).behaviour()
        flipped = flips.rows(dict.fromkeys((*flip, *flipped_here.get())))
        if flipped:
            self.options["flip"] = [each.id for each in flipped]
            behaviour = flips.behaviour(behaviour, flipped)
            perturb = flips.perturb(perturb, flipped)
        if behaviour.bar_without_flush == "fresh":
            coherence = self.options["coherence"] = "direct"
        shaders = ShaderOptions(sanitizer, perturb, threads, profile, behaviour=behaviour)
        self.linux = flips.linux(linux_row(linux), flipped)
        chips = [flips.chip(chip_row(name), flipped) for name in chip.split(",")]
        self.consulted = Consulted(f"kernel {linux}", *(f"chip {each.key}" for each in chips))
        self.injector = Injector(inject)
        self.lock = threading.RLock()  # the driver's state: ioctls that do not sleep
        self.changed = threading.Condition()  # events and fences; never held while `lock` is taken
        self.dmesg: list[str] = []
        self.processes: list[Process] = []
        self._pids = itertools.count(os.getpid() if os.getpid() > 1 else 1000)
        self._fds = itertools.count(FD_FIRST)
        self._user_queues: dict[DrmFile, UserQueues] = {}
        self.gpus = [
            SimGpu(
                each,
                self.linux,
                self.injector,
                index=index,
                coherence=coherence,
                keeps_code=behaviour.code_without_invalidate == "stale",
                time_scale=time_scale,
                changed=self.changed,
                log=self.dmesg.append,
                consulted=self.consulted,
                make_cp=command_processor
                or partial(
                    simulated_command_processor,
                    reorder_seed=reorder,
                    consulted=self.consulted,
                    shaders=replace(shaders, crash_record=crash_records(index) if crash_records else None),
                ),
            )
            for index, each in enumerate(chips)
        ]
        self.tree = FileTree(self)
        self.closed = False

    @property
    def findings(self) -> list[DeviceFinding]:
        return [finding for gpu in self.gpus for finding in gpu.findings]

    # --- processes and files ---

    def new_process(self, memory: UserMemory | None = None, pid: int | None = None) -> Process:
        process = Process(next(self._pids) if pid is None else pid, memory or InProcessMemory())
        with self.lock:
            self.processes.append(process)
        return process

    def add_file(self, process: Process, file: File) -> int:
        if len(process.files) >= MAX_FILES:
            raise OSError(errno.EMFILE, "too many open files")
        fd = next(self._fds)
        process.files[fd] = file
        return fd

    def open(self, process: Process, path: str, flags: int) -> int:
        with self.lock:
            self._alive(process)
            return self.add_file(process, self._file(process, path, flags))

    def _file(self, process: Process, path: str, flags: int) -> File:
        if path not in self.tree.devices():
            writes = flags & (os.O_WRONLY | os.O_RDWR)
            if self.tree.is_folder(path):
                if writes:
                    raise OSError(errno.EISDIR, path)
                return FolderFile(path, process)
            if not self.tree.is_file(path):
                raise OSError(errno.ENOENT, path)
            if flags & os.O_DIRECTORY:
                raise OSError(errno.ENOTDIR, path)
            if writes:
                raise OSError(errno.EACCES, path)
            return TextFile(path, process)
        if self.injector.strikes("no-access"):
            raise OSError(errno.EACCES, path)
        if path == "/dev/kfd":
            return self._open_kfd(process, path)
        gpu = next(gpu for gpu in self.gpus if path.endswith(f"renderD{gpu.render_minor}"))
        gpu.check_alive()
        return DrmFile(path, process, gpu, gpu.new_vm())

    def _open_kfd(self, process: Process, path: str) -> File:
        if self.injector.strikes("reset-in-progress") or any(gpu.resetting for gpu in self.gpus):
            raise OSError(errno.EAGAIN, "a GPU is being reset")
        if process.kfd is None:
            if sum(each.kfd is not None for each in self.processes) >= MAX_PROCESSES:
                raise OSError(errno.ENOMEM, "512 KFD processes")
            process.kfd = KfdProcessState(process, self)
        return KfdFile(path, process)

    def file(self, process: Process, fd: int) -> File:
        self._alive(process)
        if fd not in process.files:
            raise OSError(errno.EBADF, f"fd {fd}")
        return process.files[fd]

    def _alive(self, process: Process) -> None:
        if process.dead or self.closed:
            raise OSError(errno.ENODEV, "the simulated device is closed")

    def close_file(self, process: Process, fd: int) -> None:
        with self.lock:
            file = self.file(process, fd)
            del process.files[fd]
            self._release(process, file)

    def _release(self, process: Process, file: File) -> None:
        """KFD's state outlives /dev/kfd's last fd: it goes with the process's address space (kfd_release)."""
        if isinstance(file, DrmFile):
            self._release_drm(process, file)
        elif isinstance(file, DmaBufFile):
            self.gpus[0].release(file.bo)
        elif isinstance(file, SmiFile) and process.kfd is not None and file in process.kfd.smi:
            process.kfd.smi.remove(file)

    def _release_drm(self, process: Process, file: DrmFile) -> None:
        if process.kfd is not None and any(on.file is file for on in process.kfd.on.values()):
            process.kfd.held_files.append(file)  # ACQUIRE_VM holds it until the process ends
            return
        queues = self._user_queues.pop(file, None)
        if queues is not None:
            queues.close()
        for handle in list(file.handles):
            close_handle(file, handle)
        file.syncobjs.clear()
        file.vm.clear()

    def user_queues(self, file: DrmFile) -> UserQueues:
        if file not in self._user_queues:
            self._user_queues[file] = UserQueues(file, self)
        return self._user_queues[file]

    def end_process(self, process: Process) -> None:
        """Exit or death: everything it had open is released."""
        with self.lock:
            if process.dead:
                return
            held: list[DrmFile] = []
            if process.kfd is not None:
                process.kfd.close()
                held, process.kfd = process.kfd.held_files, None
            for file in held:
                self._release_drm(process, file)
            for fd in list(process.files):
                self._release(process, process.files.pop(fd))
            process.dead = True
            self.processes.remove(process)
        with self.changed:
            self.changed.notify_all()

    # --- ioctls ---

    def ioctl(self, process: Process, fd: int, request: int, arg: bytearray) -> None:
        """OSError with the kernel's errno, for whatever the arguments are."""
        file = self.file(process, fd)
        if isinstance(file, (TextFile, FolderFile, DmaBufFile, SmiFile)):
            raise OSError(errno.ENOTTY, "no device")
        handler = self._handler(file, request)
        self.consulted.mark(f"ioctl {handler.ioctl.name}")
        layout = handler.ioctl.layout
        size = request_size_bytes(request)
        record = (layout or _EMPTY).read(bytes(arg[:size]).ljust(size, b"\0") if layout else b"")
        call = IoctlCall(self, process, file, record)
        try:
            if handler.unlocked:
                handler.run(call)
            else:
                with self.lock:
                    self._alive(process)
                    handler.run(call)
        finally:
            if handler.ioctl.writes:
                view = memoryview(arg)[:size]
                keep = min(len(view), len(record.raw))
                view[:keep] = record.raw[:keep]

    def _handler(self, file: File, request: int) -> IoctlHandler:
        kind, number = request_key(request)
        if isinstance(file, KfdFile):
            handler = kfd_ioctls.HANDLERS.get(number) if kind == "K" else None
            since = kfd_ioctls.SINCE_MINOR.get(number, 0)
            if handler is None or self.linux.kfd_minor < since:
                raise OSError(errno.ENOTTY, f"no KFD ioctl 0x{number:02x}")
            return handler
        handler = drm_ioctls.HANDLERS.get(number) if kind == "d" else None
        if handler is None:  # the DRM core says EINVAL to numbers it does not know, ENOTTY to another type
            raise OSError(errno.EINVAL if kind == "d" else errno.ENOTTY, f"no DRM ioctl 0x{number:02x}")
        return handler

    # --- the rest of the seam ---

    def readable(self, process: Process, fds: Iterable[int]) -> list[int]:
        with self.lock:
            return [fd for fd in fds if fd in process.files and process.files[fd].readable]

    def read_file(self, path: str) -> bytes:
        return self.tree.read(path)

    def list_dir(self, path: str) -> list[str]:
        return self.tree.names(path)

    def announce(self, process: Process, va: int, size_bytes: int, name: str) -> None:
        """A suballocation, by name: what hardware lacks. Every address space of the process learns it."""
        self.announce_all(process, [(va, size_bytes, name)])

    def announce_all(self, process: Process, rows: Sequence[tuple[int, int, str]]) -> None:
        with self.lock:
            for file in process.files.values():
                if isinstance(file, DrmFile):
                    file.vm.announce_all(rows)

    def discard(self, process: Process, va: int, size_bytes: int) -> None:
        """These bytes count as uninitialised again, for reads from now on."""
        with self.lock:
            for file in process.files.values():
                if isinstance(file, DrmFile):
                    file.vm.discard(va, size_bytes)

    def set_watchpoint(self, process: Process, va: int, size_bytes: int) -> None:
        """Every store of the process's waves to these bytes is to be remembered; size 0: no more."""
        for file in self._drm_files(process):
            file.gpu.set_watchpoint(file.vm, va, size_bytes)

    def watchpoint_hits(self, process: Process) -> list[StoreSeen]:
        """What stored to the watched bytes, dispatch after dispatch."""
        return [each for file in self._drm_files(process) for each in file.gpu.watchpoint_hits(file.vm)]

    def _drm_files(self, process: Process) -> list[DrmFile]:
        with self.lock:
            return [file for file in process.files.values() if isinstance(file, DrmFile)]

    def precompile(self, process: Process, kernels: Sequence[KernelToCompile]) -> None:
        """Kernels that the process is about to dispatch: another thing that no hardware can be told."""
        for file in self._drm_files(process):
            file.gpu.precompile(file.vm, kernels)

    def close(self) -> None:
        for process in list(self.processes):
            self.end_process(process)
        self.closed = True
        for gpu in self.gpus:
            gpu.close()


_EMPTY = StructLayout("no argument", 0, {})
