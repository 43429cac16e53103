"""Machine code of the memory tests: each test file has its sources, memory_kernels.json what they assemble to.

python tests/sim/shader/memory_kernels.py       assembles what is missing (needs ziglang), drops what is unused
"""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
COMMAND = f"python tests/sim/shader/{Path(__file__).name}"
MODULES = ("test_shader_memory", "test_shader_lds", "test_shader_atomics", "test_shader_checks")
WAVE64 = "// wave64\n"  # first line of a source that needs it


def source_key(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@cache
def load_known() -> Mapping[str, str]:
    return json.loads(FILE.read_text())


def machine_code(source: str) -> bytes:
    """The machine code of a module's KERNELS."""
    result = load_known().get(source_key(source))
    if result is None:
        raise LookupError(f"not assembled yet: {source[:60]!r}…; run: {COMMAND}")
    return bytes.fromhex(result)


def assemble_source(source: str) -> bytes:
    """By zig's clang."""
    from zinc_rt.isa.elf import read_elf

    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder)
        (index / "k.s").write_text(f'.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"\n{source}\n')
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        command += ["-mwavefrontsize64"] * source.startswith(WAVE64)
        subprocess.run([*command, "-c", str(index / "k.s"), "-o", str(index / "k.o")], check=True)
        [section, *_] = read_elf((index / "k.o").read_bytes(), "k.o").sections
        return bytes(section.code)


def list_sources() -> Iterator[str]:
    sys.path.insert(0, str(FILE.parent))
    for name in MODULES:
        yield from importlib.import_module(name).KERNELS.values()


def main() -> None:
    have = dict(load_known()) if FILE.exists() else {}
    result = {
        source_key(source): have.get(source_key(source)) or assemble_source(source).hex()
        for source in list_sources()
    }
    FILE.write_text(json.dumps(dict(sorted(result.items())), indent=0) + "\n")
    print(f"{FILE.name}: {len(result)} kernels")


if __name__ == "__main__":
    main()
