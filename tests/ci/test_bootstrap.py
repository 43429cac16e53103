"""ci/run.py makes .venv once, mends a half-made one, and says in one sentence why it cannot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "ci" / "run.py"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """ci/run.py for a checkout of its own, with a pip that only counts its calls in `module.installs`."""
    spec = importlib.util.spec_from_file_location("ci_run", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    venv = tmp_path / ".venv"
    places = {"ROOT": tmp_path, "VENV": venv, "BIN": venv / "bin", "PYTHON": venv / "bin" / "python"}
    places |= {
        "DOCS_VENV": tmp_path / ".venv-docs",
        "STAMP": venv / "pyproject.sha256",
        "UNFINISHED": venv / "unfinished",
    }
    for name, location in places.items():
        monkeypatch.setattr(module, name, location)
    monkeypatch.setattr(module, "find_pip_problem", lambda: None)
    module.installs = 0  # type: ignore[attr-defined]

    module.installed = []  # type: ignore[attr-defined]

    def install(venv: Path, *packages: str) -> int:
        module.installs += 1  # type: ignore[attr-defined]
        module.installed.append((venv.name, *packages))
        return 0

    monkeypatch.setattr(module, "install", install)
    return module


def test_first_run_creates_venv_and_second_run_reuses_it(run: ModuleType) -> None:
    assert run.set_up() == 0
    prefix = subprocess.check_output([run.PYTHON, "-c", "import sys; print(sys.prefix)"], text=True)
    assert Path(prefix.strip()) == run.VENV
    assert run.set_up() == 0
    assert run.installs == 1


def test_changed_pyproject_is_installed_into_same_venv(run: ModuleType) -> None:
    run.set_up()
    (run.VENV / "kept").touch()
    (run.ROOT / "pyproject.toml").write_text("[project] # changed\n")
    run.set_up()
    assert run.installs == 2
    assert (run.VENV / "kept").exists()


@pytest.mark.parametrize("remaining_files", ["an empty folder", "no python", "the mark of a set-up"])
def test_interrupted_setup_is_restarted(run: ModuleType, remaining_files: str) -> None:
    if remaining_files == "an empty folder":
        run.VENV.mkdir()
    else:
        run.set_up()
        run.STAMP.unlink()
        run.PYTHON.unlink() if remaining_files == "no python" else run.UNFINISHED.touch()
    (run.VENV / "torn").touch()
    assert run.set_up() == 0
    assert not (run.VENV / "torn").exists()
    assert run.PYTHON.exists()
    assert not run.UNFINISHED.exists()


def test_failed_install_is_not_treated_as_complete(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(run, "install", lambda venv, *packages: 1)
        assert run.set_up() == 2
    assert not run.is_ready()
    assert run.set_up() == 0
    assert run.is_ready()


def test_foreign_venv_for_another_python_is_left_untouched(
    run: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.VENV / "lib" / "python2.7").mkdir(parents=True)
    (run.VENV / "pyvenv.cfg").write_text("home = /elsewhere\n")
    assert run.set_up() == 2
    assert "was not made by ci/run.py" in capsys.readouterr().err
    assert (run.VENV / "lib" / "python2.7").exists()


def test_unwritable_location_prints_one_line_error(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.VENV.write_text("a file where the folder should be")
    monkeypatch.setattr(sys, "argv", ["ci/run.py", "test"])
    assert run.main() == 2
    assert "cannot set up .venv" in capsys.readouterr().err


def test_help_needs_no_setup(tmp_path: Path) -> None:
    shown = subprocess.run([sys.executable, SOURCE, "--help"], capture_output=True, text=True, check=True)
    assert "test --rest" in shown.stdout


# --- the documentation site's environment ---

DOCS = '[project]\n[project.optional-dependencies]\ndocs = ["properdocs>=1"]\ndev = ["pytest"]\n'


@pytest.fixture
def built_command(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run `ci/run.py docs` up to its last command and return that command."""
    (run.ROOT / "pyproject.toml").write_text(DOCS)
    last: list[str] = []
    monkeypatch.setattr(run, "exec_command", last.extend)
    monkeypatch.setattr(sys, "argv", ["ci/run.py", "docs"])
    monkeypatch.chdir(run.ROOT)
    return last


def test_docs_on_a_fresh_checkout_install_only_the_extra_docs(run: ModuleType, built_command: list[str]) -> None:
    run.main()
    assert run.installed == [(".venv-docs", "properdocs>=1")] and not run.VENV.exists()
    assert (
        built_command[:4] == [str(run.DOCS_VENV / "bin" / "python"), "-m", "properdocs", "build"]
        and "--strict" in built_command
    )
    run.main()
    assert run.installs == 1, "the second build installs nothing"


def test_docs_use_a_development_environment_that_is_set_up(run: ModuleType, built_command: list[str]) -> None:
    assert run.set_up() == 0
    run.main()
    assert built_command[0] == str(run.PYTHON) and not run.DOCS_VENV.exists()


def test_docs_start_over_after_a_failed_install(
    run: ModuleType, built_command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(run, "install", lambda venv, *packages: 1)
        assert run.main() == 2 and not built_command
    run.main()
    assert run.installed == [(".venv-docs", "properdocs>=1")] and built_command
