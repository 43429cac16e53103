"""What docs/extending.md shows, done: a section's diffs applied to a copy of the package, which tests then run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "extending.md"
_CHANGED = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ExtendedTree:
    """A copy of the package at `root` with a section's changes; `files` are the changed files according to the
    page.
    """

    root: Path
    files: tuple[str, ...]

    def interpreter_in(self, *words: str, seconds: float = 240.0) -> subprocess.CompletedProcess[str]:
        """The interpreter of the tests, with this package instead of the installed one."""
        environment = {**os.environ, "PYTHONPATH": f"{self.root}{os.pathsep}{ROOT / 'tests'}"}
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def read_diffs(section: str) -> list[str]:
    """The ```diff blocks below a heading of the page."""
    _, result, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    assert result, f"{PAGE} has no section {section!r}"
    return re.findall(r"^```diff\n(.*?)^```$", rest.partition("\n## ")[0], re.MULTILINE | re.DOTALL)


def extend_tree(section: str, folder: Path, *also: str) -> ExtendedTree:
    """A copy of the package in `folder` with the section's diffs applied. Each diff must apply without changes.
    `also`: other files of the checkout that the copy needs, such as tests.
    """
    root = folder / "tree"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "zinc_rt", root / "zinc_rt", symlinks=True, ignore=skipped)
    for link in (root / "zinc_rt").iterdir():
        if link.is_symlink():
            shutil.copytree((ROOT / "zinc_rt" / link.name).resolve(), root / link.name, ignore=skipped)
    patch = "".join(read_diffs(section))
    files = tuple(_CHANGED.findall(patch))
    for file in (*files, *also):
        if not (root / file).exists() and (ROOT / file).is_file():  # of tests or docs
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, root / file)
    result = subprocess.run(
        ["git", "apply", "--verbose", "-"], cwd=root, input=patch, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{PAGE}, section {section!r} does not apply:\n{result.stderr}"
    return ExtendedTree(root, files)
