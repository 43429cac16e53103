"""Programs and packages that answer as other engines do, in the formats their own documentation shows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

# llama-bench -o json, one object a test; the field names of llama.cpp's tools/llama-bench
BENCH_ROW = {
    "build_commit": "8cf427ff", "build_number": 5163, "cpu_info": "AMD Ryzen 7", "gpu_info": "AMD Radeon R9700",
    "backends": "ROCm", "model_filename": "m.gguf", "model_type": "qwen3 0.6B Q8_0", "model_size": 639446688,
    "model_n_params": 596049920, "n_batch": 2048, "n_ubatch": 512, "n_threads": 8, "type_k": "f16",
    "n_gpu_layers": 99, "split_mode": "layer", "main_gpu": 0, "flash_attn": False, "use_mmap": True,
    "n_prompt": 512, "n_gen": 0, "test_time": "2025-04-24T12:00:28Z", "avg_ns": 69355123, "stddev_ns": 812345,
    "avg_ts": 7382.25, "stddev_ts": 85.01, "samples_ns": [69355123], "samples_ts": [7382.25],
}  # fmt: skip
BENCH = json.dumps([BENCH_ROW, {**BENCH_ROW, "n_prompt": 0, "n_gen": 128, "avg_ts": 119.84}])


def write_program(folder: Path, name: str, body: str) -> Path:
    """A Python script as an executable."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(0o755)
    return path


def print_tensor(name: str, array: np.ndarray, header: str = "common_debug_cb_eval") -> str:
    """Print a matrix in the format of llama.cpp's common/debug.cpp."""
    rows, width = array.shape

    def shown_indices(count: int) -> list[int | None]:
        return list(range(count)) if count <= 6 else [0, 1, 2, None, count - 3, count - 2, count - 1]

    lines = [
        f"{header}: {name:>24} = (f32)        ADD(ffn_out-0{{{width}, {rows}, 1, 1}}, "
        f"x{{{width}, {rows}, 1, 1}}}}) "
        f"= {{{width}, {rows}, 1, 1}}",
        "    [",
        "        [",
    ]
    for row in shown_indices(rows):
        if row is None:
            lines.append("            ..., ")
            continue
        cells = "".join("   ..., " if d is None else f"{array[row, d]:12.4f}, " for d in shown_indices(width))
        lines.append(f"            [{cells.removesuffix(', ')}  ],")
    return "\n".join([*lines, "        ],", "    ]", f"    sum = {array.sum():f}"])


LLAMA_CPP = """
import os
import numpy as np
__version__ = "0.3.16"
def llama_print_system_info(): return b"AVX2 = 1 | ROCm = 1"
class Llama:
    def __init__(self, path, n_ctx, n_gpu_layers, logits_all, verbose):
        if os.environ.get("FAKE") == "crash": raise RuntimeError("cannot load " + path)
        self.scores, self.n_tokens = np.zeros((n_ctx, 512), np.float32), 0
        self.right = np.load(os.environ["RIGHT"])["logits"]
    def n_vocab(self): return 512
    def reset(self): self.n_tokens = 0
    def eval(self, ids):
        for token in ids:
            self.scores[self.n_tokens] = self.right[self.n_tokens % len(self.right)] + 0.25
            self.n_tokens += 1
"""
TINYGRAD = """
import numpy as np
class Device: DEFAULT = "AMD"
class Tensor:
    def __init__(self, given): self.given = given
"""
TINYGRAD_LLM = """
import os
import numpy as np
class Value:
    def __init__(self, array): self.array = array; self.shape = array.shape
    def float(self): return self
    def numpy(self): return self.array
class Transformer:
    @staticmethod
    def from_gguf(gguf, context):
        return Transformer(np.load(os.environ["RIGHT"])), {}
    def __init__(self, right):
        self.right, count = right, len(right["ids"])
        self.token_embd = lambda ids: Value(np.zeros((1, count, 4)))
        self.token_embd.weight = Value(np.zeros((512, 4)))
        self.blk = [lambda x, start, n=n: Value(right["l_out"][None, n]) for n in range(len(right["l_out"]))]
        self.output_norm = lambda x: x
        self.output = lambda x: Value(right["logits"][None])
    def generate(self, prompt):
        while True: yield 1
"""


def write_fake_packages(folder: Path) -> dict[str, str]:
    """Fakes of llama_cpp and tinygrad, and the environment that finds them."""
    (folder / "llama_cpp.py").write_text(LLAMA_CPP)
    (folder / "tinygrad" / "apps").mkdir(parents=True)
    (folder / "tinygrad" / "__init__.py").write_text(TINYGRAD)
    (folder / "tinygrad" / "apps" / "__init__.py").touch()
    (folder / "tinygrad" / "apps" / "llm.py").write_text(TINYGRAD_LLM)
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))}


def read_report(path: Path) -> dict[str, dict[str, Any]]:
    """Results by peer."""
    return {result["id"]: result for result in json.loads(path.read_text())["results"]}
