"""Child process of compare in an environment with tinygrad: writes logits and layers to an .npz and prints speeds
as a line of JSON.

Over tinygrad's own GGUF transformer (tinygrad.llm, before that tinygrad.apps.llm), with float32 weights.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:] = [item for item in sys.path if Path(item or ".").resolve() != HERE]  # its names would shadow packages

MODULES = ("tinygrad.llm.model", "tinygrad.apps.llm")


def import_transformer() -> Any:
    problems = []
    for name in MODULES:
        try:
            return importlib.import_module(name).Transformer
        except (ImportError, AttributeError) as error:
            problems.append(str(error))
    raise SystemExit(f"no Transformer in this tinygrad: {'; '.join(problems)} (a git checkout has it)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--out")
    parser.add_argument("--prompt-tokens", type=int, default=0)
    parser.add_argument("--new-tokens", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("HALF", "0")
    from tinygrad import Device, Tensor

    try:
        release = version("tinygrad")
    except PackageNotFoundError:
        release = "from source"
    model, _ = import_transformer().from_gguf(Tensor(Path(arguments.model)), arguments.context)
    output: dict[str, Any] = {"version": release, "backend": str(Device.DEFAULT)}
    ids = [int(part) for part in arguments.tokens.split(",")]
    if arguments.out:
        x = model.token_embd(Tensor([ids])).float()
        layers = []
        for block in model.blk:
            x = block(x, 0)
            layers.append(x.numpy()[0])
        logits = model.output(model.output_norm(x)).numpy()[0]
        np.savez(arguments.out, logits=logits.astype(np.float32), l_out=np.stack(layers).astype(np.float32))
    if arguments.new_tokens:
        vocab = model.token_embd.weight.shape[0]
        for shift in (1, 2, 3):  # two compile; other prompts each, for tinygrad keeps what it has seen
            prompt = [(shift + index) % vocab for index in range(arguments.prompt_tokens)]
            stamps = [time.perf_counter()]
            for _ in model.generate(prompt):
                stamps.append(time.perf_counter())
                if len(stamps) > arguments.new_tokens + 1:
                    break
        output["prefill_tokens_per_second"] = arguments.prompt_tokens / (stamps[1] - stamps[0])
        output["decode_tokens_per_second"] = (len(stamps) - 2) / (stamps[-1] - stamps[1])
    print(json.dumps(output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
