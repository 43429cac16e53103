"""Convert text to token ids with the model's tokenizer."""

from __future__ import annotations

import argparse
import sys

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models
from zinc_rt.host.terminal import Column

EXAMPLES = """\
By default the tokens that the file's metadata ask for are added (a beginning, an end), and the names of control
tokens in the text are text like any other. A file with a vocabulary and no tensors is enough.

examples:
  zinc-rt tokenize --model M.gguf --text "Hello world"
  zinc-rt tokenize --model M.gguf --text "<|im_start|>user" --parse-special
  zinc-rt tokenize --model M.gguf --text - --ids --no-special < text.txt
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Convert text to token ids with the tokenizer of a model file.",
        epilog=EXAMPLES,
    )
    add_models(parser)
    parser.add_argument("--text", metavar="TEXT", required=True, help="the text; - reads all of stdin as UTF-8")
    special = parser.add_mutually_exclusive_group()
    special.add_argument("--no-special", action="store_true", help="do not add or parse special tokens")
    special.add_argument("--parse-special", action="store_true", help="parse control tokens in the text")
    parser.add_argument(
        "--ids",
        action="store_true",
        help="print only the ids, on one line separated by commas, as expected by --tokens",
    )
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.cli.text_input import read_text
    from zinc_rt.host.files import check_writable
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.model.tokenizer import Tokenizer

    check_writable(report=arguments.json)
    report = start_report(Report("tokenize"), arguments)
    gguf = read_gguf(arguments.model)
    tokenizer = Tokenizer.from_metadata(gguf.metadata)
    for warning in tokenizer.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    text = read_text(arguments.text)
    ids = tokenizer.encode(text, add_special=not arguments.no_special, parse_special=arguments.parse_special)
    out = choose_output_stream(arguments)
    if arguments.ids:
        print(",".join(map(str, ids)), file=out)
    else:
        rows = [
            (id, _format_piece(tokenizer.piece_bytes(id)), "(special)" if tokenizer.is_special(id) else "")
            for id in ids
        ]
        terminal.show_table([Column("id", right=True, width=8), "piece", Column("", key="kind")], rows, out)
        terminal.show(f"{len(ids)} tokens", out=out)
    report.results.append(Result("tokenize", "tokenize", "pass", measure={"tokens": len(ids)}))
    if arguments.json:
        report.model = describe_model(gguf)
        report.details = {
            "ids": ids,
            "pieces": [tokenizer.piece(id) for id in ids],
            "add_special": not arguments.no_special,
            "parse_special": arguments.parse_special,
            "tokenizer": tokenizer.model,
        }
    return finish_report(report, arguments)


def _format_piece(piece: bytes) -> str:
    """Format a token in quotes, so that spaces are visible, with incomplete characters as \\xNN."""
    return f"'{printable(piece.decode('utf-8', 'backslashreplace'))}'"


main = Command("tokenize", parser, _run_command)
