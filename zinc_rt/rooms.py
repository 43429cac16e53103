"""The rooms of the house: what each may import, and whether its files decide what a model computes.

A room is a folder of zinc_rt, or a file directly in it. tests/test_layout.py holds the code to this table, and
code_version.py hashes by it. A room that is to come has its row already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent
# May import every room; none imports them.
HARNESS = ("bringup", "bundle", "compare", "doctor", "golden", "perf", "probes", "replay", "trace", "validate")
EVERYBODY = frozenset({"errors", "files", "object_cache"})  # may be imported from everywhere
# What package data is made of; whatever else lies in a folder is nobody's.
SUFFIXES = (
    ".py", ".s", ".inc", ".zrt", ".c", ".h", ".comp", ".glsl", ".spv", ".cu", ".json", ".yaml", ".toml", ".html",
    ".js", ".css", ".jinja",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Room:
    """A room's row. `computes`: other files here may give other values, so what was computed by others is another
    result."""

    imports: frozenset[str]
    computes: bool = False


def _room(imports: str = "", *, computes: bool = False) -> Room:
    return Room(frozenset(imports.split()), computes)


_CORE = "backends exec ir kernels lower mem model settings"
_ENGINE = (
    f"{_CORE} resident runner graph_store vram_fit variants context_memory prefill sampling generate engine "
    "devices"
)
_HOST = (
    "sim kmd pm4 isa facts checked file_lock gpu_lock arguments terminal command_observer cli commands report "
    "code_version rooms host"
)
_ALL = f"{_ENGINE} llm launching finding_groups batching text sched serve spirv {_HOST}"

ROOMS: dict[str, Room] = {
    # what a model is and what computes it
    "ir": _room(computes=True),
    "kernels": _room(
        "ir isa spirv", computes=True
    ),  # isa: code objects, and what the .zrt header says of occupancy
    "mem": _room("ir", computes=True),
    "exec": _room(computes=True),
    "lower": _room("ir kernels mem", computes=True),
    "model": _room("ir kernels mem", computes=True),
    "backends": _room("exec lower kernels pm4 kmd ir mem spirv", computes=True),
    # machines, real and simulated
    "spirv": _room(computes=True),  # float modes are added at load
    "pm4": _room(),
    "kmd": _room(),
    "isa": _room(),
    "facts": _room(),
    "sim": _room("kmd pm4 isa facts arguments terminal"),
    # one model on one device
    "settings": _room("backends mem"),
    "devices": _room("backends kmd sim checked gpu_lock"),
    "checked": _room("kmd"),  # what probes passed here
    "file_lock": _room(),
    "gpu_lock": _room("file_lock"),
    "resident": _room(_CORE, computes=True),
    "graph_store": _room(_CORE, computes=True),
    "vram_fit": _room(f"{_CORE} resident", computes=True),
    "variants": _room(f"{_CORE} resident graph_store vram_fit", computes=True),
    "runner": _room(f"{_CORE} resident variants", computes=True),
    "context_memory": _room("mem model", computes=True),
    "engine": _room(f"{_CORE} resident graph_store variants runner context_memory", computes=True),
    "prefill": _room(_ENGINE, computes=True),
    "sampling": _room(computes=True),
    "generate": _room(_ENGINE, computes=True),
    "text": _room("model"),
    "batching": _room(f"{_ENGINE} sampling text sched code_version"),
    # code that others compiled
    "launching": _room("devices backends kernels kmd pm4 isa sim arguments gpu_lock finding_groups"),
    "llm": _room(f"{_ENGINE} sched batching"),
    # many requests
    "sched": _room("exec mem ir sampling file_lock"),
    "serve": _room(f"{_ENGINE} sched sampling text batching llm report arguments terminal"),
    # what people use
    "report": _room(),
    "finding_groups": _room(),
    "junit": _room("report"),
    "rooms": _room(),
    "host": _room("backends"),
    "code_version": _room("rooms"),
    "arguments": _room(),  # command lines
    "terminal": _room(),  # what is drawn on one
    "command_observer": _room("engine report"),
    "cli": _room("settings arguments terminal command_observer"),
    "commands": _room(_ALL),
    "examples": _room(_ALL),
    "errors": _room(),
    "files": _room(),
    "object_cache": _room(),
}


def files_of(room: str) -> Iterator[Path]:
    """A room's sources and package data, in a fixed order. Nothing where the room is still to come."""
    folder = ROOT / room
    found = folder.rglob("*") if folder.is_dir() else [folder.with_suffix(".py")]
    return (
        path
        for path in sorted(found)
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts
    )
