"""Kernels that a compiler made from C, on the engine at level full and on the NumPy model, against references.

The compiled images are in compiled_kernels.npz; compiled_cases.py has inputs and what must come out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled_cases import CASES
from compiled_job import Job, LinkedNodes, list_differences
from compiled_kernels import (
    COMMAND,
    SOURCES,
    CompiledKernelImage,
    build_image,
    read_images,
    required_kernels,
    source_hash,
)
from sim.shader_model.model_device import ModelDevice

from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
KERNELS = read_images()
STACK_BYTES = 4096  # of each lane, for recursion, whose depth the compiler does not know


def make_job(name: str) -> Job:
    with np.errstate(all="ignore"):
        return CASES[name](np.random.default_rng(sum(name.encode())))


def pack_arguments(device: ModelDevice | EngineDevice, job: Job) -> Array:
    """Build the kernarg block: pointers and values, each aligned to its size."""
    block = bytearray()
    for location, argument in enumerate(job.args):
        if isinstance(argument, LinkedNodes):
            raw = np.uint64(argument.place(device.place)).tobytes()
        elif isinstance(argument, np.ndarray):
            raw = np.uint64(device.place(argument, f"argument {location}")).tobytes()
        else:
            raw = argument.tobytes()
        block += bytes(-len(block) % len(raw)) + raw
    return np.frombuffer(bytes(block) + bytes(-len(block) % 8), np.uint64).copy()


def run_kernel(device: ModelDevice | EngineDevice, kernel: CompiledKernelImage, job: Job) -> list[str]:
    """Run the kernel on the job's arrays; return the findings."""
    block = pack_arguments(device, job)
    assert kernel.kernarg_bytes <= block.nbytes + 7, (kernel.kernarg_bytes, block.nbytes)
    va = device.place(block, "kernarg", write=False)
    findings = device.run(
        kernel.image,
        entry=kernel.entry,
        groups=job.groups if isinstance(job.groups, tuple) else (job.groups, 1, 1),
        threads=job.threads if isinstance(job.threads, tuple) else (job.threads, 1, 1),
        wave=kernel.wave,
        user_data=(va & 0xFFFFFFFF, va >> 32),
        lds_bytes=kernel.lds_bytes,
        scratch_bytes=STACK_BYTES if kernel.dynamic_stack else kernel.scratch_bytes,
        vgprs=kernel.vgprs,
        name=kernel.name,
    )
    return [f"{finding.rule}: {finding.sentence}" for finding in findings]


def check_job(job: Job) -> None:
    assert list_differences(job) == []


# Twice as wide, the same kernels show little more and compile longest.
QUICK64 = ("wave_ops64", "reduce_sum", "histogram", "float_division", "generic_pointers")
KEYS = [
    pytest.param(key, marks=[pytest.mark.slow] if kernel.wave == 64 and kernel.name not in QUICK64 else [])
    for key, kernel in KERNELS.items()
]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.slow(keep=30)
def test_compiled_kernels_match_the_reference(key: str) -> None:
    kernel = KERNELS[key]
    job = make_job(kernel.name)
    assert any(np.ascontiguousarray(e).view(np.uint8).any() for e in job.expected.values()), "not all zero"
    findings = run_kernel(EngineDevice(level="full"), kernel, job)
    check_job(job)
    assert not findings, "\n".join(findings)


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("key", KERNELS)
@pytest.mark.slow(keep=30)
def test_model_agrees_on_compiled_kernels(key: str) -> None:
    kernel = KERNELS[key]
    job = make_job(kernel.name)
    assert run_kernel(ModelDevice(), kernel, job) == []
    check_job(job)


def test_kernel_file_has_every_source_at_current_version() -> None:
    assert sorted((k.name, k.wave) for k in KERNELS.values()) == sorted(required_kernels())
    assert len({k.name for k in KERNELS.values()}) >= 30
    stale = [k.key for k in KERNELS.values() if k.source_hash != source_hash(k.name)]
    assert not stale, f"{stale}: {SOURCES.name} is newer; make the file again with {COMMAND}"


@pytest.mark.slow
@pytest.mark.parametrize("name, wave", required_kernels())
def test_compiler_reproduces_the_committed_image(name: str, wave: int) -> None:
    pytest.importorskip("ziglang")
    built = build_image(name, wave)
    assert built == replace(KERNELS[built.key], image=built.image)
    assert built.image == KERNELS[built.key].image
