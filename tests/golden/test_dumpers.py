"""Programs for other people's engines: what they write, `golden import` takes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.golden import torch_hook
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.format import read_golden
from zinc_rt.golden.torch_hook import TorchRecorder
from zinc_rt.validate.goldens.command import main

HERE = Path(__file__).parent
IDS = [1, 2, 3]
WIDTH, VOCAB = 256, 512


# --- a tree of modules, as torch has them, without torch -------------------------------------------------------


class Tensor:
    """The part of torch.Tensor that a hook uses."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    shape = property(lambda self: self.array.shape)

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32))

    def numpy(self) -> np.ndarray:
        return self.array

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.array + other.array)


class Handle:
    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self.remove = lambda: hooks.remove(hook)


class Module:
    def __init__(self, run: Callable[..., Any] = lambda x: x, **children: Any) -> None:
        self.run, self.children, self.hooks = run, children, []

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def register_forward_hook(self, hook: Any) -> Handle:
        self.hooks.append(hook)
        return Handle(self.hooks, hook)

    def __call__(self, x: Any) -> Any:
        output = self.run(x)
        for hook in list(self.hooks):
            hook(self, (x,), output)
        return output


def make_layer(number: int, output_kind: Callable[[np.ndarray], Any]) -> Module:
    inner = {"input_layernorm": Module(lambda x: Tensor(x.array * 0.5)), "mlp": Module()}

    def run(x: Tensor) -> Any:
        inner["input_layernorm"](x)
        inner["mlp"](x)
        return output_kind(x.array + number + 1)

    return Module(run, **inner)


def make_model(output_kind: Callable[[np.ndarray], Any], layers: int = 2) -> Module:
    blocks = [make_layer(number, output_kind) for number in range(layers)]
    norm = Module()

    def run(x: Tensor) -> Tensor:
        for block in blocks:
            out = block(x)
            x = out if isinstance(out, Tensor) else out[0] + out[1] if len(out) == 2 else out[0]
        return norm(x)  # type: ignore[no-any-return]

    inside = Module(run, layers=Module(**{str(n): block for n, block in enumerate(blocks)}), norm=norm)
    return Module(inside, model=inside)


GIVES: dict[str, Callable[[np.ndarray], Any]] = {
    "a tensor": Tensor,
    "transformers' tuple": lambda array: (Tensor(array), None),
    "vLLM's addend and residual": lambda array: (Tensor(array * 0.25), Tensor(array * 0.75)),
}


@pytest.mark.parametrize("output_kind", GIVES)
def test_residual_stream_of_each_layer_is_saved(output_kind: str) -> None:
    batch = [] if "vLLM" in output_kind else [1]
    x = Tensor(np.arange(3 * WIDTH, dtype=np.float16).reshape(*batch, 3, WIDTH) / 64)
    tree = make_model(
        lambda array: (
            GIVES[output_kind](array) if output_kind != "transformers' tuple" else (Tensor(array), None, None)
        )
    )
    with TorchRecorder(tree, inside=True) as recorder:
        tree(x)
    tree(x)  # after it was closed: nothing is kept
    flat = x.array.reshape(3, WIDTH).astype(np.float32)
    assert set(recorder.arrays) == {
        f"{name}-{n}" for name in ("l_out", "attn_norm", "ffn_out") for n in (0, 1)
    } | {"result_norm"}
    np.testing.assert_allclose(recorder.arrays["l_out-0"], flat + 1, atol=1e-2)
    np.testing.assert_allclose(recorder.arrays["l_out-1"], flat + 3, atol=1e-2)
    assert recorder.arrays["l_out-0"].dtype == np.float32


def test_dump_can_be_imported_as_golden(tmp_path: Path) -> None:
    tree = make_model(Tensor, layers=3)
    with TorchRecorder(tree) as recorder:
        tree(Tensor(np.ones((1, 3, WIDTH), np.float32)))
    dump, golden = tmp_path / "dump.npz", tmp_path / "g.npz"
    recorder.save(str(dump), ids=IDS, logits=Tensor(np.zeros((1, 3, VOCAB), np.float32)))
    words = ["import", "--from", "npz", str(dump), "--model", str(FOLDER / "qwen3-q.gguf"), "-o", str(golden)]
    assert main(words) == 0
    read = read_golden(golden)
    assert read.l_out is not None and read.l_out.shape == (3, 3, WIDTH) and read.ids.tolist() == IDS


def test_rows_of_a_chunked_prompt_are_joined() -> None:
    tree = make_model(Tensor)
    with TorchRecorder(tree) as recorder:
        tree(Tensor(np.zeros((2, WIDTH), np.float32)))
        tree(Tensor(np.ones((1, WIDTH), np.float32)))
    assert recorder.arrays["l_out-1"][:, 0].tolist() == [3.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="has 3 rows for 5 tokens"):
        recorder.save("unused.npz", ids=[1] * 5, logits=np.zeros((5, 2)))


def test_module_tree_without_layers_is_rejected_with_its_names() -> None:
    with pytest.raises(ValueError, match="the first modules are encoder"):
        TorchRecorder(Module(encoder=Module()))
    with pytest.raises(ValueError, match="a batch of 2"):
        torch_hook.to_rows(Tensor(np.zeros((2, 3, 4))))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("model.layers.12", "l_out-12"),
        ("language_model.model.layers.3", "l_out-3"),
        ("transformer.h.0", "l_out-0"),
        ("model.norm", "result_norm"),
        ("model.layers.0.self_attn.o_proj", "attn_out-0"),
        ("model.layers.0.mlp.experts.5", None),
        ("model.layers.0.self_attn.q_norm", None),
        ("model.embed_tokens", None),
    ],
)
def test_module_name_maps_to_its_label(name: str, label: str | None) -> None:
    assert torch_hook.find_label(name, torch_hook.ALWAYS + torch_hook.INSIDE) == label


def test_hook_runs_standalone_and_reports_missing_dependencies(tmp_path: Path) -> None:
    """In an environment without anything of ours, and here without torch."""
    assert main(["dumper", "torch", "-o", str(tmp_path / "hook.py")]) == 0
    program = [sys.executable, "-I", str(tmp_path / "hook.py"), "--model", "M", "-o", "d.npz", "--tokens"]
    result = subprocess.run([*program, "1,2"], capture_output=True, text=True, cwd=tmp_path, check=False)
    if importlib.util.find_spec("torch") is None:
        assert result.returncode == 2 and "run this where transformers is installed" in result.stderr
    result = subprocess.run([*program, "one"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2 and "expected ids like 1,2,3" in result.stderr


# --- llama.cpp -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dumper_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program written by `golden dumper`, linked with a minimal fake of llama.cpp."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no C compiler: pip install ziglang")
    folder = tmp_path_factory.mktemp("dumper")
    source, program = folder / "dump.c", folder / "zinc-llama-dump"
    assert main(["dumper", "llama-cpp", "-o", str(source)]) == 0
    compiler = [sys.executable, "-m", "ziglang", "cc", "-O1", "-Wall", "-Wextra", "-Werror"]
    command = [*compiler, "-I", str(HERE / "fake_llama"), str(source), "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return program


def run_dumper(dumper: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(dumper), *words], capture_output=True, text=True, check=False)


@pytest.mark.rest
def test_llama_cpp_values_become_numpy_arrays(dumper_program: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    words = ["-m", str(tmp_path / "m.gguf"), "-t", "1,2,3", "-o", str(tmp_path / "d.npz"), "-k", "attn_norm-"]
    result = run_dumper(dumper_program, *words)
    assert result.returncode == 0, result.stderr
    with np.load(tmp_path / "d.npz") as arrays:
        assert set(arrays) == {"ids", "logits", "l_out-0", "l_out-1", "result_norm", "attn_norm-0", "attn_norm-1"}
        assert arrays["ids"].tolist() == IDS and arrays["ids"].dtype == np.int32
        assert arrays["logits"].shape == (3, 7) and arrays["logits"][2, 6] == 3006.0
        assert arrays["l_out-1"][2].tolist() == [120.0, 121.0, 122.0, 123.0], "the last of a name, row by row"
        assert arrays["attn_norm-1"][0, 1] == 50.5


@pytest.mark.rest
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-m", "/missing.gguf", "-t", "1", "-o", "d.npz"], 1, "/missing.gguf: llama.cpp cannot load it"),
        (["-m", "M", "-t", "1,99", "-o", "d.npz"], 2, "token 99: ids run to 6"),
        (["-m", "M", "-t", "1", "-p", "text", "-o", "d.npz"], 2, "usage"),
        (["-m", "M", "-o", "d.npz"], 2, "usage"),
        (["-m", "M", "-t", "1", "-o", "/missing/d.npz"], 1, "/missing/d.npz: cannot write"),
        (["-m"], 2, "usage"),
    ],
)
def test_invalid_input_prints_one_line(
    dumper_program: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "m.gguf").touch()
    result = run_dumper(dumper_program, *[str(tmp_path / "m.gguf") if word == "M" else word for word in words])
    assert result.returncode == code and message in result.stderr, result


def test_dumper_is_printed_to_stdout_and_overwrites_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dumper", "llama-cpp"]) == 0
    assert "zinc-rt golden import --from npz" in capsys.readouterr().out
    (tmp_path / "there.c").touch()
    assert main(["dumper", "llama-cpp", "-o", str(tmp_path / "there.c")]) == 2
    assert "the file already exists" in capsys.readouterr().err
