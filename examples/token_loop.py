"""The smallest loop from a prompt to tokens: greedy decoding.

python examples/token_loop.py
python examples/token_loop.py --model M.gguf --tokens 1,2,3 --max-tokens 16 --tier t1 --device sim
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from zinc_rt.cli.options import parse_tokens
from zinc_rt.engine import Engine
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.errors import ZincError
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.gguf import read_gguf


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="token_loop.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = FOLDER / "qwen3-q.gguf"
    parser.add_argument(
        "--model",
        type=Path,
        default=model,
        metavar="FILE",
        help=f"a GGUF model (default: the shipped {model.name})",
    )
    parser.add_argument(
        "--tokens", type=parse_tokens, default=[1, 2, 3], metavar="IDS", help="the prompt, like 1,2,3"
    )
    parser.add_argument("--max-tokens", type=int, default=8, metavar="N", help="to draw (default 8)")
    parser.add_argument("--tier", default="t_cpu", help="tier: t_cpu, t1, t2 or auto (default t_cpu)")
    parser.add_argument(
        "--device",
        choices=("auto", "hw", "cpu", "sim"),
        default="auto",
        help="sim: simulate a GPU; hw: never simulate",
    )
    arguments = parser.parse_args(argv)
    try:
        return draw_tokens(arguments)
    except ZincError as error:
        print(f"token_loop.py: {error}", file=sys.stderr)
        return error.exit_code


def draw_tokens(arguments: argparse.Namespace) -> int:
    choice = choose_tier(arguments.tier, arguments.device)
    with Engine(read_gguf(arguments.model), open_backend(choice, "canonical-1")) as engine:
        sequence, tokens = engine.open(), arguments.tokens
        for _ in range(arguments.max_tokens):
            logits = engine.extend(sequence, tokens, rows="last")
            tokens = [int(np.argmax(logits[0]))]
            print(tokens[0], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
