"""Write a model's logits and layer outputs to a NumPy file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import (
    add_engine,
    add_prefill_ordering,
    choose_model_tokens,
    open_engine,
    parse_tokens,
    read_model,
    read_settings_once,
)
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_size, start_report
from zinc_rt.cli.progress import show_progress
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models
from zinc_rt.host.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from zinc_rt.engine.engine import Engine, Prefill, Rows
    from zinc_rt.ir.graph import Node

EXAMPLES = """\
The file contains `ids` i32 [T], `logits` f32 [T, V] (--rows last: [1, V]) and, with --layers all, `l_out`
f32 [L, T, D], the output of each layer.

examples:
  zinc-rt logits --model M.gguf --tokens 1,2,3 --out M.npz
  zinc-rt logits --model M.gguf --prompt "Hello" --prefill stepwise --layers none --rows last --out last.npz
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Write a model's logits and the output of every layer to a NumPy file.",
        epilog=EXAMPLES,
    )
    add_models(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tokens", type=parse_tokens, metavar="IDS", help="token ids, like 1,2,3")
    which.add_argument("-p", "--prompt", metavar="TEXT", help="text, tokenised with the model's tokenizer")
    parser.add_argument("--out", metavar="FILE", required=True, help="the .npz file to write, atomically")
    parser.add_argument(
        "--prefill",
        choices=("batched", "stepwise"),
        default="batched",
        help="compute all tokens in one pass or one at a time (default batched)",
    )
    parser.add_argument(
        "--layers", choices=("all", "none"), default="all", help="layers to write l_out for (default all)"
    )
    parser.add_argument(
        "--rows", choices=("all", "last"), default="all", help="logits of every token or of the last (default all)"
    )
    add_engine(parser)
    add_prefill_ordering(parser, "compute all tokens in it")
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    import numpy as np

    from zinc_rt.backends.base import read_findings
    from zinc_rt.cli.describe import describe_model, describe_run, fail_for_findings
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.files import check_writable, write_atomically

    check_writable(arguments.out, report=arguments.json)
    report = start_report(Report("logits"), arguments)
    knobs = read_settings_once()
    gguf = read_model(arguments.model)
    tokens = choose_model_tokens(gguf, arguments.tokens, arguments.prompt)
    with open_engine(gguf, arguments, knobs) as engine:
        logits, layers = compute_logits(
            engine,
            tokens,
            prefill=arguments.prefill,
            rows=arguments.rows,
            layers=arguments.layers == "all",
        )
        describe_run(report, engine)
        findings = read_findings(engine.backend)
    arrays = {"ids": np.array(tokens, np.int32), "logits": logits}
    if layers is not None:
        arrays["l_out"] = layers
    write_atomically(arguments.out, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    out = choose_output_stream(arguments)
    for name, array in arrays.items():
        terminal.show(f"{name:<7} {array.dtype}  {list(array.shape)}", out=out)
    for clamp in report.shortcuts:
        terminal.show(f"shortcut {clamp}", out=out)
    total = sum(array.nbytes for array in arrays.values())
    terminal.show(
        f"wrote {arguments.out}, {format_size(total)}, {report.ordering} on {report.device['tier']}", out=out
    )
    report.results.append(
        Result(
            "logits",
            "logits",
            "pass",
            tier=str(report.device["tier"]),
            measure={"tokens": len(tokens), "not_finite": int((~np.isfinite(logits)).sum())},
            artifacts=[str(arguments.out)],
        )
    )
    fail_for_findings(report, findings, arguments.model)
    if arguments.json:
        report.model = describe_model(gguf)
        report.details |= {
            "ids": tokens,
            "prefill": arguments.prefill,
            "rows": arguments.rows,
            "arrays": {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in arrays.items()},
        }
    return finish_report(report, arguments)


def compute_logits(
    engine: Engine, tokens: list[int], *, prefill: Prefill, rows: Rows, layers: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the logits, f32 [T, V] or [1, V], and l_out f32 [L, T, D] if requested."""
    import numpy as np

    outputs: dict[int, list[np.ndarray]] = {}

    def tap(node: Node, name: str, array: np.ndarray) -> None:
        if node.label == f"l_out-{node.layer}":
            assert node.layer is not None
            outputs.setdefault(node.layer, []).append(array.copy())

    with show_progress(len(tokens), "tokens") as advance:
        logits = engine.extend(
            engine.open(),
            tokens,
            tap=tap if layers else None,
            prefill=prefill,
            rows=rows,
            role="prompt",
            advance=advance,
        )
    arrays = [np.concatenate(outputs[layer]) for layer in sorted(outputs)]
    if layers and len(arrays) != engine.model.layers:
        raise InputError(f"{len(arrays)} of {engine.model.layers} layers have an l_out; use --layers none")
    return logits, np.stack(arrays) if layers else None


main = Command("logits", parser, _run_command)
