"""The type of the functions in this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.sim.compute import ComputeChannel

Execute = Callable[["ComputeChannel", Any], None]
