#!/usr/bin/env python3
"""Set up .venv and run one command in it: `python3 ci/run.py NAME [ARG ...]`.

Needs Python 3.11 and pip, nothing else: no ensurepip, no compiler, no network but the package index.

  test            the default tests; with a path, all tests below it; other pytest options work too
  test --rest     the tests that the default leaves out; --all: both; --slow: all, with the full counts
  test --since R  the default tests that the changes since the git revision R can affect
  lint            ruff and mypy
  bench [FILE]    run the benchmarks in perf/ in one process and print the machine
  bench --table   the same as one table, with each limit or baseline
  docs            build docs/ as a site in build/site; a broken link is an error. Where .venv is not set up,
                  installs only the extra `docs`, into .venv-docs
  sbom [FILE]     write the software bill of materials as CycloneDX JSON (ci/sbom.py)
  nightly [...]   probes, validation, replay, speed and gates, resumable (ci/nightly.py --help)
  nightly-step S  one step of the nightly workflow: restore, run, publish, summary, issue (--help)
  workflow W JOB  run a job of .github/workflows/W.yml here, without GitHub (--help)
  lavapipe-driver install the Vulkan driver lavapipe on Debian or Ubuntu, if none in software is there
  clients [NAME]  run third-party clients against a server, each in its own environment (--help)
  differential    run programs on our simulator and on rocjitsu, if that is installed (--help)
  faults [NAME]   plant faults in a copy of the tree and score the diagnoses (--help)
  mutate          change the product by seed, and count the changes that its commands notice (--help)
  compiled [...]  run kernels of other compilers, and mutants, under lint and sanitizer (--help)
  consan [NAME]   run workloads after Triton's ConSan, and injected faults, under the sanitizer (--help)
  triton-mutants  judge mutants by seed of compiled Triton kernels (--help)
  judge-engines   judge released engines and every tier, all correct (--help)
  judge-defects   plant defects in front of an engine, and count those that judge finds (--help)
  outside [NAME]  run programs of other projects under zinc-rt sanitize (--help)
  programs [NAME] run Debian's packages and HIP programs on the simulated card (--help)
  NAME ...        run the command zinc-rt-NAME, for example validate, run, inspect, golden
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
STAMP = VENV / "pyproject.sha256"  # what the finished .venv was made for
DOCS_VENV = ROOT / ".venv-docs"  # properdocs alone, so a fresh checkout builds the site without the test packages
UNFINISHED = VENV / "unfinished"  # there while a set-up runs; found later, the set-up was cut short
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = Path(getattr(sys, "_base_executable", sys.executable)).resolve()  # the Python behind any venv we run in
OURS = "made-by = ci/run.py"  # in pyvenv.cfg, where unknown keys are ignored


SCRIPTS = {"nightly-step": "nightly_steps.py", "workflow": "workflow.py", "lavapipe-driver": "lavapipe_driver.py"}
PIP_FAILED = (
    "pip could not install the dependencies; see its messages above. If the package index was out of reach, run "
    "the same command again later."
)


def report_problem(problem: str) -> int:
    print(f"ci/run.py: {problem}", file=sys.stderr)
    return 2


def make_venv(venv: Path) -> None:
    """Create the environment that `python -m venv --without-pip` creates, without the venv module (Debian packages
    it separately).
    """
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "lib" / f"python{VERSION}" / "site-packages").mkdir(parents=True, exist_ok=True)
    (venv / "pyvenv.cfg").write_text(
        f"home = {BASE.parent}\ninclude-system-site-packages = false\nversion = {sys.version.split()[0]}\n{OURS}\n"
    )
    for name in ("python", "python3"):
        link = venv / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(BASE)


def fingerprint() -> str:
    """Return a value that changes with pyproject.toml, the Python and the checkout's path (scripts contain their
    interpreter's path).
    """
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    digest.update(f"{sys.version_info[:3]} {ROOT}".encode())
    return digest.hexdigest()


def is_ready() -> bool:
    return STAMP.is_file() and STAMP.read_text() == fingerprint() and PYTHON.exists() and not UNFINISHED.exists()


def is_usable() -> bool:
    """Return whether .venv can be installed into: it must not be from an interrupted setup or another Python."""
    return not UNFINISHED.exists() and PYTHON.exists() and (VENV / "lib" / f"python{VERSION}").is_dir()


def is_foreign_venv() -> bool:
    config = VENV / "pyvenv.cfg"
    return config.is_file() and OURS not in config.read_text() and not UNFINISHED.exists()


def pip_command() -> list[str]:
    python = BASE if Path(sys.prefix) == VENV else sys.executable  # .venv itself holds no pip
    return [str(python), "-m", "pip", "--disable-pip-version-check"]


def install(venv: Path, *packages: str) -> int:
    """Install packages into an environment, without the variables that redirect pip. Return pip's exit code."""
    elsewhere = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONHOME", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    environment["PIP_USER"] = "0"
    line = [*pip_command(), "--python", str(venv / "bin" / "python"), "install", "--quiet", *packages]
    return subprocess.call(line, env=environment)


def find_pip_problem() -> str | None:
    """Return the problem with this Python's pip, or None."""
    asked = subprocess.run([*pip_command(), "--version"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        return (
            f"{pip_command()[0]} has no pip. Install it (Debian, Ubuntu: apt install python3-pip) and run "
            "this again."
        )
    version = asked.stdout.split()[1]
    if tuple(int(part) for part in version.split(".")[:2]) < (22, 3):
        return f"needs pip 22.3 or newer, this is {version}. Run: {pip_command()[0]} -m pip install --upgrade pip"
    return None


@contextlib.contextmanager
def lock_venv() -> Iterator[None]:
    """Wait until another run has finished its setup."""
    import fcntl

    with (ROOT / "pyproject.toml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def set_up() -> int:
    if is_ready():
        return 0
    with lock_venv():
        if is_ready():
            return 0
        if problem := find_pip_problem():
            return report_problem(problem)
        print("setting up .venv (once, and again when pyproject.toml changes) ...", file=sys.stderr, flush=True)
        if not is_usable() and VENV.exists():
            if is_foreign_venv():
                return report_problem(
                    f"{VENV} was not made by ci/run.py and holds no Python {VERSION}: move it away"
                )
            shutil.rmtree(VENV)
        VENV.mkdir(exist_ok=True)
        UNFINISHED.touch()
        if not PYTHON.exists():
            make_venv(VENV)
        if install(VENV, "--editable", f"{ROOT}[dev]") != 0:
            return report_problem(PIP_FAILED)
        STAMP.write_text(fingerprint())
        UNFINISHED.unlink()
    return 0


def docs_requirements() -> list[str]:
    """Return the requirements of the extra `docs` in pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"]["docs"])


def set_up_docs() -> int:
    """Set up .venv-docs. An environment without its stamp, written last, is removed and built again."""
    stamp = DOCS_VENV / "pyproject.sha256"
    with lock_venv():
        if stamp.is_file() and stamp.read_text() == fingerprint():
            return 0
        if problem := find_pip_problem():
            return report_problem(problem)
        print(
            "setting up .venv-docs (once, and again when pyproject.toml changes) ...", file=sys.stderr, flush=True
        )
        shutil.rmtree(DOCS_VENV, ignore_errors=True)
        make_venv(DOCS_VENV)
        if install(DOCS_VENV, *docs_requirements()) != 0:
            return report_problem(PIP_FAILED)
        stamp.write_text(fingerprint())
    return 0


def command_of(name: str, arguments: list[str], venv: Path = VENV) -> list[list[str]]:
    """Return the process or processes of a command, run in order until one fails. `venv` contains the site
    builder.
    """
    if name == "test":
        return [[str(PYTHON), "-m", "pytest", *arguments]]
    if name == "lint":
        return [
            [str(PYTHON), "-m", "ruff", "check", "."],
            [str(PYTHON), "-m", "ruff", "format", "--check", "."],
            [str(PYTHON), "-m", "mypy"],
        ]
    if name == "bench" and "--table" in arguments:
        files = [argument for argument in arguments if argument != "--table"]
        return [[str(PYTHON), "-m", "zinc_rt.perf.benchmarks", *files]]
    if name == "bench":
        once = ["-n", "0", "--benchmark-enable", "--benchmark-columns=min,median,max,rounds"]
        paths = arguments or [str(path) for path in sorted((ROOT / "perf").glob("bench_*.py"))]
        return [[str(PYTHON), "-m", "pytest", *once, *paths]]
    if name == "docs":
        return [[str(venv / "bin" / "python"), "-m", "properdocs", "build", "--strict", "--quiet", *arguments]]
    if name == "sbom":
        return [[str(PYTHON), str(ROOT / "ci" / "sbom.py"), *arguments]]
    if name == "nightly":
        return [[str(PYTHON), str(ROOT / "ci" / "nightly.py"), *arguments]]
    scripts = {
        "nightly-step": "nightly_steps.py",
        "workflow": "workflow.py",
        "lavapipe-driver": "lavapipe_driver.py",
    }
    if name in scripts:
        return [[str(PYTHON), str(ROOT / "ci" / scripts[name]), *arguments]]
    if name == "clients":
        return [[str(PYTHON), str(ROOT / "ci" / "clients.py"), *arguments]]
    if name == "compiled":
        return [[str(PYTHON), str(ROOT / "tests" / "compiled_corpus" / "corpus_command.py"), *arguments]]
    if name == "differential":
        return [[str(PYTHON), str(ROOT / "ci" / "differential.py"), *arguments]]
    if name == "outside":
        return [[str(PYTHON), str(ROOT / "ci" / "outside.py"), *arguments]]
    if name == "programs":
        return [[str(PYTHON), str(ROOT / "ci" / "programs.py"), *arguments]]
    if name == "consan":
        return [[str(PYTHON), str(ROOT / "tests" / "concurrency" / "concurrency_command.py"), *arguments]]
    if name == "judge-defects":
        return [[str(PYTHON), str(ROOT / "tests" / "validate" / "judge" / "detection.py"), *arguments]]
    if name == "judge-engines":
        return [[str(PYTHON), str(ROOT / "ci" / "judge_engines.py"), *arguments]]
    if name == "triton-mutants":
        return [[str(PYTHON), str(ROOT / "tests" / "compiled_corpus" / "triton_mutants.py"), *arguments]]
    if name == "mutate":
        return [[str(PYTHON), str(ROOT / "tests" / "faults" / "mutate_command.py"), *arguments]]
    if name == "faults":
        return [[str(PYTHON), str(ROOT / "tests" / "faults" / "faults_command.py"), *arguments]]
    script = BIN / f"zinc-rt-{name}"
    if script.exists():
        return [[str(script), *arguments]]
    return [[str(BIN / "zinc-rt"), name, *arguments]]


def exec_command(argv: list[str]) -> NoReturn:
    """Replace this process with `argv`, so that exit code and signals are passed through."""
    os.execv(argv[0], argv)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    if sys.version_info < (3, 11):  # noqa: UP036  (this file is what tells them)
        return report_problem(f"needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    name, arguments = sys.argv[1], sys.argv[2:]
    venv = DOCS_VENV if name == "docs" and not is_ready() else VENV
    try:
        if status := set_up_docs() if venv == DOCS_VENV else set_up():
            return status
    except OSError as error:
        where = error.filename or venv
        return report_problem(
            f"cannot set up {venv.name}: {where}: {error.strerror}. Use a checkout that you can write to."
        )
    if name in ("test", "lint", "docs"):
        os.chdir(ROOT)
    if name == "test":  # the tests start hundreds of Python processes, which would compile each module again
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    *first, last = command_of(name, arguments, venv)
    for argv in first:
        if status := subprocess.call(argv):
            return status
    exec_command(last)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
