"""The types of the functions in this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.sim.cp.compute import ComputeChannel

View = Any
"""A packet as sim.tables.layout.view reads it: the fields of its row are attributes."""

Execute = Callable[["ComputeChannel", Any], None]
