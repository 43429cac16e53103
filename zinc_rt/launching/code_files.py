"""Read kernels from files: code objects, .zrt containers, and Triton's JSON next to a code object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.kernels.zrt import MAGIC, Zrt, read_zrt
from zinc_rt.launching.code_object import CodeImage, CodeKernel, KernelArgument, read_code_object
from zinc_rt.launching.source import ASSEMBLY, compile_source, is_source
from zinc_rt.launching.source_lines import read_source_lines

_KERNARG_POINTER, _WAVE32 = 1 << 3, 1 << 10  # of kernel_code_properties
_TRITON_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # pointers after the kernel's arguments


@dataclass(frozen=True, slots=True)
class TritonMetadata:
    """The launch parameters in Triton's JSON. `shared_bytes`: dynamic LDS; `scratch_bytes`: per workgroup, of each
    pointer that Triton appends to the arguments."""

    name: str
    shared_bytes: int
    threads: int
    scratch_bytes: tuple[int, ...]


def read_code(code: str | Path | bytes) -> tuple[str, bytes]:
    """Return the name and the bytes of a file. Raise InputError if it cannot be read."""
    if isinstance(code, bytes):
        return "code object", code
    try:
        return str(code), Path(code).read_bytes()
    except OSError as error:
        raise make_read_error(code, error) from None


def read_image(code: str | Path | bytes, *, arch: str = DEFAULT_ARCH, flags: Sequence[str] = ()) -> CodeImage:
    """Return the image of a code object, a .zrt container, or a source (.cl, .hip, .s), which is
    compiled for `arch` with `flags`.

    A code object with Triton's JSON next to it, of the same name, gets its launch parameters. Raise InputError for
    a damaged file or a source that the compiler rejects, NothingRan without a compiler.
    """
    if not isinstance(code, bytes) and is_source(code):
        source, data = str(code), compile_source(Path(code), arch, flags)
    else:
        source, data = read_code(code)
    if data.startswith(MAGIC):
        return _make_zrt_image(read_zrt(data, source), source)
    lines = read_source_lines(data, source)
    image = replace(read_code_object(data, source), line_at=lines.at, lines_missing=lines.missing)
    if not isinstance(code, bytes) and Path(code).suffix == ASSEMBLY:
        image = replace(image, compiler="")  # the author's own waits count
    triton = None if isinstance(code, bytes) else read_triton_metadata(Path(code))
    return image if triton is None else _add_triton_metadata(image, triton)


def read_triton_metadata(code: Path) -> TritonMetadata | None:
    """Return the contents of the JSON next to a code object, or None if there is none or it is not Triton's. Raise
    InputError if it is Triton's and cannot be used."""
    path = code.with_suffix(".json")
    try:
        metadata: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(metadata, dict) or not {"triton_version", "shared", "num_warps"} <= set(metadata):
        return None
    try:
        warp = int(metadata.get("warp_size", 32))
        scratch = tuple(int(metadata.get(key, 0)) for key in _TRITON_SCRATCH)
        return TritonMetadata(
            str(metadata["name"]), int(metadata["shared"]), int(metadata["num_warps"]) * warp, scratch
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: Triton's metadata cannot be used: {error!r}") from None


def _add_triton_metadata(image: CodeImage, triton: TritonMetadata) -> CodeImage:
    kernel = image.kernels.get(triton.name)
    if kernel is None:
        return image
    scratch = triton.scratch_bytes
    kinds = [item.kind for item in kernel.shown[len(kernel.shown) - len(scratch) :]]
    launchable = replace(
        kernel,
        dynamic_lds_bytes=max(triton.shared_bytes - kernel.group_bytes, 0),
        threads=(triton.threads, 1, 1),
        scratch_pointers=scratch if kinds == ["global_buffer"] * len(scratch) else (),
    )
    return replace(image, kernels={**image.kernels, triton.name: launchable})


def _make_zrt_image(zrt: Zrt, source: str) -> CodeImage:
    """Return the image of a container: its buffers, then its constants of 4 bytes, unnamed."""
    buffers = [KernelArgument("", "global_buffer", 8 * index, 8) for index in range(zrt.buffers)]
    after = 8 * zrt.buffers
    constants = [KernelArgument("", "by_value", after + index, 4) for index in range(0, zrt.constant_bytes, 4)]
    kernel = CodeKernel(
        name=zrt.name,
        arguments=(*buffers, *constants),
        kernarg_bytes=zrt.kernarg_bytes,
        group_bytes=zrt.lds_bytes,
        private_bytes=zrt.scratch_bytes,
        dynamic_stack=False,
        descriptor_at=0,
        entry_at=zrt.entry_offset,
        rsrc1=zrt.rsrc1,
        rsrc2=zrt.rsrc2,
        rsrc3=zrt.rsrc3,
        properties=_KERNARG_POINTER | (_WAVE32 if zrt.wave == 32 else 0),
        preload=0,
        threads=zrt.workgroup,
    )
    return CodeImage(
        zrt.target,
        zrt.image,
        (),
        {zrt.name: kernel},
        zrt.compiler,
        source,
        has_descriptors=False,
        line_at=zrt.find_place,
    )
