"""Launch a kernel of a code object, on a simulated GPU or a card, with arrays as inputs and outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.engine.devices import amd_gpus, linux_driver, require_gpu
from zinc_rt.host import locks
from zinc_rt.host.arguments import meant
from zinc_rt.host.errors import CheckFailed, InputError, UsageError
from zinc_rt.isa.target import DEFAULT_ARCH, TARGETS
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kmd.discover import Gpu, find_gpus
from zinc_rt.kmd.driver import Driver, SideChannel
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.launching.aql import KernelOnAqlQueue
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.launching.dispatch import KernelOnQueue
from zinc_rt.launching.finding_groups import FindingGroup, grouped, is_end
from zinc_rt.launching.kernarg import LaunchShape, Triple, match, pack, refuse_unsupported
from zinc_rt.launching.outputs import outputs_of, unwritten_outputs
from zinc_rt.launching.values import LaunchBuffer, Value


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a launch.

    `seconds`: from doorbell to fence, per run; on a simulated device they say nothing about a GPU's speed.
    `remarks`: findings that all code of the object's compiler has (kernels/remarks.py).
    """

    outputs: dict[str, np.ndarray]
    findings: tuple[FindingGroup, ...] = ()
    seconds: tuple[float, ...] = ()
    device: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[FindingGroup, ...] = ()


class LaunchStopped(CheckFailed):
    """The kernel did not end; `findings` give details."""

    def __init__(self, message: str, findings: tuple[FindingGroup, ...]) -> None:
        super().__init__(message)
        self.findings = findings


def launch(
    code: str | Path | bytes | CodeImage,
    kernel: str | None = None,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int] | None = None,
    args: Mapping[str, Any],
    device: str = "auto",
    sanitizer: str = "full",
    timeout_seconds: float = 60.0,
    times: int = 1,
    queue: str = "pm4",
    lds_bytes: int | None = None,
    arch: str = DEFAULT_ARCH,
    flags: Sequence[str] = (),
) -> Launched:
    """Run a kernel once, then `times` - 1 more times to measure its time, on the memory that the first run left.

    `code`: an ELF code object or a .zrt container, or its path, or that of a source (.cl, .hip, .s), which is
    compiled for the chip `arch` with the compiler's `flags`. `kernel`: None takes the only one. `grid` counts
    workgroups, `block` the work-items of one, up to three axes; None takes what the kernel was compiled for, else
    64. `args`: for each argument an array (an input), `launching.values.out(shape, dtype)`, `inout(array)`, a
    NumPy scalar (np.int32(7)), `Lds(bytes)` or None (a null pointer), by the metadata's names, or in its order
    where it has none. `lds_bytes`: dynamic LDS; None takes what Triton's JSON says, else 0.
    A `code` that read_image returned is used as it is. `queue`: pm4 packets, or one AQL dispatch packet with a
    completion signal. `device`: auto takes this machine's AMD GPU, or simulates one where there is none.

    Raise InputError (no such kernel, other arguments, another chip's code, a damaged file, a source that the
    compiler rejects), NothingRan (no compiler), UnsupportedError (no GPU), GpuBusy (another program has the card),
    LaunchStopped (it faulted, or did not end).
    """
    if device not in ("auto", "hw", "sim"):
        raise UsageError(f"device {device}: auto, hw or sim")
    if queue not in ("pm4", "aql"):
        raise UsageError(f"queue {queue}: pm4 or aql")
    require_gpu(device)
    image = code if isinstance(code, CodeImage) else read_image(code, arch=arch, flags=flags)
    name = image.source
    wanted = choose_kernel(image, kernel)
    refuse_unsupported(wanted)
    if queue == "aql" and not image.has_descriptors:
        raise UsageError(f"{name}: a .zrt kernel has no descriptor for an AQL packet", next='use queue "pm4"')
    shape = LaunchShape(*_triples(grid, block or wanted.threads or 64), dimensions=_dimensions(grid))
    workgroups = shape.grid[0] * shape.grid[1] * shape.grid[2]
    matched = match(wanted, {key: _value(value) for key, value in args.items()}, workgroups)
    dynamic = wanted.dynamic_lds_bytes if lds_bytes is None else lds_bytes
    with ExitStack() as undo:
        simulated = device == "sim" or (device == "auto" and not amd_gpus())
        driver = _simulated(image.arch, name, sanitizer, undo) if simulated else linux_driver()
        if driver is None:
            raise UsageError("launch needs Linux")
        gpu, node = _gpu(driver, image.arch, name)
        if not driver.simulated:
            undo.enter_context(locks.held(gpu.render_path))
        process = undo.enter_context(KfdProcess(driver))
        side = driver if isinstance(driver, SideChannel) else None
        before = 0
        if side is not None:  # the device is this process's, which may have launched the kernel before
            side.tell_again()
            before = len(side.findings())
        kind = KernelOnAqlQueue if queue == "aql" else KernelOnQueue
        on = kind(process.open_gpu(node), side.announce if side else None)
        buffers = {key: on.put(value.array, key) for _, key, value in matched if isinstance(value, LaunchBuffer)}
        if side is not None and sanitizer != "off":
            for key, each in outputs_of(matched).items():
                if not each.read and each.array.nbytes:
                    side.discard_mapped(buffers[key].gpu_va, each.array.nbytes)
        segment, all_lds_bytes = pack(
            wanted, matched, {key: each.gpu_va for key, each in buffers.items()}, shape, dynamic
        )
        image_va = on.load(image)
        kernarg_va = on.put(segment, "kernarg").gpu_va if segment else 0
        submit = _submission(on, wanted, (image_va, kernarg_va), shape, all_lds_bytes)
        seconds: list[float] = []
        outputs: dict[str, np.ndarray] = {}
        try:
            for index in range(times):
                seconds.append(submit(timeout_seconds, lambda: _stopped(side, before)))
                if index == 0:
                    outputs = {
                        key: on.get(buffers[key], value.array) for key, value in outputs_of(matched).items()
                    }
        except CheckFailed as stop:
            if side is not None:
                side.tell_unfinished()
            told = _groups(side, before)
            raise LaunchStopped(f"{wanted.name}: {stop}{_progress(side, told)}", told) from None
        about = {"name": node.name, "arch": node.arch, "simulated": driver.simulated}
        told = _groups(side, before)
        remarks = tuple(each for each in told if is_remark(each.rule, image.compiler))
        findings = tuple(each for each in told if each not in remarks)
        if side is not None and sanitizer != "off":
            findings += tuple(unwritten_outputs(side, outputs_of(matched), buffers))
        return Launched(outputs, findings, tuple(seconds), about, remarks)


def _submission(
    on: KernelOnQueue, kernel: CodeKernel, at: tuple[int, int], shape: LaunchShape, lds_bytes: int
) -> Callable[[float, Callable[[], str]], float]:
    """Return a function that runs the kernel once, as KernelOnQueue.run does. `at`: VAs of the image and the
    kernarg segment."""
    if isinstance(on, KernelOnAqlQueue):
        return partial(on.run_packet, on.packet(kernel, *at, shape, lds_bytes))
    return partial(on.run, on.packets(kernel, *at, shape, lds_bytes))


def choose_kernel(image: CodeImage, kernel: str | None) -> CodeKernel:
    """Return the kernel of this name, in C++ also without its parameter types, or the only one. Raise InputError
    if there is none."""
    source = image.source
    if kernel is None:
        if len(image.kernels) != 1:
            listed = ", ".join(image.kernels) or "none"
            raise UsageError(f"{source} has {len(image.kernels)} kernels: {listed}", next="--kernel NAME")
        return next(iter(image.kernels.values()))
    mangled = [each for each in image.kernels if each.startswith(f"_Z{len(kernel)}{kernel}")]
    if kernel not in image.kernels and len(mangled) == 1:
        return image.kernels[mangled[0]]
    if kernel not in image.kernels:
        listed = ", ".join(image.kernels) or "none"
        raise InputError(f"{source}: no kernel {kernel}{meant(kernel, list(image.kernels))}. It has: {listed}")
    return image.kernels[kernel]


def _value(value: Any) -> Value:
    if isinstance(value, np.ndarray):
        return LaunchBuffer(np.ascontiguousarray(value))
    return value


def _triples(grid: int | Sequence[int], block: int | Sequence[int]) -> tuple[Triple, Triple]:
    found = []
    for name, given in (("grid", grid), ("block", block)):
        axes = (given,) if isinstance(given, int) else tuple(given)
        if not 1 <= len(axes) <= 3 or any(not 0 < axis < 1 << 32 for axis in axes):
            raise UsageError(f"{name} {given}: one to three axes of 1 or more")
        x, y, z = (*axes, 1, 1, 1)[:3]
        found.append((x, y, z))
    return found[0], found[1]


def _dimensions(grid: int | Sequence[int]) -> int:
    return 1 if isinstance(grid, int) else len(grid)


def _simulated(arch: str, source: str, sanitizer: str, undo: ExitStack) -> Driver:
    from zinc_rt.sim.chips import ALIASES
    from zinc_rt.sim.serve.client import SimClient

    runnable = (row for row in TARGETS.values() if row.is_simulated)
    simulated = [row.name for row in runnable if row.is_generic or row.name in ALIASES]
    if arch not in simulated:
        raise InputError(
            f"{source}: code for {arch}; simulated devices run no waves of it, but of {', '.join(simulated)}",
            next=f"compile with -mcpu={DEFAULT_ARCH}, or --device hw on a machine with that chip",
        )
    chip = DEFAULT_ARCH if TARGETS[arch].is_generic else arch
    client = SimClient(name=f"launch-{os.getpid()}", chip=chip, sanitizer=sanitizer)
    undo.callback(client.close_all)
    return client


def _gpu(driver: Driver, arch: str, source: str) -> tuple[Gpu, TopologyNode]:
    found = [(gpu, gpu.node) for gpu in find_gpus(driver).gpus if gpu.node is not None]
    for gpu, node in found:
        if node.arch == arch or _of_family(node.arch, arch):
            return gpu, node
    here = ", ".join(node.arch for _, node in found) or "none"
    raise InputError(f"{source}: code for {arch}, and the GPU here is {here}", next=f"compile with -mcpu={here}")


def _of_family(chip: str, arch: str) -> bool:
    """Return whether `arch` is generic code (gfx12-generic) for the chip's family."""
    target = TARGETS.get(chip)
    return target is not None and target.has_decoder and target.family == arch


def _stopped(side: SideChannel | None, before: int) -> str:
    if side is None:
        return ""
    stops = [each for each in side.findings()[before:] if is_end(each)]
    return f"it stopped: {stops[-1].sentence}" if stops else ""


def _progress(side: SideChannel | None, found: tuple[FindingGroup, ...]) -> str:
    """Return what a simulated device was doing when the launch was given up."""
    if side is None or any(each.error for each in found):
        return ""
    waves = [each for each in found if each.rule == "still-running"]
    if not waves:
        return ": no wave has started, the device is still compiling the kernel"
    return f": {waves[0].detail}"


def _groups(side: SideChannel | None, before: int) -> tuple[FindingGroup, ...]:
    return grouped(side.findings()[before:]) if side is not None else ()
