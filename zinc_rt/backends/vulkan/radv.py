"""Compile SPIR-V with RADV for a chip that is not present, and return pipeline caches. It runs in a separate
process.

Mesa reads RADV_FORCE_FAMILY when the driver is loaded. It then offers a device of that name without hardware:
pipelines can be created but not run. See docs/radv.md.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.backends.vulkan import icd
from zinc_rt.host.errors import InputError, NothingRan, UsageError
from zinc_rt.isa.target import CHIPS as isa_chips
from zinc_rt.isa.target import DEFAULT_ARCH

CHIPS = tuple(chip.name for chip in isa_chips if chip.kernels == chip.name)
_FAMILIES = {"gfx1100": "navi31"}  # RADV_FORCE_FAMILY, where it is not the chip's name (Mesa, ac_get_family_name)
LIBRARY = "libvulkan_radeon.so"
NEXT = (
    "Mesa 25.0.7 is known to work (mesa-vulkan-drivers of Debian 13 or bookworm-backports); --driver FILE names "
    "its libvulkan_radeon.so or the manifest of that"
)
TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RadvCompiled:
    """The compiled kernels. `mesa`: the version, such as 25.0.7. `caches`: the output of vkGetPipelineCacheData by
    kernel."""

    mesa: str
    driver: str
    caches: Mapping[str, bytes]


def find_driver(named: str = "") -> Path:
    """Find RADV's library: from the manifest or library `named`, else an installed manifest, else next to another
    Mesa driver. A name without a folder is resolved by the dynamic linker.

    Raise InputError if `named` is neither, NothingRan if there is no driver.
    """
    if named:
        path = Path(named)
        if path.suffix == ".json":
            driver = icd.read_manifest(path)
            if driver.trouble:
                raise InputError(f"{path}: {driver.trouble}")
            return Path(driver.library)
        if not path.is_file():
            raise InputError(f"--driver {named}: no such file", next=f"expected {LIBRARY} or its manifest")
        return path.resolve()
    drivers = [Path(item.library) for item in icd.list_installed_drivers() if not item.trouble]
    # A name without a folder was found by the linker.
    named_so = [driver for driver in drivers if driver.name == LIBRARY]
    for library in [*named_so, *(driver.with_name(LIBRARY) for driver in drivers)]:
        if library in named_so or library.is_file():
            return library  # absolute, or a name alone
    raise NothingRan("RADV not found: it is in no manifest and not in the folder of another driver", next=NEXT)


def compile_modules(modules: Mapping[str, bytes], chip: str = DEFAULT_ARCH, *, driver: str = "") -> RadvCompiled:
    """Compile each module for `chip`. Return the results by name. The modules are as committed: float modes are
    added here.

    Raise UsageError for a chip without containers, InputError if RADV refuses a module or the process fails, and
    the errors of `find_driver`.
    """
    if chip not in CHIPS:
        raise UsageError(f"--radv {chip}: expected one of {', '.join(CHIPS)}")
    library = find_driver(driver)
    with tempfile.TemporaryDirectory(prefix="zinc-rt-radv-") as name:
        folder = Path(name)
        for kernel, spirv in modules.items():
            (folder / f"{kernel}.spv").write_bytes(spirv)
        _run(folder, library, chip)
        output = json.loads((folder / "told.json").read_text(encoding="utf-8"))
        caches = {kernel: (folder / f"{kernel}.cache").read_bytes() for kernel in modules}
    return RadvCompiled(output["mesa"], output["driver"], caches)


def _run(folder: Path, library: Path, chip: str) -> None:
    """Run the child process over a folder. Raise InputError with its last output and the kernel in progress."""
    manifest = folder / "radv.json"
    about = {"library_path": str(library), "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": about}), encoding="utf-8")
    command = [sys.executable, "-m", "zinc_rt.backends.vulkan.radv_child", str(folder)]
    environment = _make_environment(manifest, chip)
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"RADV ({library}) did not finish compiling within {TIMEOUT_SECONDS:g} s") from None
    if result.returncode:
        now = folder / "now"
        kernel = f"kernel {now.read_text(encoding='utf-8')}: " if now.is_file() else ""
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        ended = (
            signal.Signals(-result.returncode).name if result.returncode < 0 else f"exit code {result.returncode}"
        )
        reason = " ".join(
            lines[-1:] if result.returncode > 0 else [*lines[-1:], f"(its process ended with {ended})"]
        )
        raise InputError(f"{kernel}RADV ({library}) did not compile it: {reason}", next=NEXT)


def _make_environment(manifest: Path, chip: str) -> dict[str, str]:
    """Return this process's environment, restricted to this driver, without layers and without a disk cache."""
    own = {
        key: value for key, value in os.environ.items() if not key.startswith(("VK_", "RADV_", "ACO_", "MESA_"))
    }
    return own | {
        "VK_DRIVER_FILES": str(manifest),
        "VK_ICD_FILENAMES": str(manifest),
        "VK_LOADER_LAYERS_DISABLE": "~all~",
        "RADV_FORCE_FAMILY": _FAMILIES.get(chip, chip),
        "MESA_SHADER_CACHE_DISABLE": "true",
    }
