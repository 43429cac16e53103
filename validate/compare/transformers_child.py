"""Child process of compare and judge in an environment with torch and transformers: writes logits and layers to an
.npz and prints speeds as a line of JSON.

The weights are dequantised to float32, and the arithmetic is torch's on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:] = [item for item in sys.path if Path(item or ".").resolve() != HERE]  # its names would shadow packages
os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", required=True, help="1,2,3; more prompts after a semicolon")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--out")
    parser.add_argument("--prompt-tokens", type=int, default=0)
    parser.add_argument("--new-tokens", type=int, default=0)
    arguments = parser.parse_args()
    import torch
    import transformers

    path = Path(arguments.model).resolve()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    version = f"{transformers.__version__}, torch {torch.__version__}"
    output: dict[str, Any] = {"version": version, "backend": f"cpu, {torch.get_num_threads()} threads"}
    prompts = [[int(part) for part in text.split(",")] for text in arguments.tokens.split(";")]
    layers: list[np.ndarray] = []

    def keep(_module: object, _inputs: object, result: Any) -> None:
        layers.append((result[0] if isinstance(result, tuple) else result).reshape(len(prompts[0]), -1).numpy())

    with torch.no_grad():
        if arguments.out:
            hooks = [layer.register_forward_hook(keep) for layer in model.get_decoder().layers]
            logits = model(torch.tensor([prompts[0]])).logits[0].numpy()
            for hook in hooks:
                hook.remove()
            last = [model(torch.tensor([prompt])).logits[0, -1].numpy() for prompt in prompts[1:]]
            np.savez(arguments.out, logits=logits, l_out=np.stack(layers), last=np.array(last, np.float32))
        if arguments.new_tokens:
            _measure_speed(model, torch, arguments, output)
    print(json.dumps(output))
    return 0


def _measure_speed(model: Any, torch: Any, arguments: argparse.Namespace, output: dict[str, Any]) -> None:
    vocab = model.config.get_text_config().vocab_size
    ids = torch.tensor([[1 + index % (vocab - 1) for index in range(arguments.prompt_tokens)]])
    for _ in range(2):  # the first is a warm-up
        stamps, cache, tokens = [time.perf_counter()], None, ids
        for _ in range(arguments.new_tokens + 1):
            step = model(tokens, past_key_values=cache, use_cache=True)
            cache, tokens = step.past_key_values, step.logits[:, -1:].argmax(-1)
            stamps.append(time.perf_counter())
    output["prefill_tokens_per_second"] = arguments.prompt_tokens / (stamps[1] - stamps[0])
    output["decode_tokens_per_second"] = arguments.new_tokens / (stamps[-1] - stamps[1])


if __name__ == "__main__":
    sys.exit(main())
