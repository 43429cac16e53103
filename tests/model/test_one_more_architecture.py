"""The one row that docs/extending.md shows for a new plain decoder: a model of it is built, and runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from extending import extend_tree

pytestmark = pytest.mark.rest

# A model of the new architecture, and the same tensors as llama, whose layers are alike without frequency factors.
PROGRAM = """
import json
from dataclasses import replace
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.writer import build_tiny, write_content
from zinc_rt.model.gguf import read_gguf

content = build_tiny("llama")
tensors = {name: values for name, values in content.tensors.items() if name != "rope_freqs.weight"}
said = {}
for architecture in ("internlm2", "llama"):
    write_content(f"{architecture}.gguf", replace(content, architecture=architecture, tensors=tensors))
    gguf = read_gguf(f"{architecture}.gguf")
    with Engine(gguf, CpuBackend("canonical-1"), ctx=16) as engine:
        said[architecture] = [gguf.architecture, engine.forward([1, 2, 3]).tobytes().hex()]
print(json.dumps(said))
"""


def test_plain_decoder_architecture_is_one_row(tmp_path: Path) -> None:
    tree = extend_tree("An architecture", tmp_path)
    assert tree.files == ("zinc_rt/model/registry.py",)
    result = tree.interpreter_in("-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert [name for name, _ in document.values()] == ["internlm2", "llama"]
    (_, ours), (_, alike) = document.values()
    assert ours == alike and ours.strip("0")
