"""Kernels that clang compiled from c_kernels/*.c, as images with what their descriptors say.

python compiled_kernels.py       # compiles and writes compiled_kernels.npz (needs ziglang)
"""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SOURCES = HERE / "c_kernels"
FILE = HERE / "compiled_kernels.npz"
FORMAT = 1
COMMAND = "python tests/sim/shader/compiled_kernels.py"
FLAGS = (
    "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-nogpulib", "-O2", "-ffp-contract=off", "-std=gnu17",
    "-fvisibility=hidden", "-Wall", "-Werror",
)  # fmt: skip
# Those that are compiled for wave64: the ones that need it, and some of the others again.
WAVE64 = (
    "wave_ops64", "reduce_sum", "bitonic_sort", "mandelbrot", "queens", "power_modulo",
    "division64", "float_division", "recursion", "bytecode", "generic_pointers", "structs",
    "histogram", "unpack", "register_index",
)  # fmt: skip
ONLY_WAVE64 = ("wave_ops64",)
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DESCRIPTOR = struct.Struct("<IIII q 20x III HH")  # amdhsa kernel descriptor (LLVM AMDGPUUsage), 64 bytes
_LOAD, _DYNSYM, _RELA = 1, 11, 4
# kernel_code_properties
_KERNARG_POINTER, _WAVE32, _DYNAMIC_STACK = 1 << 3, 1 << 10, 1 << 11
_OTHER_USER_REGISTERS = 0x7F & ~_KERNARG_POINTER


@dataclass(frozen=True, slots=True)
class CompiledKernelImage:
    """`entry` is the kernel's byte in the image. `source_hash` is of the C, the header and the flags."""

    name: str
    wave: int
    entry: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    vgprs: int
    dynamic_stack: bool
    source_hash: str
    image: bytes = b""

    @property
    def key(self) -> str:
        return f"{self.name}-wave{self.wave}"


def required_kernels() -> list[tuple[str, int]]:
    """(name, wave) of every kernel there should be."""
    names = sorted(path.stem for path in SOURCES.glob("*.c"))
    result = [(name, 32) for name in names if name not in ONLY_WAVE64]
    return result + [(name, 64) for name in WAVE64]


def source_hash(name: str) -> str:
    text = (SOURCES / f"{name}.c").read_bytes() + (SOURCES / "gpu.h").read_bytes() + " ".join(FLAGS).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def build_image(name: str, wave: int) -> CompiledKernelImage:
    with tempfile.TemporaryDirectory() as folder:
        item, linked = Path(folder) / "k.o", Path(folder) / "k.so"
        clang = [sys.executable, "-m", "ziglang", "clang", *FLAGS, *(["-mwavefrontsize64"] if wave == 64 else [])]
        for command in (
            [*clang, "-c", str(SOURCES / f"{name}.c"), "-o", str(item)],
            [sys.executable, "-m", "ziglang", "ld.lld", "-shared", str(item), "-o", str(linked)],
        ):
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                raise SystemExit(f"{name}: {result.stderr[:2000]}")
        return parse_images(linked.read_bytes(), name, wave)


def parse_images(data: bytes, name: str, wave: int) -> CompiledKernelImage:
    """Return the loaded image and the descriptor of the only kernel in a linked code object."""
    program_at, section_at = struct.unpack_from("<QQ", data, 0x20)
    program_count, section_count = struct.unpack_from("<H", data, 0x38)[0], struct.unpack_from("<H", data, 0x3C)[0]
    segments = [_SEGMENT.unpack_from(data, program_at + 56 * i) for i in range(program_count)]
    loads = [(s[3], s[2], s[5]) for s in segments if s[0] == _LOAD]
    image = bytearray(max(va + size for va, _, size in loads))
    for va, index, size in loads:
        image[va : va + size] = data[index : index + size]
    sections = [_SECTION.unpack_from(data, section_at + 64 * i) for i in range(section_count)]
    if any(s[1] == _RELA and s[5] for s in sections):
        raise SystemExit(f"{name}: the image has relocations, but its load address is not fixed")
    table = next(s for s in sections if s[1] == _DYNSYM)
    names = sections[table[6]]
    result = None
    for index in range(table[4], table[4] + table[5], _SYMBOL.size):
        text, _, _, _, value, _ = _SYMBOL.unpack_from(data, index)
        start = names[4] + text
        if data[start : data.index(b"\0", start)].endswith(b".kd"):
            result = value
    assert result is not None, f"{name}: no kernel descriptor"
    lds, scratch, kernarg, _, offset, _, rsrc1, _, properties, _ = _DESCRIPTOR.unpack_from(image, result)
    if properties & _OTHER_USER_REGISTERS or not properties & _KERNARG_POINTER:
        raise SystemExit(f"{name}: kernel_code_properties {properties:#x}, expected the kernarg pointer alone")
    assert bool(properties & _WAVE32) == (wave == 32), name
    end = len(image.rstrip(b"\0"))
    vgprs = ((rsrc1 & 63) + 1) * (8 if wave == 32 else 4)
    return CompiledKernelImage(
        name, wave, result + offset, lds, scratch, kernarg, vgprs, bool(properties & _DYNAMIC_STACK),
        source_hash(name), bytes(image[: end + -end % 256]),
    )  # fmt: skip


def read_images(path: Path = FILE) -> dict[str, CompiledKernelImage]:
    with np.load(path) as file:
        meta = json.loads(file["meta"].tobytes())
        if meta["format"] != FORMAT:
            raise ValueError(f"{path}: format {meta['format']}, expected {FORMAT}. Recreate it with: {COMMAND}")
        result, index = {}, 0
        for entry, length in zip(meta["kernels"], file["lengths"], strict=True):
            compiled = CompiledKernelImage(**entry, image=file["images"][index : index + int(length)].tobytes())
            index += int(length)
            result[compiled.key] = compiled
        return result


def main() -> None:
    kernels = [build_image(name, wave) for name, wave in required_kernels()]
    entries = [{k: v for k, v in asdict(kernel).items() if k != "image"} for kernel in kernels]
    meta = json.dumps({"format": FORMAT, "command": COMMAND, "flags": FLAGS, "kernels": entries})
    np.savez_compressed(
        FILE,
        images=np.frombuffer(b"".join(kernel.image for kernel in kernels), np.uint8),
        lengths=np.array([len(kernel.image) for kernel in kernels], np.int64),
        meta=np.frombuffer(meta.encode(), np.uint8),
    )
    print(f"{FILE.name}: {len(kernels)} kernels, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
