"""Child process of compare in an environment with llama-cpp-python: writes logits to an .npz and prints speeds as
a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:] = [item for item in sys.path if Path(item or ".").resolve() != HERE]  # its names would shadow packages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--out")
    parser.add_argument("--prompt-tokens", type=int, default=0)
    parser.add_argument("--new-tokens", type=int, default=0)
    arguments = parser.parse_args()
    import llama_cpp

    ids = [int(part) for part in arguments.tokens.split(",")]
    llama = llama_cpp.Llama(
        arguments.model, n_ctx=arguments.context, n_gpu_layers=-1, logits_all=True, verbose=False
    )
    output: dict[str, Any] = {
        "version": llama_cpp.__version__,
        "backend": llama_cpp.llama_print_system_info().decode().strip(),
    }
    if arguments.out:
        llama.eval(ids)
        np.savez(arguments.out, logits=np.array(llama.scores[: len(ids)], np.float32))
    if arguments.new_tokens:
        vocab = llama.n_vocab()
        prompt = [index % vocab for index in range(1, arguments.prompt_tokens + 1)]
        for _ in range(2):  # the first warms up
            llama.reset()
            started = time.perf_counter()
            llama.eval(prompt)
            read = time.perf_counter()
            for _ in range(arguments.new_tokens):
                llama.eval([int(np.argmax(llama.scores[llama.n_tokens - 1]))])
            ended = time.perf_counter()
        output["prefill_tokens_per_second"] = len(prompt) / (read - started)
        output["decode_tokens_per_second"] = arguments.new_tokens / (ended - read)
    print(json.dumps(output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
