"""What a user does: a command, and where it fails the commands that its own words advise."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fault_row import Fault

SECONDS = 600  # for one command; one that takes longer is a hang of its own
ADVICE = re.compile(r"^\s*(?:next|repro)(?::|\s)\s*(zinc-rt\b.*)$", re.MULTILINE)
MODELS = {  # {name} in a row's command
    name: f"--model {{tree}}/golden/{name}-q.gguf --golden {{tree}}/golden/{name}-q.npz"
    for name in ("qwen3", "gemma4", "gemma4moe", "qwen35moe")
}
BARE = {f"{name}.gguf": f"{{tree}}/golden/{name}-q.gguf" for name in MODELS}


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A command as typed by the user, its exit code and its output."""

    command: str
    exit: int
    text: str


def run_fault_commands(fault: Fault, tree: Path, *, cache: Path) -> list[CommandOutput]:
    """Run the fault's commands up to the first that fails, then as many of the recommended commands as its row
    requests.
    """
    result: list[CommandOutput] = []
    for command in fault.run:
        result.append(run_command(fill_placeholders(command, tree), tree, cache))
        if result[-1].exit:
            break
    for _ in range(fault.follow):
        if not result[-1].exit:
            break
        advised = next(advised_commands(result), "")
        if not advised:
            break
        result.extend(run_command(part, tree, cache) for part in advised.split(" ; "))
    return result


def fill_placeholders(command: str, tree: Path) -> str:
    for name, text in {**BARE, **MODELS}.items():
        command = command.replace(f"{{{name}}}", text)
    for count in ("20", "300"):  # so many tokens
        tokens = ",".join(str((37 * index + 11) % 500) for index in range(int(count)))
        command = command.replace(f"{{{count}}}", tokens)
    return command.replace("{tree}", str(tree))


def advised_commands(outputs: list[CommandOutput]) -> Iterator[str]:
    """Return commands that the last output recommends and that have not run yet; `next` before `repro`."""
    texts = {f"zinc-rt {item.command}" for item in outputs}
    matches = [match for item in reversed(outputs) for match in ADVICE.finditer(item.text)]
    for kind in ("next", "repro"):
        for match in matches:
            if match[0].strip().startswith(kind) and not set(match[1].split(" ; ")) & texts:
                yield match[1]


def run_command(command: str, tree: Path, cache: Path, *, seconds: float = SECONDS) -> CommandOutput:
    """Run a command as behind `zinc-rt` with the tree's code, for at most `seconds`."""
    folder = tree / "work"
    folder.mkdir(exist_ok=True)
    name, *arguments = shlex.split(command)
    if name == "zinc-rt":
        name, *arguments = arguments
    name = name.removeprefix("zinc-rt-")
    environment = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(cache), "COLUMNS": "2000"}
    argv = [sys.executable, "-m", "zinc_rt.cli", name, *arguments]
    try:
        result = subprocess.run(
            argv, cwd=folder, env=environment, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        code, text = result.returncode, result.stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as late:
        so_far = (late.stdout or b"").decode("utf-8", "replace")
        code, text = 124, f"{so_far}\n(still running after {seconds:g} s)\n"
    return CommandOutput(shlex.join([name, *arguments]), code, text)
