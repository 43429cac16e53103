"""Help is quick: it imports nothing heavy. And it teaches."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

NAMES = ("run", "inspect", "logits", "tokenize")
HEAVY = ("numpy", "gguf", "jinja2", "tabulate", "tqdm")


@pytest.mark.parametrize("name", NAMES)
def test_help_imports_nothing_heavy(name: str) -> None:
    program = (
        "import sys\n"
        f"from zinc_rt.commands.{name} import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as exit:\n    assert exit.code == 0\n"
        f"heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "print('heavy:', *heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy:"
    assert f"usage: zinc-rt {name}" in done.stdout and "examples:" in done.stdout


def test_each_command_is_registered_under_its_name() -> None:
    registered = {point.name: point.value for point in entry_points(group="zinc_rt.commands")}
    scripts = {point.name: point.value for point in entry_points(group="console_scripts")}
    for name in NAMES:
        assert registered[name] == scripts[f"zinc-rt-{name}"] == f"zinc_rt.commands.{name}:main"
