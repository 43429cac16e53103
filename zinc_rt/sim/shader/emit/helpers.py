"""Helper functions outside of the kernels that call them, in modules shared by all kernels of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir  # type: ignore[import-untyped]

BuildFunction = Callable[[ir.Function], None]


@dataclass(slots=True, eq=False)
class SharedHelpers:
    """Shared helpers. `known(name)` returns whether a helper already exists. `texts` has the LLVM IR of each
    helper written here and the names of the helpers it calls.
    """

    known: Callable[[str], bool]
    texts: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def write(self, name: str, of: ir.FunctionType, build: BuildFunction) -> None:
        if name in self.texts or self.known(name):
            return
        module = KernelModule(name, self)
        build(ir.Function(module, of, name))
        self.texts[name] = str(module), tuple(module.called)


class KernelModule(ir.Module):
    """An LLVM module that declares helpers without defining them if `helpers` is given. `called` has their
    names.
    """

    def __init__(self, name: str, helpers: SharedHelpers | None = None) -> None:
        super().__init__(name)
        self.helpers = helpers
        self.called: list[str] = []
        self._weights: dict[tuple[int, ...], ir.MDValue] = {}

    def weights(self, weights: tuple[int, ...]) -> ir.MDValue:
        """Return metadata of branch weights, cached: a kernel has hundreds of branches with few different
        weights.
        """
        if weights not in self._weights:
            operands = [ir.MetaDataString(self, "branch_weights"), *map(ir.IntType(32), weights)]
            self._weights[weights] = self.add_metadata(operands)
        return self._weights[weights]

    def helper(self, name: str, of: ir.FunctionType, build: BuildFunction) -> ir.Function:
        """Return the function `name`; `build` writes its body on first use."""
        result = self.globals.get(name)
        if result is not None:
            return result
        function = ir.Function(self, of, name)
        if self.helpers is None:
            function.linkage = "internal"
            function.attributes.add("noinline")
            build(function)
        else:
            self.called.append(name)
            self.helpers.write(name, of, build)
        return function
