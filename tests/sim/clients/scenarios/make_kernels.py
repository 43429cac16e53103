"""kernels.s to kernels.h: descriptors and code as one image, and where each kernel's descriptor lies in it.

python -m tests.sim.clients.scenarios.make_kernels     # writes kernels.h; needs the extra `asm`
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from zinc_rt.isa.elf import read_section_contents, read_symbol_values

HERE = Path(__file__).parent
SOURCE, HEADER = HERE / "kernels.s", HERE / "kernels.h"
DESCRIPTOR_BYTES, ENTRY_OFFSET, CODE_ALIGNMENT = 64, 16, 256


def build_header() -> str:
    """What kernels.h holds. Raises CalledProcessError if the assembler fails."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "kernels.o"
        target = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-c"]
        subprocess.run(
            [sys.executable, "-m", "ziglang", "clang", *target, str(SOURCE), "-o", str(result)], check=True
        )
        data = result.read_bytes()
    sections = read_section_contents(data, SOURCE.name)
    symbols = {name: value for _, name, value in read_symbol_values(data, SOURCE.name)}
    names = sorted((name for name in symbols if f"{name}.kd" in symbols), key=symbols.__getitem__)
    image = bytearray(sections[".rodata"])
    image += bytes(-len(image) % CODE_ALIGNMENT)
    code = len(image)
    image += sections[".text"]
    lines = ["// Made of kernels.s by make_kernels.py.", "#pragma once", "#include <stdint.h>", ""]
    for name in names:
        descriptor = symbols[f"{name}.kd"]
        struct.pack_into("<q", image, descriptor + ENTRY_OFFSET, code + symbols[name] - descriptor)
        lines.append(f"#define KERNEL_{name.upper()} {descriptor:#x}")
    words = struct.unpack(f"<{len(image) // 4}I", image)
    rows = [", ".join(f"0x{word:08x}" for word in words[index : index + 8]) for index in range(0, len(words), 8)]
    return "\n".join(
        [*lines, "", "static const uint32_t kernel_image[] = {", *(f"    {row}," for row in rows), "};", ""]
    )


if __name__ == "__main__":
    HEADER.write_text(build_header())
