"""compare: every engine in one table, whatever some of them do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import compare_fakes as fakes
import numpy as np
import psutil
import pytest

from zinc_rt.backends import registry
from zinc_rt.cli.logits import main as logits
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.validate.compare import llama_programs, own_tiers
from zinc_rt.validate.compare.child import run_child
from zinc_rt.validate.compare.command import main, make_result, parser
from zinc_rt.validate.compare.judge import measure_distance
from zinc_rt.validate.compare.llama_programs import parse_samples
from zinc_rt.validate.compare.peer import PeerOutcome, PeerTask, Sample

MODEL = str(FOLDER / "qwen3-q.gguf")
TEXT = "The quick brown fox"


@pytest.fixture(scope="module")
def reference_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What T-CPU computes for TEXT."""
    path = tmp_path_factory.mktemp("right") / "right.npz"
    assert logits(["--model", MODEL, "--prompt", TEXT, "--tier", "t_cpu", "--out", str(path)]) == 0
    return path


def run_compare(tmp_path: Path, *words: str, prompt: str = TEXT) -> tuple[int, dict[str, dict[str, Any]]]:
    path = tmp_path / "report.json"
    code = main(["--model", MODEL, "--prompt", prompt, "--json", str(path), *words])
    return code, fakes.read_report(path)


# --- all of it ----------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_every_peer_is_a_row(
    tmp_path: Path, reference_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-CPU for real; the others answer with its values, moved, printed, or unchanged."""
    for name, value in {**fakes.write_fake_packages(tmp_path), "RIGHT": str(reference_run)}.items():
        monkeypatch.setenv(name, value)
    with np.load(reference_run) as arrays:
        layers = [fakes.print_tensor(f"l_out-{n}", item) for n, item in enumerate(arrays["l_out"])]
        text = "\n".join([*layers, fakes.print_tensor("result_output", arrays["logits"][-1:])])
    (tmp_path / "text").write_text(text)
    build = tmp_path / "hip" / "build" / "bin"
    fakes.write_program(build, "llama-bench", f"print({fakes.BENCH!r})")
    fakes.write_program(
        build, "llama-eval-callback", f"print(open({str(tmp_path / 'text')!r}).read(), file=sys.stderr)"
    )
    words = ["--llama-dir", f"rocm={tmp_path / 'hip'}", "--peers", "llama.cpp,llama-cpp-python,tinygrad"]
    pythons = [f"--python={name}={sys.executable}" for name in ("llama-cpp-python", "tinygrad")]
    speed = ["--prompt-tokens", "4", "--new-tokens", "3", "--runs", "1"]
    code, rows = run_compare(tmp_path, *words, *pythons, *speed)
    output = capsys.readouterr().out
    assert code == 0, output
    assert set(rows) == {"t_cpu", "llama.cpp rocm", "llama-cpp-python", "tinygrad"}, "the reference runs too"

    llama = rows["llama.cpp rocm"]["measure"]
    assert (llama["version"], llama["backend"]) == ("b5163 (8cf427ff)", "ROCm, AMD Radeon R9700")
    assert (llama["prefill_tokens_per_second"], llama["decode_tokens_per_second"]) == (7382.25, 119.84)
    assert llama["max_abs"] < 1e-4 and llama["sampled_values"] > 6 and max(llama["layers_rel_rms"].values()) < 1e-3
    assert [Path(command["command"].split()[0]).name for command in llama["commands"]] == [
        "llama-bench",
        "llama-eval-callback",
    ]

    assert rows["llama-cpp-python"]["measure"]["max_abs"] == pytest.approx(0.25, abs=1e-4)
    assert rows["llama-cpp-python"]["measure"]["version"] == "0.3.16"
    assert rows["llama-cpp-python"]["measure"]["decode_tokens_per_second"] > 0
    assert rows["tinygrad"]["measure"]["same_bits"] and rows["tinygrad"]["measure"]["backend"] == "AMD"
    assert set(rows["tinygrad"]["measure"]["layers_rel_rms"].values()) == {0.0}
    assert rows["t_cpu"]["measure"]["decode_tokens_per_second"] > 0
    assert "llama.cpp rocm" in output and "reference" in output and "PASS      4 peers ran" in output


@pytest.mark.rest
@pytest.mark.skipif(find_kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")
def test_simulated_tier_matches_reference_bits_and_is_labelled(tmp_path: Path) -> None:
    code, rows = run_compare(tmp_path, "--peers", "t1", "--device", "sim", "--no-speed")
    assert code == 0 and set(rows) == {"t1", "t_cpu"}
    assert rows["t1"]["measure"]["same_bits"] and rows["t1"]["measure"]["simulated"]
    assert rows["t1"]["measure"]["top1"] == rows["t1"]["measure"]["positions"] > 1
    assert "simulated" in json.loads((tmp_path / "report.json").read_text())["shortcuts"][0]


@pytest.mark.rest
def test_hang_and_crash_are_rows_and_remaining_peers_run(
    tmp_path: Path, reference_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        **fakes.write_fake_packages(tmp_path),
        "RIGHT": str(reference_run),
        "FAKE": "crash",
    }.items():
        monkeypatch.setenv(name, value)
    fakes.write_program(tmp_path / "a", "llama-bench", "time.sleep(600)")
    fakes.write_program(tmp_path / "b", "llama-bench", "os.kill(os.getpid(), 11)")
    words = ["--llama-dir", f"hangs={tmp_path / 'a'}", "--llama-dir", f"crashes={tmp_path / 'b'}"]
    words += ["--python", f"llama-cpp-python={sys.executable}", "--peers", "llama.cpp,llama-cpp-python"]
    code, rows = run_compare(tmp_path, *words, "--reference", "llama-cpp-python", "--timeout", "2")
    output = capsys.readouterr().out
    assert code == 1 and "HANGS" in output and "FAILS" in output
    assert rows["llama.cpp hangs"]["reason"] == "llama-bench: did not end within 2 s"
    assert rows["llama.cpp hangs"]["measure"]["hung"] and rows["llama.cpp hangs"]["status"] == "fail"
    assert "SIGSEGV" in rows["llama.cpp crashes"]["reason"]
    assert "RuntimeError: cannot load" in rows["llama-cpp-python"]["reason"]
    assert rows["llama.cpp hangs"]["repro"].endswith("-o json")


def test_missing_peer_is_skipped_with_install_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["--peers", "llama.cpp", "--reference", "llama.cpp", "--no-speed"]
    code, rows = run_compare(tmp_path, *words)
    assert code == 77 and rows["llama.cpp"]["status"] == "skip"
    assert "--llama-dir" in rows["llama.cpp"]["advice"] and "NOTHING RAN" in capsys.readouterr().out


def test_peer_list_contains_registry_tiers_and_external_peers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", MODEL, "--peers", "help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{row.tier} " in listed for row in registry.built()) and "tinygrad" in listed
    assert {peer.name for peer in own_tiers.list_tier_peers("auto")} == {row.tier for row in registry.built()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--peers", "nobody"], "unknown peer nobody"),
        (["--no-speed", "--no-values"], "leave nothing to compare"),
        (["--llama-dir", "/missing"], "contains neither llama-bench nor llama-eval-callback"),
        (["--python", "tinygrad"], "expected PEER=FILE"),
        (["--python", "tinygrad=/missing"], "no such file"),
        (["--timeout", "0"], "expected more than 0 seconds"),
        (["--new-tokens", "0"], "expected 1 or more"),
        (["--json", "/missing/r.json"], "the folder /missing does not exist"),
    ],
)
def test_usage_error_prints_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", MODEL, *words]) == 2
    assert message in capsys.readouterr().err


# --- its parts ----------------------------------------------------------------------------------------------


@pytest.mark.rest
def test_child_is_killed_with_its_descendants(tmp_path: Path) -> None:
    body = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    result = run_child([str(fakes.write_program(tmp_path, "parent", body))], 2.0)
    assert result.timed_out and result.code is None and "did not end within" in result.failure_reason
    grandchild = int(result.stdout)
    for _ in range(100):  # it is nobody's child now: init has to reap it
        if not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    else:
        pytest.fail("what it started still runs")


@pytest.mark.rest
def test_interrupt_kills_the_running_peer(tmp_path: Path) -> None:
    body = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    fakes.write_program(tmp_path / "build", "llama-bench", body)
    words = [
        "--llama-dir",
        str(tmp_path / "build"),
        "--peers",
        "llama.cpp",
        "--reference",
        "llama.cpp",
        "--no-values",
    ]
    command = [sys.executable, "-m", "zinc_rt.cli", "compare", "--model", MODEL, *words]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's & ignores it
    )
    try:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.02)
        peer = int((tmp_path / "pid").read_text())
        child.send_signal(signal.SIGINT)
        _, output = child.communicate(timeout=30)
    finally:
        child.kill()
    assert child.returncode == 130 and output.endswith("zinc-rt compare: interrupted\n")
    assert not psutil.pid_exists(peer)


def test_child_that_cannot_start_reports_why() -> None:
    assert run_child(["/missing/program"], 1.0).failure_reason == "cannot be started: No such file or directory"
    assert (
        run_child([sys.executable, "-c", "import sys; sys.exit('no weights')"], 20.0).failure_reason
        == "exit code 1: no weights"
    )


@pytest.mark.parametrize("header", ["common_debug_cb_eval", "ggml_debug"])
def test_printed_tensors_are_parsed_from_output(header: str) -> None:
    array = np.arange(9 * 8, dtype=np.float32).reshape(9, 8) / 8 - 3
    small = np.array([[1.5, float("nan"), -2.0]], np.float32)
    text = "\n".join(
        [
            "noise",
            fakes.print_tensor("l_out-0", array, header),
            fakes.print_tensor("result_output", small, header),
            "llama_perf: 3 ms",
        ]
    )
    result = parse_samples(text)
    assert set(result) == {"l_out-0", "result_output"}
    sample = result["l_out-0"]
    assert sample.rows == 9 and len(sample.values) == 36 and sample.at[-1].tolist() == [8, 7]
    np.testing.assert_allclose(sample.values, array[sample.at[:, 0], sample.at[:, 1]], atol=6e-5)
    assert np.isnan(result["result_output"].values[1])


def test_truncated_print_yields_complete_tensors() -> None:
    array = np.ones((4, 5), np.float32)
    text = (
        fakes.print_tensor("l_out-0", array)
        + "\n"
        + "\n".join(fakes.print_tensor("l_out-1", array).splitlines()[:5])
    )
    assert set(parse_samples(text)) == {"l_out-0"}
    assert parse_samples("") == {} and parse_samples("nothing: of = the kind") == {}


def test_first_duplicate_name_wins() -> None:
    one, two = np.ones((1, 3), np.float32), np.full((1, 3), 2, np.float32)
    assert parse_samples(fakes.print_tensor("x", one) + "\n" + fakes.print_tensor("x", two))[
        "x"
    ].values.tolist() == [1, 1, 1]


def make_outcome(values: np.ndarray, **more: Any) -> PeerOutcome:
    return PeerOutcome("peer", logits=values.astype(np.float32), **more)


def test_distance_covers_values_present_in_both() -> None:
    want = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    right = make_outcome(want, layers={0: want, 1: want})
    result = measure_distance(make_outcome(want + 0.5, layers={0: want * 1.01}), right)
    assert result.logits == pytest.approx(0.5, abs=1e-6) and result.top1 == 3 and not result.same_bits
    assert set(result.layers) == {0} and result.worst_layer == (0, pytest.approx(0.01, rel=1e-3))
    assert measure_distance(right, right).same_bits
    assert "shape [2, 7]" in measure_distance(make_outcome(want[:2]), right).problem
    broken = want.copy()
    broken[1, 2] = np.nan
    assert (
        measure_distance(make_outcome(broken), right).nonfinite == 1
        and measure_distance(make_outcome(broken), right).logits == np.inf
    )


def test_sample_of_last_token_is_compared_with_last_token() -> None:
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    sample = Sample(np.array([[0, 0], [0, 3]]), np.array([8.0, 11.5]), rows=1, digits=4)
    peer = PeerOutcome("peer", sampled_logits=sample, sampled_layers={0: sample})
    result = measure_distance(peer, make_outcome(want, layers={0: want}))
    assert result.logits == 0.5 and result.samples == 4 and result.layers[0] > 0


def test_tier_with_different_bits_fails_with_next_command() -> None:
    arguments = parser().parse_args(["--model", MODEL])
    want = np.ones((2, 5), np.float32)
    task = PeerTask(Path(MODEL), (1, 2), "", Path())
    moved = PeerOutcome("t1", logits=np.nextafter(want, np.float32(2)))
    for tier, ordering, status in (
        ("t1", "canonical-1", "fail"),
        ("t1", "float32-dequant", "pass"),
        ("x", "canonical-1", "pass"),
    ):
        arguments.ordering, moved.peer = ordering, tier
        result = make_result(moved, measure_distance(moved, make_outcome(want)), arguments, task)
        assert result.status == status
        if status == "fail":
            assert result.reason == "other bits than t_cpu in canonical-1"
            assert result.advice == f"zinc-rt validate --model {MODEL} --tokens 1,2 --tiers t1,t_cpu"


def test_several_builds_of_one_checkout_are_separate_peers(tmp_path: Path) -> None:
    for name in ("build-hip", "build-vulkan"):
        fakes.write_program(tmp_path / name / "bin", "llama-bench", "")
    assert [peer.name for peer in llama_programs.find_peers([str(tmp_path)])] == [
        "llama.cpp build-hip",
        "llama.cpp build-vulkan",
    ]


@pytest.mark.rest
def test_dump_takes_precedence_over_print(
    tmp_path: Path, reference_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dumper beside llama-bench: every value, ids as they are."""
    body = (
        "import shutil, numpy as np\n"
        "a = dict(np.load(os.environ['RIGHT']))\n"
        "l = a.pop('l_out')\n"
        "np.savez(sys.argv[sys.argv.index('-o') + 1], **a, **{f'l_out-{n}': l[n] for n in range(len(l))})"
    )
    monkeypatch.setenv("RIGHT", str(reference_run))
    fakes.write_program(tmp_path / "build", "llama-bench", "")
    fakes.write_program(tmp_path / "build", "zinc-llama-dump", body)
    ids = ",".join(map(str, np.load(reference_run)["ids"]))
    path = tmp_path / "report.json"
    words = ["--llama-dir", str(tmp_path / "build"), "--peers", "llama.cpp", "--no-speed", "--json", str(path)]
    assert main(["--model", MODEL, "--tokens", ids, *words]) == 0
    assert fakes.read_report(path)["llama.cpp"]["measure"]["same_bits"]


def test_unsupported_peer_feature_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fakes.write_program(tmp_path / "build", "llama-bench", "print('[]')")
    fakes.write_program(tmp_path / "build", "llama-eval-callback", "")
    words = ["--llama-dir", str(tmp_path / "build"), "--peers", "llama.cpp", "--reference", "llama.cpp"]
    assert main(["--model", MODEL, "--tokens", "1,2", "--no-speed", *words]) == 0
    assert "takes text only" in capsys.readouterr().out
    assert main(["--model", MODEL, "--no-values", *words]) == 1
    assert "its JSON is not understood" in capsys.readouterr().out
