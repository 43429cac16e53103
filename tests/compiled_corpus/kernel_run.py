"""A code object's kernel on the shader engine at level full, as a launch gives it memory and arguments."""

from __future__ import annotations

import argparse
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from compiled_job import Job, LinkedNodes, list_differences

from zinc_rt.cli.kernel_input import KernelInput, read_kernels
from zinc_rt.host.errors import ZincError
from zinc_rt.isa.lint import LintFinding, lint
from zinc_rt.isa.target import target_of
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.launching.code_object import CodeImage, CodeKernel, read_code_object
from zinc_rt.launching.dispatch import dispatch_packet
from zinc_rt.launching.kernarg import LaunchShape, Triple, match, pack
from zinc_rt.launching.values import LaunchBuffer, Value
from zinc_rt.sim.interfaces import Fault
from zinc_rt.sim.shader.launch_setup import setup_of_registers
from zinc_rt.sim.shader.layout import EVERY_WAVE
from zinc_rt.sim.shader.run.engine_device import EngineDevice

FUEL = 3_000_000  # instructions of one thread, far beyond what any of the kernels takes


@dataclass(frozen=True, slots=True)
class Binary:
    """A code object with one kernel, in the form used by the loader and in the form used by the lint."""

    image: CodeImage
    kernel: CodeKernel
    functions: tuple[KernelInput, ...]  # the kernel, and functions that the compiler left apart


@dataclass(slots=True)
class KernelRun:
    """The result of a run: `findings` and `wrong` outputs as sentences; `stopped`: it faulted or did not end."""

    findings: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stopped: str = ""
    trace: np.ndarray | None = None  # TRACE records of all waves
    accessed: dict[int, set[tuple[int, int]]] = field(default_factory=dict)  # with a trace: EngineDevice.accessed


def load_binary(path: Path) -> Binary:
    image = read_code_object(path.read_bytes(), path.name)
    (kernel,) = image.kernels.values()
    none = dict.fromkeys(("hex", "arch", "wave", "vgprs", "sgprs", "true16"))
    return Binary(image, kernel, tuple(read_kernels(argparse.Namespace(files=[str(path)], **none))))


def lint_kernel(binary: Binary, change: Mapping[int, bytes] | None = None) -> list[tuple[str, LintFinding]]:
    """(function, finding) of the code, with these bytes of the image replaced."""
    result = []
    for function in binary.functions:
        section = function.section
        code = patch_code(section.code, change or {}, section.address)
        for item in lint(code, function.target, function.limits, entry=function.entry, kernel=function.kernel):
            if not is_remark(item.rule, function.compiler):
                result.append((function.name, item))
    return result


def patch_code(code: bytes, change: Mapping[int, bytes], address: int = 0) -> bytes:
    result = bytearray(code)
    for index, content in change.items():
        if 0 <= index - address < len(result):
            result[index - address : index - address + len(content)] = content
    return bytes(result)


def run_kernel(
    binary: Binary,
    job: Job,
    *,
    change: Mapping[int, bytes] | None = None,
    lds_bytes: int | None = None,
    trace: bool = False,
) -> KernelRun:
    """Run the job on the kernel, with these bytes of the image replaced and optionally another LDS size. `trace`:
    record all register writes; without a result if there are too many.
    """
    kernel = binary.kernel
    target = target_of(binary.image.arch)
    device = EngineDevice(level="full", fuel=FUEL, target=target, trace=EVERY_WAVE if trace else None)
    buffers: dict[str, int] = {}
    values: dict[str, Value] = {}
    for location, argument in enumerate(job.args):
        name = f"argument {location}"
        if isinstance(argument, LinkedNodes):
            buffers[name] = argument.place(device.place)
        elif isinstance(argument, np.ndarray):
            buffers[name] = device.place(argument, name)
        else:
            values[name] = argument
            continue
        values[name] = LaunchBuffer(np.zeros(0, np.uint8))
    shape = LaunchShape(unpack_sizes(job.groups), unpack_sizes(job.threads), 1)
    named = kernel.shown
    matched = match(kernel, {(item.name or key): values[key] for item, key in zip(named, values, strict=True)})
    addresses = {name: buffers[key] for (_, name, _), key in zip(matched, values, strict=True) if key in buffers}
    segment, group_bytes = pack(kernel, matched, addresses, shape)
    block = np.frombuffer(segment + bytes(-len(segment) % 8), np.uint8).copy()
    kernarg_va = device.place(block, "kernarg", write=False) if segment else 0
    packet = np.frombuffer(dispatch_packet(kernel, 0, kernarg_va, shape, group_bytes), np.uint8)
    user = _user_data(kernel, kernarg_va, device.place(packet, "dispatch packet", write=False))
    launch = setup_of_registers(
        kernel.rsrc1, kernel.rsrc2, shape.block, wave32=kernel.wave == 32, rules=target.rules
    )
    user += (0,) * (len(launch.user_data) - len(user))  # RSRC2.USER_SGPR may be more than what the kernel uses
    ran = KernelRun()
    try:
        message = device.run(
            patch_code(binary.image.image, change or {}),
            entry=kernel.entry_at,
            groups=shape.grid,
            threads=shape.block,
            wave=kernel.wave,
            user_data=user,
            lds_bytes=group_bytes if lds_bytes is None else lds_bytes,
            scratch_bytes=kernel.private_bytes,
            vgprs=launch.vgprs,
            mode=launch.mode,
            ids_enabled=[kernel.rsrc2 >> 7 + axis & 1 for axis in range(3)],
            name=kernel.name,
        )
        ran.findings = [f"{item.rule}: {item.sentence}" for item in message]
    except Fault as fault:
        ran.stopped = str(fault)
    except ZincError as error:
        ran.stopped = str(error)
    ran.wrong = list_differences(job)
    records, dropped = device.trace_records
    ran.trace, ran.accessed = None if dropped else records, device.accessed
    return ran


def _user_data(kernel: CodeKernel, kernarg_va: int, packet_va: int) -> tuple[int, ...]:
    """User SGPRs in the order of kernel_code_properties (LLVM AMDGPUUsage)."""
    values = {1: packet_va, 3: kernarg_va, 6: kernel.private_bytes}
    result: list[int] = []
    for bit, words in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
        if kernel.properties >> bit & 1:
            result += struct.unpack(f"<{words}I", values.get(bit, 0).to_bytes(4 * words, "little"))
    return tuple(result)


def unpack_sizes(sizes: int | Triple) -> Triple:
    return sizes if isinstance(sizes, tuple) else (sizes, 1, 1)
