"""The packages of the runtime: the imports allowed in each, and whether its files affect a model's results.

tests/test_layout.py checks the code against this table, and version.py selects files for its hashes by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
# May import every package; no package of the runtime imports them.
HARNESS = ("doctor", "golden", "perf", "probes", "replay", "trace", "validate")
HARNESS_API = "harness"  # zinc_rt/harness.py: imports the harness folders; no other module imports it
EVERYWHERE = frozenset({"host"})  # may be imported from every package
# Suffixes of source and package data; other files in a package are ignored.
SUFFIXES = (
    ".py", ".s", ".inc", ".zrt", ".c", ".h", ".comp", ".glsl", ".spv", ".cu", ".json", ".yaml", ".toml", ".html",
    ".js", ".css", ".jinja", ".xz",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Package:
    """A package's row. `computes`: its files affect values, so a change may change results."""

    imports: frozenset[str]
    computes: bool = False


def _make_package(imports: str = "", *, computes: bool = False) -> Package:
    return Package(frozenset(imports.split()), computes)


_DEVICES = "kmd pm4 isa sim"
_COMPUTE = "backends exec ir kernels lower mem model"

PACKAGES: dict[str, Package] = {  # lowest first: a package imports only from rows above its own
    "host": _make_package(),
    "errors": _make_package(),  # the public path of host/errors.py; not imported inside the package
    # models and their kernels
    "exec": _make_package(computes=True),
    "ir": _make_package(computes=True),
    "spirv": _make_package(computes=True),  # adds float modes at load
    "isa": _make_package(),
    "pm4": _make_package("isa"),  # of isa, pm4 and kmd: the table of chips
    "kmd": _make_package("isa"),
    "kernels": _make_package("ir isa spirv", computes=True),  # isa: code objects, occupancy in the .zrt header
    "mem": _make_package("ir", computes=True),
    "cost": _make_package(computes=True),  # the cost model of predictions, step times and gates
    "sched": _make_package("cost exec ir mem", computes=True),  # sampling parameters
    "sim": _make_package("kmd pm4 isa"),
    "lower": _make_package("ir kernels mem", computes=True),
    "model": _make_package("ir kernels mem", computes=True),
    "backends": _make_package("exec ir isa kernels kmd lower mem pm4 spirv", computes=True),
    # one model on one device, and code compiled elsewhere
    "engine": _make_package(f"{_COMPUTE} sched isa kmd sim", computes=True),  # kmd, sim: through devices.py alone
    "launching": _make_package("backends engine isa kernels kmd pm4 sim"),
    # the interfaces for people
    "serve": _make_package(f"{_COMPUTE} engine sched"),
    "cli": _make_package(f"{_COMPUTE} {_DEVICES} engine launching sched serve spirv"),
}


def list_files(name: str) -> Iterator[Path]:
    """Yield the sources and package data of a package, or of one file of it (`engine/variants.py`), in a fixed
    order.

    A name without files yields nothing.
    """
    path = ROOT / name
    if path.is_dir():
        candidates = sorted(path.rglob("*"))
    else:
        candidates = [path if path.suffix else path.with_suffix(".py")]
    return (
        file
        for file in candidates
        if file.suffix in SUFFIXES and file.is_file() and "__pycache__" not in file.parts
    )
