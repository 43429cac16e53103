"""The gfx12 shader engine, which notes what it runs."""

from __future__ import annotations

from typing import Any

from zinc_rt.sim.consulted import Consulted
from zinc_rt.sim.shader.run.engine import GfxEngine
from zinc_rt.sim.shader_engine import ShaderDispatch
from zinc_rt.sim.tables.registers import PGM_RSRC2


class NotingEngine(GfxEngine):
    def __init__(self, consulted: Consulted, **options: Any) -> None:
        """`options` are GfxEngine's."""
        super().__init__(**options)
        self._consulted = consulted

    def _code(self, dispatch: ShaderDispatch) -> bytes:
        """Once a dispatch."""
        before = self._memory(dispatch.space).codes.get(dispatch.program_va)
        code = super()._code(dispatch)
        self._consulted.ran(code, 32 if dispatch.wave32 else 64)
        if before is not None and before is not code and before != code:
            self._consulted.mark("code replaced")
        enables = dispatch.register(PGM_RSRC2) >> 7
        if any(not enables >> axis & 1 for axis in range(3) if axis == 0 or dispatch.groups[axis] > 1):
            self._consulted.mark("workgroup ids not enabled")
        return code
