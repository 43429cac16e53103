"""Measure, predict, record and gate speed."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json
from zinc_rt.host.arguments import Parser

# each a folder with a command.py that has HELP, EXAMPLES, `add_options` and `run`
ACTIONS = ("bench", "native", "gate", "history", "predict", "profile", "report", "serving")
TABLES = ("gate", "history", "native", "predict", "profile", "serving")  # actions that print tables
EXAMPLES = """\
examples:
  zinc-rt perf bench --model M.gguf            decode, prefill and first-token speed
  zinc-rt perf native                          the CPU tier compared with llama.cpp
  zinc-rt perf gate --milestone M1             the criteria of a milestone and their evidence
  zinc-rt perf predict --model M.gguf          predicted tok/s without hardware
  zinc-rt perf profile --model M.gguf          time of a step by node
  zinc-rt perf serving --model M.gguf          this server beside llama-server
  zinc-rt perf history runs/history.jsonl      recorded speeds and regressions
  zinc-rt perf report runs/ -o page.html       one page with all reports

`zinc-rt perf ACTION --help` lists the options. See docs/perf.md.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser("zinc-rt perf", description=__doc__, epilog=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ACTIONS:
        action = import_module(f"zinc_rt.perf.{name}.command")
        options = actions.add_parser(name, help=action.HELP, description=action.__doc__, epilog=action.EXAMPLES)
        action.add_options(options)
        add_json(options, tables=name in TABLES)
        options.set_defaults(run=action.run)
    return parser


main = Command("perf", parser, lambda arguments: int(arguments.run(arguments)))


if __name__ == "__main__":
    sys.exit(main())
