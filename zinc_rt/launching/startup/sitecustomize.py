"""Python runs this file at its start under `zinc-rt sanitize`, which puts its folder on PYTHONPATH.

It needs the standard library only, and acts after a program has imported torch or triton. It runs the
sitecustomize that it hides.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import ClassVar

_INSTALL = {  # PyPI's torch requires CUDA's libraries
    "triton": "pip install 'zinc-rt[triton]'",
    "torch": "pip install torch --index-url https://download.pytorch.org/whl/cpu",
}
_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib is slow to import)


class _AfterImport(Loader):
    """The loader of a module, and then a function of zinc_rt.launching.triton_startup."""

    def __init__(self, loader: Loader, function: str) -> None:
        self._loader, self._function = loader, function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader  # what the module sees, as without this file
        self._loader.exec_module(module)
        try:
            from zinc_rt.launching import triton_startup
        except ImportError as error:
            print(f"zinc-rt sanitize: {sys.executable} cannot import zinc_rt: {error}", file=sys.stderr)
            os._exit(2)
        getattr(triton_startup, self._function)()


class _AfterImportFinder(MetaPathFinder):
    functions: ClassVar[dict[str, str]] = {"torch": "begin_torch", "triton": "begin"}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.functions:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _AfterImport(spec.loader, self.functions[name])
                return spec
        return None


def _print_with_advice(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an exception that ends the program, and how to install the package that it lacks."""
    sys.__excepthook__(kind, error, traceback)
    if isinstance(error, ModuleNotFoundError) and error.name in _INSTALL:
        print(f"zinc-rt sanitize: {error.name} is not installed: {_INSTALL[error.name]}", file=sys.stderr)


def _run_hidden() -> None:
    """Run the sitecustomize that Python would have run without this one."""
    folders = [item for item in sys.path if os.path.abspath(item) != _FOLDER]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "ZINC_RT_SANITIZE" in os.environ:
    sys.meta_path.insert(0, _AfterImportFinder())
    sys.excepthook = _print_with_advice
    _run_hidden()
