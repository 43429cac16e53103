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

from zinc_rt.engine.devices import find_amd_gpus, find_linux_driver, require_gpu
from zinc_rt.host import locks
from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import CheckFailed, InputError, UnsupportedError, UsageError
from zinc_rt.host.sanitizer_rules import CACHECHECK, choose_mode
from zinc_rt.isa.target import DEFAULT_ARCH, TARGETS, target_of
from zinc_rt.kernels.remarks import split_remarks
from zinc_rt.kmd.discover import Gpu, find_gpus
from zinc_rt.kmd.driver import Driver, SideChannel
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.launching.aql import KernelOnAqlQueue
from zinc_rt.launching.code_files import read_image
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.launching.debugging.prepared import LaunchDebugger, PreparedLaunch
from zinc_rt.launching.dispatch import KernelOnQueue
from zinc_rt.launching.executed import ExecutedInstructions
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.kernarg import LaunchShape, Triple, match, pack, require_supported
from zinc_rt.launching.launch_findings import LaunchFindings, choose_tools
from zinc_rt.launching.located import strip_parameter_types
from zinc_rt.launching.values import LaunchBuffer, Value


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a launch.

    `seconds`: from doorbell to fence, per run; on a simulated device they say nothing about a GPU's speed.
    `remarks`: findings that all code of the object's compiler has (kernels/remarks.py). `executed`: the
    instructions of the first run, None on a card.
    """

    outputs: dict[str, np.ndarray]
    findings: tuple[FindingGroup, ...] = ()
    seconds: tuple[float, ...] = ()
    device: dict[str, Any] = field(default_factory=dict)
    remarks: tuple[FindingGroup, ...] = ()
    executed: ExecutedInstructions | None = None


class LaunchStopped(CheckFailed):
    """Raised if the kernel did not end; `findings` has details, and `device` is as in Launched."""

    def __init__(self, message: str, findings: tuple[FindingGroup, ...], device: dict[str, Any]) -> None:
        super().__init__(message)
        self.findings, self.device = findings, device


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
    tools: Sequence[str] | None = None,
    coherence: str | None = None,
    reorder: int | None = None,
    perturb: int = 0,
    reverse: bool = False,
    reverse_lanes: bool = False,
    debugger: LaunchDebugger | None = None,
) -> Launched:
    """Run a kernel once, then `times` - 1 more times to measure its time, on the memory as left by the first run.

    `code`: an ELF code object or a .zrt container, or its path, or that of a source (.cl, .hip, .s), which is
    compiled for the chip `arch` with the compiler's `flags`. `kernel`: None takes the only one. `grid` counts
    workgroups, `block` the work-items of one, up to three axes; None takes what the kernel was compiled for, else
    64. `args`: for each argument an array (an input), `launching.values.out(shape, dtype)`, `inout(array)`, a
    NumPy scalar (np.int32(7)), `Lds(bytes)` or None (a null pointer), by the metadata's names, or in its order
    where it has none. `lds_bytes`: dynamic LDS; None takes what Triton's JSON says, else 0.
    Code returned by read_image is used unchanged. `queue`: pm4 packets, or one AQL dispatch packet with a
    completion signal. `device`: auto uses this machine's AMD GPU, or simulates one if there is none.

    Of a simulated device: `sanitizer`, a mode (off, fast, full), or `tools` instead (memcheck, racecheck, ...);
    `coherence`: bar, direct or caches, None for bar, and for caches if `tools` has cachecheck; `reorder`: a seed
    for the order of concurrent work; `perturb`: a seed that moves results of approximate instructions by up to one
    ULP, 0 for correctly rounded ones; `reverse`: the last workgroups first, one part of the grid after the other
    (pm4 packets only); `reverse_lanes`: memory instructions access the highest lane first; `debugger`, which runs
    it instead.

    Raise InputError (no such kernel, other arguments, another chip's code, a damaged file, a source that the
    compiler rejects), NothingRan (no compiler), UnsupportedError (no GPU), GpuBusy (another program has the card),
    LaunchStopped (it faulted, or did not end). UnsupportedError is also raised for a kernel with instructions that
    the simulated device does not support.
    """
    if device not in ("auto", "hw", "sim"):
        raise UsageError(f"unknown device {device}: expected auto, hw or sim")
    if queue not in ("pm4", "aql"):
        raise UsageError(f"queue {queue}: pm4 or aql")
    require_gpu(device)
    image = code if isinstance(code, CodeImage) else read_image(code, arch=arch, flags=flags)
    name = image.source
    wanted = choose_kernel(image, kernel)
    require_supported(wanted)
    if queue == "aql" and not image.has_descriptors:
        raise UsageError(f"{name}: a .zrt kernel has no descriptor for an AQL packet", next='use queue "pm4"')
    shape = LaunchShape(*_to_triples(grid, block or wanted.threads or 64), dimensions=_count_dimensions(grid))
    workgroups = shape.grid[0] * shape.grid[1] * shape.grid[2]
    matched = match(wanted, {key: _to_value(value) for key, value in args.items()}, workgroups)
    dynamic = wanted.dynamic_lds_bytes if lds_bytes is None else lds_bytes
    checked = choose_tools(sanitizer, tools)
    options: dict[str, Any] = {"sanitizer": choose_mode(checked), "profile": True}
    if coherence is not None or CACHECHECK in (tools or ()):
        options["coherence"] = coherence or "caches"
    if reorder is not None:
        options["reorder"] = reorder
    if perturb:
        options["perturb"] = perturb
    if reverse_lanes:
        options["reverse_lanes"] = True
    with ExitStack() as undo:
        simulated = device == "sim" or (device == "auto" and not find_amd_gpus())
        if simulated:
            refuse_unsimulated(image, wanted)
        driver = (
            _open_simulated_driver(image.arch, name, options, undo, debugger) if simulated else find_linux_driver()
        )
        if driver is None:
            raise UsageError("launch needs Linux")
        gpu, node = _find_gpu(driver, image.arch, name)
        if not driver.simulated:
            undo.enter_context(locks.hold_gpu(gpu.render_path))
        process = undo.enter_context(KfdProcess(driver))
        about = {"name": node.name, "arch": node.arch, "simulated": driver.simulated}
        findings = LaunchFindings(driver, image, checked)
        kind = KernelOnAqlQueue if queue == "aql" else KernelOnQueue
        on = kind(process.open_gpu(node), driver.announce if isinstance(driver, SideChannel) else None)
        placed = {key: value for _, key, value in matched if isinstance(value, LaunchBuffer)}
        buffers = {key: (on.put(value.array, key), value) for key, value in placed.items()}
        findings.watch(buffers)
        addresses = {key: item.gpu_va for key, (item, _) in buffers.items()}
        segment, all_lds_bytes = pack(wanted, matched, addresses, shape, dynamic)
        image_va = on.load(image)
        kernarg_va = on.put(segment, "kernarg").gpu_va if segment else 0
        submit = _make_submission(on, wanted, (image_va, kernarg_va), shape, all_lds_bytes, reverse)
        if debugger is not None:
            regions = (
                *((key, item.gpu_va, value.array.nbytes) for key, (item, value) in buffers.items()),
                ("kernarg", kernarg_va, len(segment)),
                ("code", image_va, len(image.image)),
            )
            prepared = PreparedLaunch(driver, image, wanted, buffers, regions, findings, submit)
            return Launched({}, seconds=(debugger.run(prepared),), device=about)
        seconds: list[float] = []
        outputs: dict[str, np.ndarray] = {}
        executed = None
        findings.executions()  # drops those of earlier launches
        try:
            for index in range(times):
                seconds.append(submit(timeout_seconds, findings.stopped))
                if index == 0:
                    outputs = {
                        key: on.get(index, value.array) for key, (index, value) in buffers.items() if value.out
                    }
                    executed = findings.list_executed(wanted)
        except CheckFailed as stop:
            doing = findings.describe_timeout()
            raise LaunchStopped(
                f"{strip_parameter_types(wanted.name)}: {stop}{doing}", findings.groups(), about
            ) from None
        reported = (*findings.groups(), *findings.find_unwritten(wanted.name))
        counted, remarks = split_remarks(reported, image.compiler)
        return Launched(outputs, counted, tuple(seconds), about, remarks, executed)


def _make_submission(
    on: KernelOnQueue, kernel: CodeKernel, at: tuple[int, int], shape: LaunchShape, lds_bytes: int, reverse: bool
) -> Callable[[float, Callable[[], str]], float]:
    """Return a function that runs the kernel once, as KernelOnQueue.run does. `at`: VAs of the image and the
    kernarg segment."""
    if isinstance(on, KernelOnAqlQueue):
        return partial(on.run_packet, on.encode_packet(kernel, *at, shape, lds_bytes))
    return partial(on.run, on.packets(kernel, *at, shape, lds_bytes, reverse=reverse))


def choose_kernel(image: CodeImage, kernel: str | None) -> CodeKernel:
    """Return the kernel of this name, in C++ also without its parameter types, or the only one. Raise InputError
    if there is none."""
    source = image.source
    if kernel is None:
        if len(image.kernels) != 1:
            listed = ", ".join(image.kernels) or "none"
            raise UsageError(f"{source} has {len(image.kernels)} kernels: {listed}", next="--kernel NAME")
        return next(iter(image.kernels.values()))
    mangled = [item for item in image.kernels if item.startswith(f"_Z{len(kernel)}{kernel}")]
    if kernel not in image.kernels and len(mangled) == 1:
        return image.kernels[mangled[0]]
    if kernel not in image.kernels:
        listed = ", ".join(image.kernels) or "none"
        raise InputError(
            f"{source}: no kernel {kernel}{suggest_word(kernel, list(image.kernels))}. It has: {listed}"
        )
    return image.kernels[kernel]


def _to_value(value: Any) -> Value:
    if isinstance(value, np.ndarray):
        return LaunchBuffer(np.ascontiguousarray(value))
    return value


def _to_triples(grid: int | Sequence[int], block: int | Sequence[int]) -> tuple[Triple, Triple]:
    triples = []
    for name, axis_sizes in (("grid", grid), ("block", block)):
        axes = (axis_sizes,) if isinstance(axis_sizes, int) else tuple(axis_sizes)
        if not 1 <= len(axes) <= 3 or any(not 0 < axis < 1 << 32 for axis in axes):
            raise UsageError(f"{name} {axis_sizes}: expected one to three positive sizes")
        x, y, z = (*axes, 1, 1, 1)[:3]
        triples.append((x, y, z))
    return triples[0], triples[1]


def _count_dimensions(grid: int | Sequence[int]) -> int:
    return 1 if isinstance(grid, int) else len(grid)


def refuse_unsimulated(image: CodeImage, kernel: CodeKernel) -> None:
    """Raise UnsupportedError for a kernel that can reach instructions that the shader engine does not support."""
    from zinc_rt.sim.shader.unsimulated import list_unsimulated

    refused = list_unsimulated(image.image, target_of(image.arch, kernel.wave), kernel.entry_at)
    if refused:
        names = ", ".join(f"{name} ({kind})" for name, kind in list(refused.items())[:4])
        raise UnsupportedError(
            f"{strip_parameter_types(kernel.name)} contains instructions that the simulated device "
            f"does not support: {names}",
            next="zinc-rt isa support lists them; --device hw runs it on a card",
        )


def _open_simulated_driver(
    arch: str, source: str, options: dict[str, Any], undo: ExitStack, debugger: LaunchDebugger | None
) -> Driver:
    from zinc_rt.sim.chips import ALIASES
    from zinc_rt.sim.serve.client import SimClient

    runnable = [row for row in TARGETS.values() if row.name in ALIASES]
    simulated = [row.name for row in TARGETS.values() if row in runnable or row.is_generic]
    if arch not in simulated:
        raise InputError(
            f"{source}: contains code for {arch}, but simulated devices can only run {', '.join(simulated)}",
            next=f"compile with -mcpu={DEFAULT_ARCH}, or --device hw on a machine with that chip",
        )
    family = [row.name for row in runnable if row.family == arch]
    chip = (DEFAULT_ARCH if DEFAULT_ARCH in family else family[0]) if family else arch
    if debugger is not None:
        undo.callback(debugger.close_device)
        return debugger.open_device(chip, options)
    client = SimClient(name=f"launch-{os.getpid()}", chip=chip, **options)
    undo.callback(client.close_all)
    return client


def _find_gpu(driver: Driver, arch: str, source: str) -> tuple[Gpu, TopologyNode]:
    gpus = [(gpu, gpu.node) for gpu in find_gpus(driver).gpus if gpu.node is not None]
    for gpu, node in gpus:
        if node.arch == arch or _is_of_family(node.arch, arch):
            return gpu, node
    text = ", ".join(node.arch for _, node in gpus) or "none"
    raise InputError(
        f"{source}: contains code for {arch}, but this machine's GPU is {text}", next=f"compile with -mcpu={text}"
    )


def _is_of_family(chip: str, arch: str) -> bool:
    """Return whether `arch` is generic code (gfx12-generic) for the chip's family."""
    target = TARGETS.get(chip)
    return target is not None and target.has_decoder and target.family == arch
