"""The options of zinc-rt-golden, with examples; nothing heavy is imported for --help."""

from __future__ import annotations

import argparse

from zinc_rt.backends import registry
from zinc_rt.cli import options
from zinc_rt.cli.output import add_json
from zinc_rt.host.arguments import Parser

DEFAULT_STEPS = 8
SIZES = (
    *("hidden", "layers", "vocab", "heads", "kv_heads", "head_dim", "ffn"),
    *("experts", "experts_used", "router_rows", "window", "context"),
)

EPILOG = """\
examples:
  zinc-rt golden make --tiny qwen3 --quant q --hidden 256 -o tiny.gguf    a small model to play with
  zinc-rt golden make --model M.gguf --tokens 1,2,3 -o M.npz              what the oracle computes for it
  zinc-rt golden check M.npz --model M.gguf                               does it still?
  zinc-rt golden import --from npz dump.npz --model M.gguf -o theirs.npz  what your own engine computes
  zinc-rt validate --model M.gguf --golden theirs.npz                     where the two first diverge

`zinc-rt golden COMMAND --help` explains each. The file format, and how to dump from your own engine:
docs/golden.md
"""
MAKE_EPILOG = """\
examples:
  zinc-rt golden make --model M.gguf --prompt "Hello" --steps 16 -o M.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --nodes 'attn_norm-*' --ordering float32-dequant -o M.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --tier vulkan --device vulkan:0 -o M.vulkan.npz
  zinc-rt golden make --model M.gguf --tokens 1,2,3 --nodes '*' --digests -o M.small.npz
  zinc-rt golden make --tiny qwen35moe --quant q --hidden 256 --seed 7 -o m.gguf
  zinc-rt golden make --tiny all -o models/

The same arguments give the same bytes. Tiny architectures: zinc-rt golden make --tiny help
"""
CHECK_EPILOG = """\
examples:
  zinc-rt golden check                     the embedded ones
  zinc-rt golden check a.npz b.npz         each with the model it names, beside it
  zinc-rt golden check a.npz --model M.gguf

Goldens of this runtime are computed again in their own ordering and compared to the bit; those of other engines
within the limits of zinc-rt validate. Exit code: 0 all hold, 1 one does not, 2 unusable input.
"""
DIFF_EPILOG = """\
examples:
  zinc-rt golden diff M.vulkan.npz M.npz                   one device against the oracle
  zinc-rt golden diff lavapipe.npz radv.npz -v

Two goldens of one canonical ordering are equal to the bit, whatever made them; others are as near as
docs/golden.md says. Exit code: 0 they agree, 1 they do not, 2 unusable input, 77 nothing in common.
"""
DUMPERS = {"llama-cpp": "llama_cpp_dump.c", "torch": "torch_hook.py"}
DUMPER_EPILOG = """\
Each is one file that needs nothing of ours: llama-cpp is C over llama.h, for any build and backend; torch hooks
transformers or vLLM, or a module of your own. How to build and run it stands at its top.

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

llama.cpp re-quantises activations before quantised weights, this runtime does not: --dequantised also runs the
same weights in F32, the only values that compare tightly.
A dump needs ids [T] and logits [T, vocabulary]; l_out [layers, T, width] or l_out-0, l_out-1, ... and any other
label-N [T, ...] are welcome. docs/golden.md names them all.
"""


def parser(description: str | None) -> argparse.ArgumentParser:
    made = Parser("zinc-rt golden", description=description, epilog=EPILOG)
    commands = made.add_subparsers(dest="what", metavar="COMMAND", required=True)

    make = commands.add_parser("make", help="write a golden, or a tiny model", epilog=MAKE_EPILOG)
    which = make.add_mutually_exclusive_group(required=True)
    which.add_argument("-m", "--model", metavar="FILE", help="make a golden of this model, a GGUF file")
    which.add_argument("--tiny", metavar="ARCH", help="make a tiny model of ARCH, of all, or name them with help")
    _add_prompt(make)
    make.add_argument("--nodes", action="append", default=[], metavar="GLOB", help="keep these values too")
    make.add_argument(
        "--digests",
        action="store_true",
        help="keep digests of all values, and the values of the last position's logits alone",
    )
    make.add_argument(
        "--tier",
        metavar="TIER",
        help=f"what computes it: {', '.join(row.tier for row in registry.built())} (default t_cpu)",
    )
    options.add_engine(make, tier=False)
    tiny = make.add_argument_group("tiny models")
    tiny.add_argument("--seed", type=int, metavar="S", help="of the weights (default 0)")
    tiny.add_argument("--quant", metavar="TYPE", help="q (a mixture), f32, f16, q8_0, q4_k ... (default f32)")
    for size in SIZES:
        tiny.add_argument(f"--{size.replace('_', '-')}", type=int, metavar="N", help=argparse.SUPPRESS)
    flags = [f"--{size.replace('_', '-')} N" for size in SIZES]
    half = len(flags) // 2
    tiny.description = f"sizes: {' '.join(flags[:half])}\n       {' '.join(flags[half:])}"
    _add_out(make)
    add_json(make)

    check = commands.add_parser("check", help="verify that goldens still hold", epilog=CHECK_EPILOG)
    check.add_argument("goldens", nargs="*", metavar="G.npz", help="default: the embedded ones")
    check.add_argument("-m", "--model", metavar="FILE", help="default: the model each golden names, beside it")
    check.add_argument("--threads", type=int, metavar="N", help="T-CPU threads (default: every core)")
    add_json(check)

    diff = commands.add_parser("diff", help="say where two goldens differ", epilog=DIFF_EPILOG)
    diff.add_argument("got", metavar="A.npz", help="the one that is judged")
    diff.add_argument("want", metavar="B.npz", help="the one it is held against")
    diff.add_argument("-v", "--verbose", action="store_true", help="every array, and every bin of the histograms")
    add_json(diff)

    list_ = commands.add_parser("list", help="list the goldens of a folder")
    list_.add_argument("folder", nargs="?", metavar="FOLDER", help="default: the embedded ones")
    add_json(list_)

    import_ = commands.add_parser("import", help="import another engine's values", epilog=IMPORT_EPILOG)
    import_.add_argument("--from", dest="origin", choices=("llama-cpp", "npz"), required=True, help="whose values")
    import_.add_argument("dump", nargs="?", metavar="DUMP.npz", help="with --from npz: your engine's values")
    import_.add_argument("-m", "--model", metavar="FILE", required=True, help="the model, a GGUF file")
    _add_prompt(import_)
    import_.add_argument(
        "-c", "--ctx", type=int, metavar="N", help="context length, on which some rope factors depend"
    )
    import_.add_argument(
        "--rows",
        type=options.token_list,
        metavar="9,23",
        help="llama-cpp: keep every named value of these positions of the prompt, counted from 0",
    )
    import_.add_argument(
        "--only-rows", action="store_true", help="llama-cpp: with --rows, keep nothing of the other positions"
    )
    import_.add_argument("--dequantised", action="store_true", help="llama-cpp: also the same weights in F32")
    import_.add_argument(
        "--map", action="append", default=[], metavar="THEIRS=OURS", help="npz: what an array is called here"
    )
    import_.add_argument("--source", metavar="TEXT", help="npz: the engine's name and version, kept in the golden")
    _add_out(import_)
    add_json(import_)
    dumper = commands.add_parser(
        "dumper", help="write a program that dumps another engine's values", epilog=DUMPER_EPILOG
    )
    dumper.add_argument("engine", choices=tuple(DUMPERS), help="whose values it dumps")
    _add_out(dumper)
    add_json(dumper)
    return made


def _add_prompt(to: argparse.ArgumentParser) -> None:
    prompt = to.add_mutually_exclusive_group()
    prompt.add_argument("--tokens", type=options.token_list, metavar="1,2,3", help="token ids, as they are")
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="tokenised with the model's own tokenizer")
    to.add_argument(
        "-n", "--steps", type=int, metavar="N", help=f"greedy tokens after it (default {DEFAULT_STEPS})"
    )


def _add_out(to: argparse.ArgumentParser) -> None:
    to.add_argument("-o", "--out", metavar="FILE", help="written whole or not at all")
    to.add_argument("--force", action="store_true", help="replace an existing file")
