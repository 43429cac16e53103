"""Command-line options of zinc-rt-golden, with examples. No heavy module is imported for --help."""

from __future__ import annotations

import argparse

from zinc_rt.backends import registry
from zinc_rt.cli import options
from zinc_rt.cli.output import add_json
from zinc_rt.host.arguments import Parser, parse_context_length

DEFAULT_STEPS = 8
SIZES = (
    *("hidden", "layers", "vocab", "heads", "kv_heads", "head_dim", "ffn"),
    *("experts", "experts_used", "router_rows", "window", "context"),
)

EPILOG = """\
examples:
  zinc-rt golden make --tiny qwen3 --quant q --hidden 256 -o tiny.gguf    make a small model for experiments
  zinc-rt golden make --model M.gguf --tokens 1,2,3 -o M.npz              record the oracle's values
  zinc-rt golden check M.npz --model M.gguf                               check that they are still reproduced
  zinc-rt golden import --from npz dump.npz --model M.gguf -o theirs.npz  import your engine's values
  zinc-rt validate --model M.gguf --golden theirs.npz                     find where the two diverge

`zinc-rt golden COMMAND --help` lists the options. File format, and dumping from your engine: docs/golden.md
"""
MAKE_EPILOG = """\
examples:
  zinc-rt golden make --model M.gguf --prompt "Hello" --steps 16 -o M.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --nodes 'attn_norm-*' --ordering float32-dequant -o M.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --tier vulkan --device vulkan:0 -o M.vulkan.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --nodes '*' --digests -o M.small.npz
  zinc-rt golden make --tiny qwen35moe --quant q --hidden 256 --seed 7 -o m.gguf
  zinc-rt golden make --tiny all -o models/

Output is reproducible: equal arguments give equal bytes. --tiny help lists the architectures.
"""
CHECK_EPILOG = """\
examples:
  zinc-rt golden check                     the embedded goldens
  zinc-rt golden check a.npz b.npz         each with the model that it names, in the same folder
  zinc-rt golden check a.npz --model M.gguf

Goldens of this runtime are recomputed in their ordering and compared bit for bit. Goldens of other engines are
compared within the limits of zinc-rt validate. Exit code: 0 all match, 1 one does not, 2 unusable input.
"""
DIFF_EPILOG = """\
examples:
  zinc-rt golden diff M.vulkan.npz M.npz                   one device against the oracle
  zinc-rt golden diff lavapipe.npz radv.npz -v

Two goldens of the same canonical ordering must be bit-exact, whichever device computed them. For others,
docs/golden.md gives the limits. Exit code: 0 they agree, 1 they differ, 2 unusable input, 77 nothing in common.
"""
DUMPERS = {"llama-cpp": "llama_cpp_dump.c", "torch": "torch_hook.py"}
DUMPER_EPILOG = """\
Each dumper is a single file that does not depend on this package. llama-cpp is a C program on llama.h, for any
build and backend. torch hooks transformers, vLLM or your own module. The file's header describes how to build and
run it.

examples:
  zinc-rt golden dumper llama-cpp -o llama_cpp_dump.c
  zinc-rt golden dumper torch -o torch_hook.py
  zinc-rt golden import --from npz dump.npz --model M.gguf --source "llama.cpp, ROCm" -o G.npz
"""
IMPORT_EPILOG = """\
examples:
  zinc-rt golden import --from llama-cpp --model M.gguf --tokens 1,2,3 --dequantised -o M.npz
  zinc-rt golden import --from llama-cpp --model M.gguf --tokens 1,2,3 --dequantised --rows 1 -o M.npz
  zinc-rt golden import --from npz dump.npz --model M.gguf --map hidden_0=l_out-0 --map tokens=ids -o M.npz

llama.cpp re-quantises activations for quantised weights; this runtime does not. --dequantised also runs the same
weights in F32, which gives the only values that compare tightly.
A dump needs ids [T] and logits [T, vocabulary]; l_out [layers, T, width] or l_out-0, l_out-1, ... and any other
label-N [T, ...] are welcome. docs/golden.md names them all.
"""


def build_parser(description: str | None) -> argparse.ArgumentParser:
    parser = Parser("zinc-rt golden", description=description, epilog=EPILOG)
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", required=True)

    make = commands.add_parser("make", help="write a golden, or a tiny model", epilog=MAKE_EPILOG)
    which = make.add_mutually_exclusive_group(required=True)
    which.add_argument("-m", "--model", metavar="FILE", help="GGUF file to create a golden for")
    which.add_argument(
        "--tiny",
        metavar="ARCH",
        help="create a tiny model of ARCH; all: one of each architecture; help: list the architectures",
    )
    _add_prompt(make)
    make.add_argument(
        "--nodes", action="append", default=[], metavar="GLOB", help="also store the values of these nodes"
    )
    make.add_argument(
        "--digests",
        action="store_true",
        help="store digests instead of values, except for the logits of the last position",
    )
    make.add_argument(
        "--tier",
        metavar="TIER",
        help=f"tier that computes the values: {', '.join(row.tier for row in registry.built())} (default t_cpu)",
    )
    options.add_engine(make, tier=False)
    tiny = make.add_argument_group("tiny models")
    tiny.add_argument("--seed", type=int, metavar="S", help="seed of the weights (default 0)")
    tiny.add_argument(
        "--quant", metavar="TYPE", help="weight type: q (a mixture), f32, f16, q8_0, q4_k ... (default f32)"
    )
    for size in SIZES:
        tiny.add_argument(f"--{size.replace('_', '-')}", type=int, metavar="N", help=argparse.SUPPRESS)
    flags = [f"--{size.replace('_', '-')} N" for size in SIZES]
    half = len(flags) // 2
    tiny.description = f"sizes: {' '.join(flags[:half])}\n       {' '.join(flags[half:])}"
    _add_out(make)
    add_json(make, tables=False)

    check = commands.add_parser("check", help="verify that goldens can still be reproduced", epilog=CHECK_EPILOG)
    check.add_argument("goldens", nargs="*", metavar="G.npz", help="goldens to check (default: the embedded ones)")
    check.add_argument("-m", "--model", metavar="FILE", help="the model (default: the one named in each golden)")
    check.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: all cores)")
    add_json(check)

    diff = commands.add_parser("diff", help="show where two goldens differ", epilog=DIFF_EPILOG)
    diff.add_argument("got", metavar="A.npz", help="golden to compare")
    diff.add_argument("want", metavar="B.npz", help="reference golden")
    diff.add_argument("-v", "--verbose", action="store_true", help="show every array and every histogram bin")
    add_json(diff)

    list_ = commands.add_parser("list", help="list the goldens of a folder")
    list_.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="folder of goldens (default: the embedded ones)"
    )
    add_json(list_)

    import_ = commands.add_parser("import", help="import values of another engine", epilog=IMPORT_EPILOG)
    import_.add_argument(
        "--from", dest="origin", choices=("llama-cpp", "npz"), required=True, help="source of the values"
    )
    import_.add_argument(
        "dump", nargs="?", metavar="DUMP.npz", help="with --from npz: file with the values of your engine"
    )
    import_.add_argument("-m", "--model", metavar="FILE", required=True, help="the model, a GGUF file")
    _add_prompt(import_)
    import_.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length, which some RoPE factors depend on; 0: the trained length",
    )
    import_.add_argument(
        "--rows",
        type=options.parse_tokens,
        metavar="9,23",
        help="llama-cpp: store all named values at these prompt positions, counted from 0",
    )
    import_.add_argument(
        "--only-rows", action="store_true", help="llama-cpp: with --rows, store values of these positions only"
    )
    import_.add_argument("--dequantised", action="store_true", help="llama-cpp: also run the same weights in F32")
    import_.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="THEIRS=OURS",
        help="npz: map an array to this runtime's name for it",
    )
    import_.add_argument(
        "--source", metavar="TEXT", help="npz: name and version of the engine, stored in the golden"
    )
    _add_out(import_)
    add_json(import_, tables=False)
    dumper = commands.add_parser(
        "dumper", help="write a program that dumps the values of another engine", epilog=DUMPER_EPILOG
    )
    dumper.add_argument("engine", choices=tuple(DUMPERS), help="engine to write the dump program for")
    _add_out(dumper)
    add_json(dumper, tables=False)
    return parser


def _add_prompt(to: argparse.ArgumentParser) -> None:
    prompt = to.add_mutually_exclusive_group()
    prompt.add_argument("--tokens", type=options.parse_tokens, metavar="1,2,3", help="token ids")
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="text, tokenised with the model's tokenizer")
    to.add_argument(
        "-n",
        "--steps",
        type=int,
        metavar="N",
        help=f"number of greedy tokens after the prompt (default {DEFAULT_STEPS})",
    )


def _add_out(to: argparse.ArgumentParser) -> None:
    to.add_argument("-o", "--out", metavar="FILE", help="output file, written atomically")
    to.add_argument("--force", action="store_true", help="replace an existing file")
