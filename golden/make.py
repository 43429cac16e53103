"""Create goldens with this runtime's tiers, by default the reference, for any model file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends.base import Device
from zinc_rt.engine.devices import ORACLE, Choice, open_backend
from zinc_rt.engine.engine import Engine, choose_default_ctx
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.digests import digest_run
from zinc_rt.golden.format import OURS, write_golden
from zinc_rt.host.errors import UsageError
from zinc_rt.host.settings import Settings
from zinc_rt.host.version import __version__, digest_code
from zinc_rt.model.gguf import GGUFFile, digest_model

ALWAYS = ("l_out-*", "ffn_moe_topk-*", "result_norm")


def make_golden(
    gguf: GGUFFile,
    tokens: Sequence[int],
    out: str | Path,
    *,
    ordering: str,
    steps: int,
    ctx: int | None,
    nodes: Sequence[str] = (),
    choice: Choice = ORACLE,
    digests: bool = False,
    settings: Settings | None = None,
    threads: int = 0,
    timeout_seconds: float | None = None,
    command: str = "",
    kv_type: str = "f32",
    around: Callable[[Engine], AbstractContextManager[object]] = nullcontext,
) -> dict[str, np.ndarray]:
    """Run `tokens`, continue greedily for `steps`, write the golden to `out`, and return its arrays.

    `nodes`: labels, with wildcards, of additional values to store. `digests`: store digests of all values,
    and as values only the logits after the prompt. `around`: see EngineOptions. Raises
    UsageError if prompt and steps exceed the context.
    """
    from zinc_rt.golden.capture import Selection, capture_run

    settings = settings or Settings()
    ctx = choose_default_ctx(gguf, ctx)
    if steps < 0 or len(tokens) + steps > ctx:
        raise UsageError(
            f"{len(tokens)} tokens and {steps} steps exceed a context of {ctx}",
            next="use fewer --steps or a larger --ctx",
        )
    backend = open_backend(choice, ordering, threads=threads)
    with Engine(
        gguf,
        backend,
        ctx=ctx,
        kv_type=kv_type,
        options=EngineOptions(settings=settings, timeout_seconds=timeout_seconds, around=around),
    ) as engine:
        run = capture_run(engine, tokens, Selection((*ALWAYS, *nodes)), steps=steps)
        device = engine.backend.device
    arrays = {
        "ids": np.array(tokens, np.int32),
        "logits": run.logits[: len(tokens)],
        "greedy_tokens": np.array(run.generated, np.int32),
        "greedy_logits": run.logits[len(tokens) :],
    }
    if layers := run.layers:
        arrays["l_out"] = np.stack([layers[layer] for layer in sorted(layers)])
    arrays |= {label: value for label, value in run.values.items() if not label.startswith("l_out-")}
    if digests:
        arrays = select_last_position(arrays)
    write_golden(out, arrays, make_metadata(gguf, f"{OURS} {choice.tier}", ctx, command) | {
        "ordering": ordering,
        **({"kv_type": kv_type} if kv_type != "f32" else {}),
        "device": describe_device(device),
        "code": digest_code(),
        "clamps": settings.list_shortcuts(),
        "digests": digest_run(run, len(tokens)),
    })  # fmt: skip
    return arrays


def select_last_position(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the prompt, the tokens after it, and the logits after its last token."""
    count = len(arrays["ids"])
    rows = {"rows": np.array([count - 1], np.int32)} if count > 1 else {}
    kept = {name: arrays[name] for name in ("ids", "greedy_tokens")}
    return {**kept, **rows, "logits": arrays["logits"][-1:]}


def describe_device(device: Device) -> dict[str, Any]:
    """Return the device's description, as far as the device provides one."""
    return {name: value for name, value in asdict(device).items() if value}


def make_metadata(gguf: GGUFFile, source: str, ctx: int, command: str) -> dict[str, Any]:
    """Return the metadata common to all goldens."""
    return {
        "source": source,
        "version": __version__,
        "arch": gguf.architecture,
        "model": gguf.path.name,
        "model_digest": digest_model(gguf),
        "n_ctx": ctx,
        "command": command,
    }
