"""Helper functions outside of the kernels that call them: each has a module, which all kernels of a kind share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir  # type: ignore[import-untyped]

BuildFunction = Callable[[ir.Function], None]


@dataclass(slots=True, eq=False)
class SharedHelpers:
    """`known(name)`: nobody needs to write that one. `texts`: LLVM IR of those that were written here, and of each
    the names of helpers that it calls."""

    known: Callable[[str], bool]
    texts: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def write(self, name: str, of: ir.FunctionType, build: BuildFunction) -> None:
        if name in self.texts or self.known(name):
            return
        module = KernelModule(name, self)
        build(ir.Function(module, of, name))
        self.texts[name] = str(module), tuple(module.called)


class KernelModule(ir.Module):
    """A module that declares helpers and has none, where `helpers` are given. `called`: their names."""

    def __init__(self, name: str, helpers: SharedHelpers | None = None) -> None:
        super().__init__(name)
        self.helpers = helpers
        self.called: list[str] = []
        self._weights: dict[tuple[int, ...], ir.MDValue] = {}

    def weights(self, weights: tuple[int, ...]) -> ir.MDValue:
        """Metadata of a branch; few are different, and a kernel has hundreds of them."""
        if weights not in self._weights:
            operands = [ir.MetaDataString(self, "branch_weights"), *map(ir.IntType(32), weights)]
            self._weights[weights] = self.add_metadata(operands)
        return self._weights[weights]

    def helper(self, name: str, of: ir.FunctionType, build: BuildFunction) -> ir.Function:
        """The function `name`; `build` writes its body the first time."""
        found = self.globals.get(name)
        if found is not None:
            return found
        function = ir.Function(self, of, name)
        if self.helpers is None:
            function.linkage = "internal"
            function.attributes.add("noinline")
            build(function)
        else:
            self.called.append(name)
            self.helpers.write(name, of, build)
        return function
