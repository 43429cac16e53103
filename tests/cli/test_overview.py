"""The overview pages, docs/commands.md, the public API and early refusal of unusable models."""

from __future__ import annotations

import io
import pydoc
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import zinc_rt
from zinc_rt.cli.main import main
from zinc_rt.cli.overview import (
    BUILT_IN,
    GROUPS,
    HostPaths,
    describe_machine,
    format_full_help,
    format_overview,
    read_summary,
)
from zinc_rt.host.terminal import PlainProgress

Capture = pytest.CaptureFixture[str]
POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}
DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_command_has_exactly_one_group() -> None:
    names = [name for group in GROUPS for name in group.commands]
    assert sorted(names) == sorted([*POINTS, *BUILT_IN])


def test_summaries_are_short_sentences() -> None:
    assert not [name for name, point in POINTS.items() if not 10 < len(read_summary(point)) <= 70]
    assert all(read_summary(point).endswith(".") for point in POINTS.values())


def test_overview_has_at_most_20_lines_and_names_every_command() -> None:
    page = format_overview(POINTS, columns=80)
    assert len(page.splitlines()) <= 20
    assert set(page.split()) >= {*POINTS, *BUILT_IN}


def test_help_page_fits_80_columns() -> None:
    page = format_full_help(POINTS, columns=80)
    assert max(map(len, page.splitlines())) <= 80
    assert all(f"\n{group.name}: " in page for group in GROUPS)


def test_commands_of_other_packages_are_listed() -> None:
    assert "other" in format_overview([*POINTS, "extra"], columns=80)


def test_machine_state_names_an_amd_gpu_and_an_inaccessible_kfd(tmp_path: Path) -> None:
    paths = HostPaths(tmp_path / "drm", tmp_path / "dev")
    assert describe_machine(paths).startswith("no AMD GPU; tiers ")
    for node, vendor in (("renderD128", "0x10de"), ("renderD129", "0x1002")):
        (paths.drm / node / "device").mkdir(parents=True)
        (paths.drm / node / "device" / "vendor").write_text(f"{vendor}\n")
    assert "AMD GPU renderD129, but /dev/kfd is not accessible" in describe_machine(paths)
    paths.dev.mkdir()
    (paths.dev / "kfd").touch()
    assert describe_machine(paths).startswith("AMD GPU renderD129; tiers ")


def test_zinc_rt_alone_help_and_version(capsys: Capture) -> None:
    assert main([]) == 0 and "usage: zinc-rt COMMAND" in capsys.readouterr().out
    assert main(["help"]) == main(["--help"]) == 0
    first, second = capsys.readouterr().out.split("ZINC_RT: ")[1:]
    assert first == second
    assert main(["version"]) == main(["--version"]) == 0
    one, two = capsys.readouterr().out.splitlines()
    assert one == two
    with pytest.raises(SystemExit) as ended:
        main(["help", "perf", "bench"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: zinc-rt perf bench ")


def test_every_command_has_a_row_in_the_docs() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", (DOCS / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [name for group in GROUPS for name in group.commands]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "{}", "-p", "x"],
        ["logits", "{}", "--tokens", "1", "--out", "x.npz"],
        ["inspect", "{}"],
        ["tokenize", "{}", "--text", "x"],
        ["validate", "{}"],
        ["compare", "{}"],
        ["perplexity", "{}"],
        ["perf", "bench", "{}"],
        ["perf", "profile", "{}"],
        ["perf", "predict", "{}"],
        ["golden", "check", "{}"],
        ["golden", "make", "--model", "{}", "--tokens", "1", "-o", "x.npz"],
        ["isa", "disasm", "{}"],
        ["isa", "lint", "{}"],
        ["isa", "report", "{}"],
        ["pm4", "decode", "{}"],
        ["launch", "{}"],
        ["debug", "{}"],
        ["trace", "{}"],
        ["replay", "{}"],
        ["usage", "{}"],
        ["sched-test", "--workload", "{}"],
        ["bundle", "show", "{}"],
        ["bisect-env", "start", "{}"],
        ["pm4-test", "--device", "sim", "--expect", "{}"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_missing_file_message_is_uniform(
    words: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "missing.tar.gz" if words[0] == "bundle" else "missing.jsonl" if words[0] == "sched-test" else "missing"
    assert POINTS[words[0]].load()([word.format(name) for word in words[1:]]) == 2
    assert f"{name}: no such file\n" in capsys.readouterr().err.replace("--expect ", "")


def test_missing_model_is_rejected_without_heavy_imports() -> None:
    program = (
        "import sys\nfrom zinc_rt.cli.main import main\n"
        "assert main(['run', 'missing.gguf', '-p', 'x']) == 2\n"
        "print([name for name in ('numpy', 'gguf', 'rich') if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("ctx", ["-1", str(2**31)])
def test_impossible_context_is_rejected(ctx: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "missing.gguf", "-p", "x", f"--ctx={ctx}"])
    assert ended.value.code == 2 and "expected 0 (the trained length) to 2147483647" in capsys.readouterr().err


def test_help_of_the_package_shows_its_public_api_only() -> None:
    page = pydoc.render_doc(zinc_rt, renderer=pydoc.plaintext)
    assert set(zinc_rt.__all__) == set(dir(zinc_rt))
    assert all(name in page for name in ("class LLM", "class Sampling", "class InputError", "launch("))
    assert "TYPE_CHECKING" not in page


def test_plain_progress_prints_a_line_every_few_seconds() -> None:
    now, out = [0.0], io.StringIO()
    shown = PlainProgress(out, clock=lambda: now[0])
    for second in (1.0, 2.0, 4.0, 6.9, 7.0, 8.0):
        now[0] = second
        shown.show("case 3/9")
    assert out.getvalue() == "progress  case 3/9  0:00:02\nprogress  case 3/9  0:00:07\n"
