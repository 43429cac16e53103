"""Check whether a golden is still valid for the model it names, in the arithmetic it was computed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from zinc_rt.cli.observer import CommandObserver
from zinc_rt.cli.options import read_model
from zinc_rt.engine.engine import choose_default_ctx
from zinc_rt.golden.capture import Selection
from zinc_rt.golden.format import Golden
from zinc_rt.host.errors import InputError
from zinc_rt.host.settings import Settings
from zinc_rt.host.version import digest_code
from zinc_rt.model.gguf import GGUFFile, digest_model
from zinc_rt.validate.check_result import CheckResult, ReportFigures
from zinc_rt.validate.layers import parse_layers
from zinc_rt.validate.prepare import count_layers
from zinc_rt.validate.run import validate
from zinc_rt.validate.runner import ValidationJob, ValidationRunner
from zinc_rt.validate.tiers import parse_tiers

PLAIN = ("f32", "i32")  # what llama.cpp multiplies without touching the activations
ORDERINGS = ("canonical-1", "canonical-1-q8", "float32-dequant")


def open_model(golden: Golden, named: str | None) -> GGUFFile:
    """Return the requested model, else the one the golden names, else the file of the same name in the golden's
    folder.
    """
    if named is not None:
        return read_model(named)
    beside = [golden.path.with_suffix(".gguf")]
    if name := str(golden.meta.get("model", "")):
        beside.insert(0, golden.path.with_name(Path(name).name))
    for path in beside:
        if path.exists():
            return read_model(str(path))
    raise InputError(f"{golden.path}: the model {beside[0].name} is not in the same folder", next="--model M.gguf")


def make_recreate_command(golden: Golden) -> str:
    """Return the command that regenerates the golden. A golden of another engine has none."""
    if golden.foreign:
        return f"regenerate it with {golden.source} and import the result: zinc-rt golden import --help"
    return str(golden.meta.get("command") or f"zinc-rt golden make --model M.gguf -o {golden.path.name}")


def describe_recorded_model(golden: Golden) -> str:
    """Describe the model that it was created for, as far as recorded."""
    named = str(golden.meta.get("model") or "a model it does not name")
    facts = [
        str(golden.meta[key])[:length]
        for key, length in (("arch", 40), ("model_digest", 12))
        if golden.meta.get(key)
    ]
    return f"{named} ({', '.join(facts)})" if facts else named


def advise_other_model(golden: Golden) -> str:
    """Return the advice for a model that does not match the golden: a golden must not be regenerated for a wrong
    file.
    """
    theirs = (
        f"use its own model, {describe_recorded_model(golden)}: zinc-rt golden check {golden.path} --model M.gguf"
    )
    return (
        theirs
        if golden.foreign
        else f"{theirs}; if the model was meant to change: {make_recreate_command(golden)}"
    )


def check_golden(
    golden: Golden,
    gguf: GGUFFile,
    *,
    settings: Settings,
    observer: CommandObserver,
    threads: int = 0,
    report: Callable[[str], None],
) -> Iterator[CheckResult]:
    """Check the model's identity, then compare every recorded value with a fresh computation."""
    name = golden.path.name
    identity = _check_identity(golden, gguf)
    yield identity
    if identity.status == "fail":
        return
    if golden.ordering and golden.ordering not in ORDERINGS:
        yield CheckResult(
            f"{name}/ordering",
            "expired",
            "fail",
            reason=f"made in {golden.ordering}, which this build does not compute",
            advice=make_recreate_command(golden),
            repro=_make_repro(golden, gguf),
        )
        return
    cause = _explain_outdated(golden, gguf)
    with ValidationRunner(_make_job(golden, gguf, settings, observer, threads), report) as runner:
        results = list(validate(runner))
    for result in results:
        if result.status == "fail":
            result.cause, result.advice = cause, _advise_mismatch(golden, gguf)
        yield result


def _advise_mismatch(golden: Golden, gguf: GGUFFile) -> str:
    """Return the advice for a mismatch. Values of another engine are not wrong because they differ from ours; only
    the first divergence is relevant.
    """
    if golden.foreign:
        return f"zinc-rt validate --model {gguf.path} --golden {golden.path} --resync"
    return make_recreate_command(golden)


def _explain_outdated(golden: Golden, gguf: GGUFFile) -> str:
    """Return the reason why the golden may be outdated, if it can be determined."""
    if golden.ordering:
        same = golden.meta.get("code") == digest_code()
        return "" if same else "the arithmetic or the model code has changed since"
    quantised = any(tensor.dtype not in PLAIN for tensor in gguf.tensors.values())
    if golden.meta.get("llama_cpp") and golden.variant != "_deq" and quantised:
        return "llama.cpp re-quantises activations: import with --dequantised"
    return ""


def _check_identity(golden: Golden, gguf: GGUFFile) -> CheckResult:
    id_, repro = f"{golden.path.name}/model", _make_repro(golden, gguf)
    architecture, recorded = golden.meta.get("arch"), golden.meta.get("model_digest")
    model_digest = digest_model(gguf)
    if architecture in (None, gguf.architecture):
        if recorded is None:
            return CheckResult(id_, "model", "skip", reason="the golden records no digest of its model")
        if model_digest == recorded:
            return CheckResult(id_, "model", "pass", measure=ReportFigures(digest=model_digest))
    return CheckResult(
        id_,
        "model",
        "fail",
        reason=f"made for another model: {describe_recorded_model(golden)}; "
        f"{gguf.path.name} is {gguf.architecture}, {model_digest[:12]}",
        measure=ReportFigures(digest=model_digest, architecture=gguf.architecture),
        limit=ReportFigures(digest=recorded, architecture=architecture),
        advice=advise_other_model(golden),
        repro=repro,
    )


def _make_job(
    golden: Golden, gguf: GGUFFile, settings: Settings, observer: CommandObserver, threads: int
) -> ValidationJob:
    ordering = golden.ordering or "canonical-1"
    longest = choose_default_ctx(gguf, None)
    return ValidationJob(
        gguf=gguf,
        name=golden.path.name,
        tiers=tuple(parse_tiers(f"t_cpu:{ordering}", ordering, ORDERINGS)),
        tokens=[int(token) for token in golden.ids],
        steps=0 if golden.greedy_tokens is None else len(golden.greedy_tokens),
        ctx=min(golden.ctx or longest, longest),
        kv_type=golden.kv_type,
        layers=parse_layers("all", count_layers(gguf)),
        selection=Selection(("l_out-*", "ffn_moe_topk-*", *(golden.nodes if golden.rows is None else ()))),
        golden=golden,
        threads=threads,
        settings=settings,
        observer=observer,
        use_cache=False,
        alone=False,
        repro=_make_repro(golden, gguf),
    )


def _make_repro(golden: Golden, gguf: GGUFFile) -> str:
    return f"zinc-rt golden check {golden.path} --model {gguf.path}"
