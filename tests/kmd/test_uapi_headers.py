"""Every declared size, offset, constant and ioctl number, against the real kernel headers.

A C compiler that ships Linux headers (ziglang; 7.2 in 0.17) turns one table of C expressions into assembly, where
the numbers stand as data: nothing is linked or run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
from kmd import unsent_ioctls

from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.structs import Ioctl, Struct

MODULES = (drm, amdgpu, kfd, unsent_ioctls)
MARK = 0x5A << 56  # keeps the assembler from folding zeros together
SINCE = 7 << 16 | 2 << 8  # LINUX_VERSION_CODE the declarations follow


def uapi_constants(module: ModuleType) -> dict[str, int]:
    prefixes = ("KFD_", "DRM_", "AMDGPU_")
    return {name: n for name, n in vars(module).items() if name.startswith(prefixes) and isinstance(n, int)}


def uapi_structs(module: ModuleType) -> list[Struct]:
    result = [item for item in vars(module).values() if isinstance(item, Struct)]
    return [item for item in result if not item.c_name.startswith("proposed ")]


def declared_values() -> dict[str, int]:
    """Yield a C expression for each fact, with its declared value."""
    facts: dict[str, int] = {}
    for module in MODULES:
        for struct in uapi_structs(module):
            facts[f"sizeof({struct.c_name})"] = struct.size_bytes
            for name, field in struct.fields.items():
                facts[f"offsetof({struct.c_name}, {field.c_path})"] = struct.offsets[name]
                facts[f"sizeof((({struct.c_name} *)0)->{field.c_path})"] = field.size_bytes
        facts |= {f"(unsigned int)({name})": value for name, value in uapi_constants(module).items()}
        facts |= {
            ioctl.name: ioctl.request for ioctl in module.IOCTLS.values() if ioctl.name != "DRM_COMMAND_BASE"
        }
    return facts


def c_program(expressions: list[str]) -> str:
    lines = [
        "#include <stddef.h>",
        "#include <linux/version.h>",
        "#include <drm/drm.h>",
        "#include <drm/amdgpu_drm.h>",
        "#include <linux/kfd_ioctl.h>",
        "unsigned long long facts[] = {",
        *(
            f"  {MARK}ULL ^ (unsigned long long)({expression}),"
            for expression in ("LINUX_VERSION_CODE", *expressions)
        ),
        "};",
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def real_headers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    if find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: pip install 'zinc-rt[asm]'")
    folder = tmp_path_factory.mktemp("uapi")
    source, assembly = folder / "facts.c", folder / "facts.s"
    expressions = sorted(declared_values())
    source.write_text(c_program(expressions))
    # an explicit target: the wheel's own headers, never this machine's
    target = ["-target", "x86_64-linux-musl", "-w", "-S"]
    built = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *target, "-o", str(assembly), str(source)],
        env={**os.environ, **{f"ZIG_{which}_CACHE_DIR": str(folder / "cache") for which in ("LOCAL", "GLOBAL")}},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    quads = re.findall(r"^\s*\.quad\s+(-?\d+)", assembly.read_text(), re.MULTILINE)
    version, *values = (int(quad) % (1 << 64) ^ MARK for quad in quads)
    if version < SINCE:
        pytest.skip(f"headers of Linux {version >> 16}.{version >> 8 & 255}: the declarations are of 7.2")
    return dict(zip(expressions, values, strict=True))


def test_sizes_offsets_and_numbers_match_the_headers(real_headers: dict[str, int]) -> None:
    wrong = {
        item: (value, real_headers[item])
        for item, value in declared_values().items()
        if real_headers[item] != value & (1 << 64) - 1
    }
    assert not wrong, "(declared, header): " + repr(wrong)


def test_comparison_is_not_empty() -> None:
    facts = declared_values()
    assert sum(fact.startswith(("sizeof(struct", "sizeof(union")) for fact in facts) >= 50
    assert sum(fact.startswith("offsetof") for fact in facts) >= 300
    assert sum(isinstance(ioctl, Ioctl) for module in MODULES for ioctl in module.IOCTLS.values()) >= 45


def test_no_struct_field_is_missing() -> None:
    """Fields leave no hole but padding: what is not declared would travel as zero for ever."""
    for module in MODULES:
        for struct in uapi_structs(module):
            covered = {
                byte
                for name, field in struct.fields.items()
                for byte in range(struct.offsets[name], struct.offsets[name] + field.size_bytes)
            }
            holes = set(range(struct.size_bytes)) - covered
            assert len(holes) <= HOLES.get(struct.c_name, 0), (struct, sorted(holes))


HOLES = {  # bytes C itself leaves between members or at the end, or the rest of a union
    "struct drm_version": 4,
    "struct drm_amdgpu_info_hw_ip": 4,
    "struct drm_amdgpu_info_device": 8,
}
