"""What the tests of the execution contract's C library share: hosts' folders, and the example hosts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from zinc_rt.backends.exec_library import load_exec_library
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.image import LIBRARY, write_host_folder
from zinc_rt.exec.abi import ExecLibrary
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.native.build import find_compiler, make_environment
from zinc_rt.model.gguf import read_gguf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CTX, SLOTS, PROMPT, COUNT = 64, 2, [1, 2, 3], 24
SECOND = 10**9


@cache
def load_library() -> ExecLibrary:
    """Return the library; skip with the reason without a compiler."""
    try:
        return load_exec_library()
    except UnsupportedError as error:
        pytest.skip(str(error))


def open_engine(model: str, ordering: str = "canonical-1") -> Engine:
    load_library()
    backend = open_backend(choose_tier("t_cpu_native", "auto"), ordering)
    return Engine(read_gguf(GOLDEN / f"{model}.gguf"), backend, ctx=CTX, slots=SLOTS)


def write_folder(folder: Path, model: str = "qwen3-q", ordering: str = "canonical-1") -> Path:
    with open_engine(model, ordering) as engine:
        write_host_folder(engine, folder)
    return folder


@cache
def load_host() -> ModuleType:
    """Return examples/exec_host.py."""
    spec = importlib.util.spec_from_file_location("example_exec_host", EXAMPLES / "exec_host.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_host(folder: Path) -> Path:
    """Compile examples/exec_host.c as its first lines describe."""
    program = folder / "exec_host"
    options = ("-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", str(EXAMPLES / "exec_host.c"))
    link = (f"-L{folder}", f"-l{LIBRARY[3:-3]}", f"-Wl,-rpath,{folder}", "-o", str(program))
    command = (*find_compiler().command, *options, *link)
    done = subprocess.run(command, capture_output=True, text=True, env=make_environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    return program


def run_host(program: Path, folder: Path, *arguments: object) -> list[int]:
    """Return the tokens that the C host prints."""
    done = subprocess.run([program, folder, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(token) for token in done.stdout.split()]
