"""Record a PyTorch model's values for a prompt in an .npz for `zinc-rt golden import --from npz`.

Runs in your environment, with your transformers or vLLM; it needs only NumPy, not ZINC_RT. Forward hooks,
found by module name, keep what each layer hands to the next and, with --all, the values inside a layer, under the
names that llama.cpp and ZINC_RT give them.

    python torch_hook.py --model HF_FOLDER --tokens 1,2,3 -o dump.npz                  transformers, float32, CPU
    python torch_hook.py --model HF_FOLDER --tokens 1,2,3 --engine vllm -o dump.npz    vLLM, its own dtype
    zinc-rt golden import --from npz dump.npz --model M.gguf --source "vLLM 0.11" -o G.npz
    zinc-rt validate --model M.gguf --golden G.npz

In a program of your own, around any torch.nn.Module:

    from torch_hook import TorchRecorder
    with TorchRecorder(model) as recorder:
        logits = model(input_ids=ids).logits
    recorder.save("dump.npz", ids=[1, 2, 3], logits=logits)

The GGUF file must hold the same weights: convert them in the dtype that ran (F32 for float32), not quantised.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Module name (the end of it) -> our label; the group is the layer. The names are transformers', which vLLM keeps.
LAYER = r"(?:^|\.)(?:layers|h|blocks)\.(\d+)"
ALWAYS = (
    (re.compile(LAYER + "$"), "l_out-{}"),
    (re.compile(r"(?:^|\.)(?:model|transformer|language_model)\.(?:norm|ln_f)$|^(?:norm|ln_f)$"), "result_norm"),
)
INSIDE = (
    (re.compile(LAYER + r"\.(?:input_layernorm|ln_1)$"), "attn_norm-{}"),
    (re.compile(LAYER + r"\.self_attn\.o_proj$"), "attn_out-{}"),
    (re.compile(LAYER + r"\.mlp\.gate_proj$"), "ffn_gate-{}"),
    (re.compile(LAYER + r"\.mlp\.up_proj$"), "ffn_up-{}"),
    (re.compile(LAYER + r"\.(?:mlp|feed_forward)$"), "ffn_out-{}"),
)


class TorchRecorder:
    """Hooks every module whose name has a label, until it is closed. If a module runs again (decode,
    chunked prefill), the rows are concatenated."""

    def __init__(self, model: Any, *, inside: bool = False) -> None:
        self.parts: dict[str, list[np.ndarray]] = {}
        self.handles: list[Any] = []
        table = ALWAYS + (INSIDE if inside else ())
        for name, module in model.named_modules():
            label = find_label(name, table)
            if label is not None:
                self.handles.append(module.register_forward_hook(self._make_hook(label)))
        if not any(label.startswith("l_out-") for label in self.list_labels(model, table)):
            self.close()
            names = [name for name, _ in model.named_modules() if name][:12]
            raise ValueError(
                f"found no layers (modules named like model.layers.0); the first modules are {', '.join(names)}"
            )

    @staticmethod
    def list_labels(model: Any, table: Sequence[tuple[re.Pattern[str], str]]) -> list[str]:
        labels = (find_label(name, table) for name, _ in model.named_modules())
        return [label for label in labels if label is not None]

    def _make_hook(self, label: str) -> Callable[[Any, Any, Any], None]:
        def record_output(module: Any, inputs: Any, output: Any) -> None:
            self.parts.setdefault(label, []).append(to_rows(select_value(label, output)))

        return record_output

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the values, f32 [T, ...] by label."""
        return {label: np.concatenate(parts) for label, parts in self.parts.items()}

    def save(self, path: str, *, ids: Sequence[int], logits: Any, tokens: int | None = None) -> None:
        """Write the .npz. `logits`: [T, V] or [1, T, V]. `tokens`: how many rows of each value belong to
        the prompt (default: the number of ids). Raises ValueError for values with too few rows."""
        count = len(ids) if tokens is None else tokens
        arrays = {label: array[:count] for label, array in self.arrays.items()}
        short = [label for label, array in arrays.items() if len(array) != count]
        if short:
            raise ValueError(
                f"{short[0]} has {len(arrays[short[0]])} rows for {count} tokens; part of the prompt may have "
                "been cached"
            )
        everything: dict[str, Any] = {**arrays, "ids": np.asarray(ids, np.int32), "logits": to_rows(logits)}
        np.savez(path, **everything)

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def __enter__(self) -> TorchRecorder:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def find_label(name: str, table: Sequence[tuple[re.Pattern[str], str]]) -> str | None:
    for pattern, label in table:
        match = pattern.search(name)
        if match:
            return label.format(*match.groups())
    return None


def select_value(label: str, output: Any) -> Any:
    """Return the tensor of a module's output. vLLM's layers return (addend, residual): the stream is their
    sum; its norms return (normed, residual)."""
    if not isinstance(output, (tuple, list)):
        return output
    tensors = [item for item in output if hasattr(item, "shape")]
    if (
        label.startswith("l_out-")
        and len(output) == 2
        and len(tensors) == 2
        and tensors[0].shape == tensors[1].shape
    ):
        return tensors[0].float() + tensors[1].float()
    return tensors[0]


def to_rows(tensor: Any) -> np.ndarray:
    """Return the rows, f32 [T, ...], without the leading batch dimension of transformers."""
    array: np.ndarray = tensor.detach().float().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)
    array = array.astype(np.float32)
    if array.ndim > 2:
        if array.shape[0] != 1:
            raise ValueError(f"got a batch of {array.shape[0]} prompts; run one prompt at a time")
        array = array[0]
    return array.copy()


def run_transformers(arguments: argparse.Namespace, ids: list[int]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, arguments.dtype)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, torch_dtype=dtype, attn_implementation="eager")
    model = model.to(arguments.device).eval()
    with torch.no_grad(), TorchRecorder(model, inside=arguments.all) as recorder:
        logits = model(input_ids=torch.tensor([ids], device=arguments.device), use_cache=False).logits
    recorder.save(arguments.out, ids=ids, logits=logits)


def run_vllm(arguments: argparse.Namespace, ids: list[int]) -> None:
    """Run vLLM in this process without CUDA graphs, because hooks of captured graphs are never called. The
    model recomputes the logits from the last norm, because vLLM keeps only those of the last token."""
    import os

    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams

    llm = LLM(arguments.model, enforce_eager=True, enable_prefix_caching=False, dtype=arguments.dtype)
    kept: list[Any] = []

    def attach(model: Any) -> None:
        kept.extend([model, TorchRecorder(model, inside=arguments.all)])

    llm.apply_model(attach)
    llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=1, temperature=0.0))
    model, recorder = kept
    recorder.close()
    import torch

    norm = torch.as_tensor(recorder.arrays["result_norm"][: len(ids)])
    weight = next(model.parameters())
    logits = model.compute_logits(norm.to(weight.device, weight.dtype))
    recorder.save(arguments.out, ids=ids, logits=logits)


ENGINES = {"transformers": run_transformers, "vllm": run_vllm}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="folder of a Hugging Face model")
    parser.add_argument(
        "--tokens", required=True, metavar="1,2,3", help="token ids, in the format of zinc-rt tokenize"
    )
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    parser.add_argument("--dtype", default="float32", help="type of the weights at run time (default float32)")
    parser.add_argument("--device", default="cpu", help="device for transformers: cpu, cuda (default cpu)")
    parser.add_argument("--all", action="store_true", help="also store the values inside the layers")
    parser.add_argument("-o", "--out", required=True, metavar="dump.npz")
    arguments = parser.parse_args(argv)
    try:
        ids = [int(part) for part in arguments.tokens.split(",")]
    except ValueError:
        parser.error(f"--tokens {arguments.tokens}: expected ids like 1,2,3")
    try:
        ENGINES[arguments.engine](arguments, ids)
    except ImportError as error:
        print(f"torch_hook: {error}; run this where {arguments.engine} is installed", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"torch_hook: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {len(ids)} tokens from {arguments.engine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
