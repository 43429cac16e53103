"""Import paths of version 0.1 that moved in 0.2. They keep working until 0.3, with a DeprecationWarning.

A finder at the end of `sys.meta_path` answers for the old names only, so a name that exists is never redirected.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Modules and packages, below zinc_rt: old path -> new path. The longest old path that matches decides.
MOVED = {
    "arguments": "host.arguments",
    "checked": "engine.checked",
    "code_version": "host.version",
    "command_observer": "cli.observer",
    "context_memory": "engine.memory_fit",
    "devices": "engine.devices",
    "facts": "host.facts",
    "file_lock": "host.locks",
    "files": "host.files",
    "finding_groups": "launching.finding_groups",
    "golden.check": "validate.goldens.check",
    "golden.command": "validate.goldens.command",
    "golden.diff": "validate.goldens.diff",
    "golden.listing": "validate.goldens.listing",
    "golden.parser": "validate.goldens.parser",
    "golden.validity": "validate.goldens.listing",
    "gpu_lock": "host.locks",
    "graph_store": "engine.graph_store",
    "junit": "cli.junit",
    "llm": "engine.llm",
    "object_cache": "host.object_cache",
    "prefill": "engine.prefill",
    "probes.output.bundle": "doctor.bundle.probe_runs",
    "replay.rebuilt": "trace.rebuilt",
    "replay.tape": "trace.tape",
    "replay.weight_sources": "trace.weight_sources",
    "report": "cli.report",
    "resident": "engine.resident",
    "rooms": "host.packages",
    "runner": "engine.runner",
    "sampling": "sched.sampling",
    "settings": "host.settings",
    "terminal": "host.terminal",
    "text": "engine.answering",
    "variants": "engine.variants",
    "vram_fit": "engine.memory_fit",
    "batching": "engine",
    "bringup": "doctor.bringup",
    "bundle": "doctor.bundle",
    "commands": "cli",
    "compare": "validate.compare",
}


class _MovedLoader(Loader):
    """Load an old name as the module of its new name."""

    def __init__(self, new: str) -> None:
        self._new = new
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has set the old name's


class _MovedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = new_name(fullname)
        if new is None:
            return None
        warnings.warn(f"{fullname} is {new} since 0.2", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, _MovedLoader(new))


def new_name(fullname: str) -> str | None:
    """Return the new location of a module of 0.1; None for a name that did not move."""
    package, _, below = fullname.partition(".")
    if package != "zinc_rt":
        return None
    parts = below.split(".")
    for count in range(len(parts), 0, -1):
        if new := MOVED.get(".".join(parts[:count])):
            return ".".join(("zinc_rt", new, *parts[count:]))
    return None


def install() -> None:
    """Append the finder; a second call does nothing."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(_MovedFinder())
