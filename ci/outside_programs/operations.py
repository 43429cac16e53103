"""Compare operations of a project with torch in float32, forward and backward.

`compare_all(globals())` prints a line `right NAME` or `wrong NAME: ...` for each operation, and
`refused NAME: ...` for one that raises. The names of operations on the command line select some of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

DEVICE = "cuda"
HALF = 2e-2  # the tolerance of results in bf16


@dataclass
class ComparedOperation:
    """An operation, what torch computes, and the inputs of both. `tolerance`: absolute, and relative to the
    largest value.
    """

    function: Callable[..., torch.Tensor]
    exact: Callable[..., torch.Tensor]
    inputs: Sequence[torch.Tensor]
    tolerance: float = 2e-4
    backward: bool = True


def random_tensor(*shape: int, seed: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE)


def compute_rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def run_in_both_orders(function: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """Run an operation, then once more with the last workgroups of each launch first. Raise ValueError if the
    results differ in a bit: workgroups that store to one place then store different values.
    """
    device = triton.runtime.driver.active.device
    result = function(*args)
    device.reverse = True
    try:
        reversed_result = function(*args)
    finally:
        device.reverse = False
    if not torch.equal(result, reversed_result):
        raise ValueError("the result depends on the order of the workgroups")
    return result


def choose_one_configuration() -> None:
    """Give Triton's autotuner one configuration for each kernel, the one with the most warps whose LDS fits: its
    code is the shortest, and LLVM needs up to a minute for a long one. Call it before importing kernels.
    """
    initialise, run = Autotuner.__init__, Autotuner.run

    def initialise_with_one(
        self: Any, fn: Any, arg_names: Any, configs: list[Any], *args: Any, **kwargs: Any
    ) -> None:
        self.others = sorted(configs, key=lambda config: (-config.num_warps, config.num_stages))
        initialise(self, fn, arg_names, [self.others.pop(0)] if configs else [], *args, **kwargs)

    def run_first_that_fits(self: Any, *args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return run(self, *args, **kwargs)
            except OutOfResources:
                if not self.others:
                    raise
                self.configs = [self.others.pop(0)]

    Autotuner.__init__, Autotuner.run = initialise_with_one, run_first_that_fits


def find_differences(case: ComparedOperation) -> list[str]:
    """Run both, forward and backward. Return what differs."""
    sides = [[item.clone().requires_grad_(case.backward) for item in case.inputs] for _ in range(2)]
    functions = (case.function, case.exact)
    results = [function(*side) for function, side in zip(functions, sides, strict=True)]
    values: list[list[torch.Tensor]] = []
    grad = random_tensor(*results[1].shape, seed=99).reshape(results[1].shape)
    for result, side in zip(results, sides, strict=True):
        if case.backward:
            result.backward(grad.clone().reshape(result.shape))  # some kernels change it in place
        values.append([result.detach(), *([item.grad for item in side] if case.backward else [])])
    names = ["the result", *[f"the gradient of input {index}" for index in range(len(case.inputs))]]
    apart = []
    for name, value, other in zip(names, *values, strict=False):
        limit = case.tolerance * max(1.0, float(other.abs().max()))
        difference = float((value.reshape(other.shape).float() - other.float()).abs().max())
        if not difference <= limit:  # NaN is a difference too
            apart.append(f"{name} differs by {difference:.3g}, limit {limit:.3g}")
    return apart


def compare_all(names: dict[str, Any]) -> None:
    """Compare the operations of a module: its functions NAME_case, in their order."""
    for function, make in list(names.items()):
        name = function.removesuffix("_case")
        if name == function or name.startswith("_"):
            continue
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            apart = find_differences(make())
        except Exception as error:  # the next operation is another kernel
            lines = str(error).splitlines() or [""]
            print(f"refused {name}: {type(error).__name__}: {lines[0]}", flush=True)
            continue
        print(f"wrong {name}: {'; '.join(apart)}" if apart else f"right {name}", flush=True)
