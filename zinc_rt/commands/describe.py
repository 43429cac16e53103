"""What a report says of the model, the device and what did the arithmetic."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zinc_rt.code_version import runtime_version
from zinc_rt.commands.progress import progress
from zinc_rt.host import host
from zinc_rt.ir.op import Op
from zinc_rt.model.gguf import digest
from zinc_rt.model.identity import identity

if TYPE_CHECKING:
    from zinc_rt.engine import Engine
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.report import Report


def describe_model(gguf: GGUFFile) -> dict[str, Any]:
    """What the file is, by its bytes and its shape. Reads the whole file once, for its digest."""
    with progress(gguf.file_bytes, "digest", "B") as advance:
        sha256 = digest(gguf, advance=advance)
    return {"path": str(gguf.path), "digest": sha256, **identity(gguf).as_dict()}


def describe_run(report: Report, engine: Engine) -> None:
    """Fill in the device, its host, the ordering, the context, the settings with their clamps, the code, and what
    computed the model."""
    tier = engine.backend.spec.tier
    report.device = {"tier": tier, **asdict(engine.backend.device)}
    report.ordering = engine.backend.ordering
    report.ctx = engine.limits.ctx
    report.details |= {"code": runtime_version(), "settings": asdict(engine.settings), "host": host()}
    unchecked = engine.backend.device.unchecked
    report.shortcuts = [*engine.settings.clamps(), *([unchecked] if unchecked else [])]
    nodes = [node for node in engine.graph("decode").nodes if node.op is not Op.BARRIER]
    report.model_execution = f"{tier}: every node of the model, in {engine.backend.ordering}"
    report.direct_compute_ops = len(nodes)
    report.direct_compute_kind = engine.backend.kernels.target
