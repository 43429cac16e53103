"""Which goldens still hold: the list says so, and an expired one fails it with the command that mends it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.format import FORMAT, read_golden, write_golden
from zinc_rt.host.version import digest_code
from zinc_rt.validate.goldens.command import main
from zinc_rt.validate.goldens.listing import check_validity

ARRAYS = {"ids": np.array([1, 2], np.int32), "logits": np.ones((2, 4), np.float32)}
OURS = {
    "source": "zinc-rt 0.1.0",
    "ordering": "canonical-1",
    "command": "zinc-rt golden make --model m.gguf -o g.npz",
}


def write_golden_with_meta(folder: Path, **meta: object) -> Path:
    path = folder / "g.npz"
    write_golden(path, ARRAYS, meta)
    return path


def test_embedded_goldens_are_current() -> None:
    assert {check_validity(read_golden(pair.golden)).state for pair in list_embedded_pairs()} == {"current"}


@pytest.mark.parametrize(
    ("meta", "state"),
    [
        ({**OURS, "code": digest_code()}, "current"),
        ({**OURS, "code": "0" * 64}, "recheck"),
        ({**OURS, "ordering": "canonical-0", "code": digest_code()}, "expired"),
        ({"llama_cpp": "b1234"}, "current"),
        ({"llama_cpp": "b1234", "code": "0" * 64}, "current"),
    ],
)
def test_only_goldens_of_our_arithmetic_expire(meta: dict[str, object], state: str, tmp_path: Path) -> None:
    assert check_validity(read_golden(write_golden_with_meta(tmp_path, **meta))).state == state


def test_changed_adjacent_model_expires_the_golden(tmp_path: Path) -> None:
    golden = read_golden(
        write_golden_with_meta(tmp_path, llama_cpp="b1", model_digest="ab" * 32, command="remake")
    )
    result = check_validity(golden, "cd" * 32)
    assert result.state == "expired" and "abababababab" in result.next and "remake" not in result.next
    assert check_validity(golden, "ab" * 32).state == "current"


def test_list_prints_the_command_that_remakes_a_golden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_golden_with_meta(tmp_path, **{**OURS, "ordering": "canonical-0"})
    assert main(["list", str(tmp_path)]) == 1
    seen = capsys.readouterr().out
    assert "expired" in seen and OURS["command"] in seen and "canonical-0" in seen


def test_unsupported_format_is_reported_with_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_golden_with_meta(tmp_path, format=FORMAT + 1)
    main(["list", str(tmp_path)])
    assert f"golden format {FORMAT + 1}; this build reads {FORMAT}" in capsys.readouterr().out
