"""The overview of all commands, grouped by intent, with this machine's state in one line.

Imports nothing heavy: summaries come from the first lines of the command modules, which are not imported.
"""

from __future__ import annotations

import os
import platform
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.host.version import __version__
from zinc_rt.kernels.native.levels import list_machine_levels

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True, slots=True)
class Group:
    """Commands for one purpose, in the order in which a new user needs them."""

    name: str
    intent: str
    commands: tuple[str, ...]


# One row per intent. tests/cli/test_overview.py fails for a command without a group.
GROUPS = (
    Group(
        "card",
        "bring up a card, find what is broken",
        ("devices", "doctor", "bring-up", "pm4-test", "vulkan-test", "mem-test", "accept", "bundle", "bisect-env"),
    ),
    Group(
        "kernel",
        "write, inspect and run GPU code",
        ("asm", "isa", "launch", "debug", "sanitize", "kernel-test", "pm4"),
    ),
    Group(
        "model",
        "run and serve a model",
        ("pull", "models", "run", "serve", "inspect", "tokenize", "logits", "image", "usage"),
    ),
    Group(
        "trust",
        "check values and speed",
        ("validate", "selftest", "compare", "judge", "golden", "trace", "replay", "perplexity", "perf"),
    ),
    Group("simulator", "work without a card", ("sim", "assumptions", "sched-test")),
    Group("maintainers", "build this project", ("vulkan",)),
    Group("zinc-rt", "this program", ("help", "version", "completion")),
)
BUILT_IN = {"help": "Show all commands, or the help of one command.", "version": "Print the version."}
OTHER = "other"  # the group of commands that another package registers
GAP = 2
DEFAULT_COLUMNS = 80


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The paths that the state line reads. Tests pass others."""

    drm: Path = Path("/sys/class/drm")
    dev: Path = Path("/dev")


def format_overview(commands: Iterable[str], paths: HostPaths | None = None, columns: int | None = None) -> str:
    """Return the page that `zinc-rt` alone prints: at most 20 lines of command names."""
    width = columns or shutil.get_terminal_size().columns
    groups = group_commands(commands)
    label = max(len(group.name) for group in groups) + GAP
    rows = [
        textwrap.fill(
            f"{group.name:<{label}}{'  '.join(group.commands)}",
            max(width, label + 20),
            subsequent_indent=" " * label,
            break_on_hyphens=False,
        )
        for group in groups
    ]
    state = f"{'machine':<{label}}{describe_machine(paths or HostPaths())}"
    return "\n".join(
        [
            f"ZINC_RT {__version__}: GPU bring-up and validation, with an LLM inference runtime.",
            "usage: zinc-rt COMMAND [OPTION ...]",
            "",
            *rows,
            "",
            state,
            f"{'next':<{label}}zinc-rt --help; zinc-rt help COMMAND; zinc-rt devices",
        ]
    )


def format_full_help(commands: Mapping[str, EntryPoint], columns: int | None = None) -> str:
    """Return the page of `zinc-rt --help`: every command with its summary, under the heading of its group."""
    width = max(map(len, [*commands, *BUILT_IN])) + GAP
    screen = max((columns or shutil.get_terminal_size().columns) - 1, width + 20)
    parts = []
    for group in group_commands(commands):
        rows = [
            textwrap.fill(
                f"  {name:<{width}}{BUILT_IN.get(name) or read_summary(commands[name])}",
                screen,
                subsequent_indent=" " * (width + 2),
                break_on_hyphens=False,
            )
            for name in group.commands
        ]
        parts.append("\n".join([f"{group.name}: {group.intent}", *rows]))
    return "\n\n".join(
        [
            "ZINC_RT: GPU bring-up and validation, with an LLM inference runtime.",
            "usage: zinc-rt COMMAND [OPTION ...]",
            *parts,
            "`zinc-rt COMMAND --help` lists a command's options with examples.\n"
            "All commands with main options: docs/commands.md. Environment: docs/settings.md.",
        ]
    )


def group_commands(commands: Iterable[str]) -> list[Group]:
    """Return the groups with the installed commands only. Commands without a group come last."""
    installed = {*commands, *BUILT_IN}
    groups = [
        Group(group.name, group.intent, tuple(name for name in group.commands if name in installed))
        for group in GROUPS
    ]
    others = installed.difference(*(group.commands for group in GROUPS))
    if others:
        groups.append(Group(OTHER, "commands of other packages", tuple(sorted(others))))
    return [group for group in groups if group.commands]


def read_summary(point: EntryPoint) -> str:
    """Return the first line of the command module's docstring, without importing the module."""
    path = _find_source(point.module)
    if path is None:
        return ""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith('"""'):
                return line.strip().strip('"')
    return ""


def _find_source(module: str) -> Path | None:
    """Return a module's file. `find_spec` imports the parent packages, so this package is searched by path."""
    package, _, rest = module.partition(".")
    if package == __name__.partition(".")[0]:
        return Path(__file__).parent.parent.joinpath(*rest.split(".")).with_suffix(".py")
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin else None


def describe_machine(paths: HostPaths) -> str:
    """Return one line with the GPUs and the tiers that this machine probably supports.

    Only files are read: no driver is opened, no library is loaded and nothing is compiled. `zinc-rt devices` does
    that.
    """
    gpus = list(_find_amd_render_nodes(paths))
    tiers = list(_list_cpu_tiers())
    if not gpus:
        return f"no AMD GPU; tiers {', '.join(tiers)}; t1, t2 with --device sim"
    listed = ", ".join(gpus)
    if not _is_accessible(paths.dev / "kfd"):
        return f"AMD GPU {listed}, but /dev/kfd is not accessible (zinc-rt doctor); tiers {', '.join(tiers)}"
    return f"AMD GPU {listed}; tiers {', '.join(tiers)}; t1, t2 after zinc-rt bring-up"


def _find_amd_render_nodes(paths: HostPaths) -> Iterator[str]:
    for node in sorted(paths.drm.glob("renderD*")):
        try:
            vendor = (node / "device" / "vendor").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if vendor == "0x1002":  # PCI_VENDOR_ID_ATI in include/linux/pci_ids.h
            yield node.name


def _list_cpu_tiers() -> Iterator[str]:
    has_kernels = bool(list_machine_levels(platform.machine()))
    if has_kernels and (os.environ.get("ZINC_RT_CC", "").strip() or find_spec("ziglang") is not None):
        yield "t_cpu_native"
    yield "t_cpu"


def _is_accessible(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)
