"""The test harness from Python: each function runs a command's work and returns the report that the command
shows.

    from zinc_rt import harness

    report = harness.validate("qwen3-q", tiers=["t_cpu"])
    assert report.passed
    report.to_frame()

Every report is a `zinc_rt.cli.report.Report`: `passed`, `results`, `to_frame()` (pandas, extra `report`),
`as_dict()` and `to_json()` (what --json writes), and a table in a notebook. Nothing is printed to stdout;
progress goes to a terminal on stderr.

Every function raises UsageError for wrong arguments and for a wrong `ZINC_RT_*` variable, InputError for a file
that cannot be used, UnsupportedError for a tier or model that this version does not support, and NothingRan if
the device does not exist. A check that fails raises nothing: `passed` is False.

This module is the only one in the package that imports the harness, and no other module imports it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    import argparse

    from zinc_rt.cli.command import Command
    from zinc_rt.cli.report import Report
    from zinc_rt.doctor.report import DoctorReport
    from zinc_rt.perf.gate.verdict import GateReport
    from zinc_rt.probes.report import ProbeReport
    from zinc_rt.replay.report import ReplayReport
    from zinc_rt.validate.goldens.report import GoldenReport
    from zinc_rt.validate.report import IsolationReport, ValidationReport

__all__ = [
    "doctor",
    "golden_check",
    "golden_diff",
    "isolation",
    "perf_gate",
    "perf_predict",
    "probes",
    "replay",
    "validate",
]

AnyPath = str | os.PathLike[str]
Coherence = Literal["bar", "direct", "caches"]
Sanitizer = Literal["off", "fast", "full"]
Made = TypeVar("Made")


def validate(
    model: AnyPath | Sequence[AnyPath] | None = None,
    *,
    tiers: Sequence[str] = ("t1", "t2", "t_cpu"),
    device: str = "auto",
    golden: AnyPath | None = None,
    reference: str | None = None,
    layers: tuple[int, int] | None = None,
    tokens: Sequence[int] | None = None,
    prompt: str | None = None,
    steps: int | None = None,
    nodes: Sequence[str] = (),
    ordering: str = "canonical-1",
    ctx: int | None = None,
    timeout_seconds: float | None = None,
    threads: int | None = None,
    sanitizer: Sanitizer | None = None,
    coherence: Coherence | None = None,
    reorder: int | None = None,
    facts: AnyPath | None = None,
    resync: bool = False,
    strict: bool = False,
    unchecked: bool = False,
    cache: bool = True,
) -> ValidationReport:
    """Compare tiers layer by layer with each other or with a golden, as `zinc-rt validate` does.

    `model`: a GGUF file, several, or the name of an embedded model such as `qwen3-q`, which is compared with
    its golden. None: every embedded model. `tiers`: each TIER[:KERNELSET][:ORDERING]; a GPU tier is simulated
    if the machine has no AMD GPU. `layers` (i, j): layers i to j - 1 only. `steps`: greedy tokens after the
    prompt. `ctx`: context length in tokens. `timeout_seconds`: limit for one step. `cache` False: compute
    results of t_cpu again. `strict`: a skipped check, or a tier simulated without `device="sim"`, fails.
    """
    from zinc_rt.golden.embedded import list_embedded_pairs
    from zinc_rt.validate.command import main, validate_models

    named = {pair.model.stem: pair for pair in list_embedded_pairs()}
    models = [] if model is None else [model] if isinstance(model, str | os.PathLike) else list(model)
    if len(models) == 1 and golden is None and tokens is None and prompt is None and models[0] in named:
        golden = named[str(models[0])].golden
    words = [
        *_find_models(models),
        *_format_option("tiers", ",".join(tiers)),
        *_format_device_options(device, sanitizer, coherence, reorder, facts, unchecked=unchecked),
        *_format_option("golden", golden),
        *_format_option("reference", reference),
        *_format_option("layers", None if layers is None else f"{layers[0]}:{layers[1]}"),
        *_format_option("tokens", None if tokens is None else ",".join(map(str, tokens))),
        *_format_option("prompt", prompt),
        *_format_option("steps", steps),
        *(word for glob in nodes for word in _format_option("nodes", glob)),
        *_format_option("ordering", ordering),
        *_format_option("ctx", ctx),
        *_format_option("timeout", timeout_seconds),
        *_format_option("threads", threads),
        *_format_flag("resync", on=resync),
        *_format_flag("strict", on=strict),
        *_format_flag("no-cache", on=not cache),
    ]
    return _run(main, words, validate_models)


def isolation(
    model: AnyPath | Sequence[AnyPath] | None = None,
    *,
    tiers: Sequence[str] = ("t_cpu",),
    device: str = "auto",
    requests: int = 24,
    seed: int = 0,
    ordering: str = "canonical-1",
    ctx: int | None = None,
    timeout_seconds: float | None = None,
    threads: int | None = None,
    sanitizer: Sanitizer | None = None,
    coherence: Coherence | None = None,
    reorder: int | None = None,
    facts: AnyPath | None = None,
    strict: bool = False,
    unchecked: bool = False,
) -> IsolationReport:
    """Compare each request of a mix with its solo run, bit for bit, as `zinc-rt validate --isolation` does.

    `model`, `tiers`, `ctx`, `timeout_seconds`, `strict`: as for `validate`. `requests`: number of requests in the
    mix, which `seed` determines.
    """
    from zinc_rt.validate.command import main, validate_isolation

    words = [
        *_find_models(model),
        "--isolation",
        *_format_option("tiers", ",".join(tiers)),
        *_format_device_options(device, sanitizer, coherence, reorder, facts, unchecked=unchecked),
        *_format_option("requests", requests),
        *_format_option("seed", seed),
        *_format_option("ordering", ordering),
        *_format_option("ctx", ctx),
        *_format_option("timeout", timeout_seconds),
        *_format_option("threads", threads),
        *_format_flag("strict", on=strict),
    ]
    return _run(main, words, validate_isolation)


def probes(
    device: str = "sim",
    *,
    tier: str | Sequence[str] | None = None,
    only: str = "",
    hazard: Literal[0, 1, 2] | None = None,
    force: bool = False,
    inject: Sequence[str] = (),
    coherence: Coherence | None = None,
    reorder: int | None = None,
    facts: AnyPath | None = None,
    expect: AnyPath | None = None,
    timeout_seconds: float | None = None,
    strict: bool = False,
) -> ProbeReport:
    """Run the hardware probes, as `zinc-rt pm4-test` does, each in its own process.

    `device`: sim, sim:CHIP, auto, hw or /dev/dri/renderDN. `tier`: t1, t2 or both (the default). `only`: ids,
    ranges such as P18-P24, or words of a title. `hazard`: 0 cannot hang the GPU, 1 may, 2 does on purpose;
    `force` allows 2 on a GPU that drives a display. `inject`: faults of the simulated device.
    `timeout_seconds`: limit for each probe. `strict`: a skipped probe fails.
    """
    from zinc_rt.probes.command import main
    from zinc_rt.probes.execution import run_probes
    from zinc_rt.probes.registry import PROBES

    tiers = tier if tier is None or isinstance(tier, str) else ",".join(tier)
    words = [
        *_format_option("device", device),
        *_format_option("tiers", tiers),
        *(["-k", only] if only else []),
        *_format_option("hazard", hazard),
        *_format_flag("force", on=force),
        *(word for name in inject for word in _format_option("inject", name)),
        *_format_option("coherence", coherence),
        *_format_option("reorder", reorder),
        *_format_option("facts", facts),
        *_format_option("expect", expect),
        *_format_option("timeout", timeout_seconds),
        *_format_flag("strict", on=strict),
    ]
    return _run(main, words, lambda arguments: run_probes(arguments, "pm4-test", PROBES))


def replay(
    log: AnyPath,
    *,
    tiers: Sequence[str] | None = None,
    bisect: bool = False,
    emit_repro: AnyPath | None = None,
    device: str = "auto",
    model: AnyPath | None = None,
    until: int | None = None,
    start: int = 0,
    timeout_seconds: float | None = None,
    threads: int | None = None,
    sanitizer: Sanitizer | None = None,
    coherence: Coherence | None = None,
    reorder: int | None = None,
    unchecked: bool = False,
) -> ReplayReport:
    """Replay a recorded .zlog and compare every output with the recorded one, as `zinc-rt replay` does.

    `tiers` None: the tier that recorded it. `bisect`: find the first step, node and element that differ from
    t_cpu; `emit_repro` then names a folder for the smallest case. `model`: the recorded model file if it has
    moved. `start`, `until`: compare from and up to these steps. `timeout_seconds`: limit for one step.
    """
    from zinc_rt.host.errors import UsageError
    from zinc_rt.replay.command import main, replay_log

    if emit_repro is not None and not bisect:
        raise UsageError(
            "emit_repro needs bisect=True", next="zinc-rt replay LOG --emit-repro FILE.c writes one step"
        )
    words = [
        os.fspath(log),
        *_format_option("tiers", None if tiers is None else ",".join(tiers)),
        *_format_flag("bisect", on=bisect),
        *_format_option("emit-repro", emit_repro),
        *_format_device_options(device, sanitizer, coherence, reorder, None, unchecked=unchecked),
        *_format_option("model", model),
        *_format_option("until", until),
        *_format_option("from", start or None),
        *_format_option("timeout", timeout_seconds),
        *_format_option("threads", threads),
    ]
    return _run(main, words, replay_log)


def doctor(capture: AnyPath | None = None, *, device: str = "auto") -> DoctorReport:
    """Report why a GPU does not work, as `zinc-rt doctor` does. Nothing runs on the GPU.

    `capture`: the folder or archive of another machine's capture, or a bundle with one; None: this machine,
    which must run Linux. `device`: one GPU by PCI address, cardN or render node.
    """
    from zinc_rt.doctor.command import diagnose_machine, main

    return _run(main, [*_format_option("from", capture), *_format_option("device", device)], diagnose_machine)


def perf_predict(
    model: AnyPath | Sequence[AnyPath],
    *,
    device_row: str = "R9700",
    ctx: int | None = None,
    position: int | None = None,
    prompt_tokens: int = 1,
    ordering: str = "canonical-1",
    experts: Literal["auto", "vram", "gtt"] = "auto",
    kv_type: Literal["f32", "f16", "q8_0"] = "f32",
) -> Report:
    """Predict tokens per second from the lowered graph, as `zinc-rt perf predict` does. Nothing runs.

    `device_row`: a row of zinc_rt/host/devices.yaml, or all. `ctx`: context length in tokens. `position`:
    position of the token (default: the last of the context). `prompt_tokens`: tokens of a prompt in one step;
    1: a decoded token. `experts`: where their weights are stored, as ZINC_RT_EXPERTS. `kv_type`: of cached keys
    and values.
    """
    from zinc_rt.perf.command import main
    from zinc_rt.perf.predict.command import predict_models

    models = [model] if isinstance(model, str | os.PathLike) else list(model)
    words = [
        "predict",
        *_list_paths(models),
        *_format_option("device-row", device_row),
        *_format_option("ctx", ctx),
        *_format_option("position", position),
        *_format_option("prompt-tokens", prompt_tokens),
        *_format_option("ordering", ordering),
        *_format_option("experts", experts),
        *_format_option("kv-type", kv_type),
    ]
    return _run(main, words, predict_models)


def perf_gate(
    milestone: str | Sequence[str],
    *,
    only: str = "",
    evidence: Sequence[AnyPath] = (),
    history: AnyPath | None = None,
    head: str = "",
    models: Sequence[AnyPath] = (),
    model: AnyPath | None = None,
    device: Literal["auto", "hw", "cpu", "sim"] = "auto",
) -> GateReport:
    """Evaluate the criteria of milestones (M0 to M8, cpu), as `zinc-rt perf gate` does.

    `only`: one criterion by id. `evidence`: reports and statements, or folders of them. `history`, `head`: the
    history in which the reports were recorded, and an entry that it must contain. `models`: the GGUF files of
    the measured speeds. `model`, `device`: where the structural criteria run. A criterion without evidence is
    blocked, and `passed` is False.
    """
    from zinc_rt.perf.command import main
    from zinc_rt.perf.gate.command import evaluate_milestones

    words = [
        "gate",
        *_format_option("milestone", milestone if isinstance(milestone, str) else ",".join(milestone)),
        *_format_option("only", only or None),
        *(["--evidence", *_list_paths(evidence)] if evidence else []),
        *_format_option("history", history),
        *_format_option("head", head or None),
        *(["--models", *_list_paths(models)] if models else []),
        *_format_option("model", model),
        *_format_option("device", device),
    ]
    return _run(main, words, evaluate_milestones)


def golden_check(
    goldens: AnyPath | Sequence[AnyPath] = (), *, model: AnyPath | None = None, threads: int | None = None
) -> GoldenReport:
    """Compute goldens again and compare, as `zinc-rt golden check` does. Without a name: the embedded goldens.

    `model`: the GGUF file, if it is not the one that the golden names.
    """
    from zinc_rt.validate.goldens.command import check_goldens, main

    paths = [goldens] if isinstance(goldens, str | os.PathLike) else list(goldens)
    words = ["check", *_list_paths(paths), *_format_option("model", model), *_format_option("threads", threads)]
    return _run(main, words, check_goldens)


def golden_diff(got: AnyPath, want: AnyPath) -> GoldenReport:
    """Compare two goldens and name the first node that differs, as `zinc-rt golden diff` does."""
    from zinc_rt.validate.goldens.command import compare_goldens, main

    return _run(main, ["diff", os.fspath(got), os.fspath(want)], compare_goldens)


def _run(command: Command, words: list[str], work: Callable[[argparse.Namespace], Made]) -> Made:
    """Run a command's work with the options in words; its text output is discarded."""
    return work(command.parse(words, screen=io.StringIO()))


def _find_models(model: AnyPath | Sequence[AnyPath] | None) -> list[str]:
    """Return the paths of the models; an embedded model may be specified by name."""
    from zinc_rt.golden.embedded import list_embedded_pairs

    named = {pair.model.stem: str(pair.model) for pair in list_embedded_pairs()}
    models = [] if model is None else [model] if isinstance(model, str | os.PathLike) else list(model)
    return [named.get(os.fspath(model), os.fspath(model)) for model in models]


def _list_paths(paths: Sequence[AnyPath]) -> list[str]:
    return [os.fspath(path) for path in paths]


def _format_option(name: str, value: object) -> list[str]:
    text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return [] if value is None else [f"--{name}={text}"]


def _format_flag(name: str, *, on: bool) -> list[str]:
    return [f"--{name}"] if on else []


def _format_device_options(
    device: str,
    sanitizer: str | None,
    coherence: str | None,
    reorder: int | None,
    facts: AnyPath | None,
    *,
    unchecked: bool,
) -> list[str]:
    return [
        *_format_option("device", device),
        *_format_option("sanitizer", sanitizer),
        *_format_option("coherence", coherence),
        *_format_option("reorder", reorder),
        *_format_option("facts", facts),
        *_format_flag("unchecked", on=unchecked),
    ]
