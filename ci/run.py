#!/usr/bin/env python3
"""Set up .venv and run one command in it: `python3 ci/run.py NAME [ARG ...]`.

Needs Python 3.11 and pip, nothing else: no ensurepip, no compiler, no network but the package index.

  test [--slow]   the test suite (--slow: the full counts)
  lint            ruff and mypy
  NAME ...        the command zinc-rt-NAME, for instance: validate, run, inspect, golden
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
STAMP = VENV / "pyproject.sha256"


def make_venv() -> None:
    """What `python -m venv --without-pip` makes, without needing the venv module (Debian splits it off)."""
    BIN.mkdir(parents=True, exist_ok=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (VENV / "lib" / version / "site-packages").mkdir(parents=True, exist_ok=True)
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (VENV / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
        f"version = {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}\n"
    )
    for name in ("python", "python3"):
        link = BIN / name
        if link.is_symlink() or link.exists():
            link.unlink()
        link.symlink_to(base)


def fingerprint() -> str:
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    digest.update(f"{sys.version_info[:3]}".encode())
    return digest.hexdigest()


def set_up() -> None:
    if STAMP.exists() and STAMP.read_text() == fingerprint() and PYTHON.exists():
        return
    print("setting up .venv (once, and again when pyproject.toml changes) ...", file=sys.stderr, flush=True)
    make_venv()
    pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--editable", f"{ROOT}[dev]"]
    if subprocess.call(install) != 0:
        sys.exit(
            "ci/run.py: pip could not install the dependencies (see above). "
            "It needs pip >= 22.3 and a reachable package index; then run the same command again."
        )
    STAMP.write_text(fingerprint())


def command(name: str, arguments: list[str]) -> list[list[str]]:
    """The process or processes behind a name, run in order until one fails."""
    if name == "test":
        return [[str(PYTHON), "-m", "pytest", *arguments]]
    if name == "lint":
        return [
            [str(PYTHON), "-m", "ruff", "check", "."],
            [str(PYTHON), "-m", "ruff", "format", "--check", "."],
            [str(PYTHON), "-m", "mypy"],
        ]
    script = BIN / f"zinc-rt-{name}"
    if script.exists():
        return [[str(script), *arguments]]
    return [[str(BIN / "zinc-rt"), name, *arguments]]


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    if sys.version_info < (3, 11):  # noqa: UP036  (this file is what tells them)
        print(f"ci/run.py: needs Python 3.11 or newer, this is {sys.version.split()[0]}", file=sys.stderr)
        return 2
    set_up()
    for argv in command(sys.argv[1], sys.argv[2:]):
        try:
            status = subprocess.call(argv, cwd=ROOT if sys.argv[1] in ("test", "lint") else None)
        except KeyboardInterrupt:
            return 130
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
