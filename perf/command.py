"""Speed: measure it, predict it, keep its history, and judge milestones by evidence that cannot be fooled."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json
from zinc_rt.host.arguments import Parser

# each a folder with a command.py that has HELP, EXAMPLES, `add_options` and `run`
ACTIONS = ("bench", "native", "gate", "history", "predict", "profile", "report")
EXAMPLES = """\
examples:
  zinc-rt perf bench --model M.gguf            decode, prefill and first-token speed
  zinc-rt perf native                          the CPU tier beside llama.cpp
  zinc-rt perf gate --milestone M1             what is shown, what is missing
  zinc-rt perf predict --model M.gguf          tok/s before there is hardware
  zinc-rt perf profile --model M.gguf          where a step's time goes, node by node
  zinc-rt perf history runs/history.jsonl      what was recorded, and where it got slower
  zinc-rt perf report runs/ -o page.html       all of it on one page

`zinc-rt perf ACTION --help` explains each; docs/perf.md the whole.
"""


def parser() -> argparse.ArgumentParser:
    made = Parser("zinc-rt perf", description=__doc__, epilog=EXAMPLES)
    actions = made.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name in ACTIONS:
        action = import_module(f"zinc_rt.perf.{name}.command")
        options = actions.add_parser(name, help=action.HELP, description=action.__doc__, epilog=action.EXAMPLES)
        action.add_options(options)
        add_json(options)
        options.set_defaults(run=action.run)
    return made


main = Command("perf", parser, lambda arguments: int(arguments.run(arguments)))


if __name__ == "__main__":
    sys.exit(main())
