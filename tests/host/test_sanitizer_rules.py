"""zinc_rt/host/sanitizer_rules.py is the only table of sanitizer rules, and docs/sanitizer.md is written from
it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from zinc_rt.backends.amd.instrument import STILL_RUNNING, STOPPED
from zinc_rt.backends.amd.page_fault import FAULTED
from zinc_rt.host.sanitizer_rules import RULES, TOOLS, SanitizerRule
from zinc_rt.isa.lint import RULES as LINT
from zinc_rt.kernels.remarks import REMARKS
from zinc_rt.sim.shader_engine import LEVELS

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sanitizer_rules_page", ROOT / "ci" / "sanitizer_rules.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: str) -> set[str]:
    """Of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_rules_page_is_generated_from_the_table() -> None:
    page = generator()
    assert page.PAGE.read_text() == page.page(), "run python3 ci/sanitizer_rules.py"


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_row_is_complete(rule: SanitizerRule) -> None:
    assert rule.tool in TOOLS and rule.level in LEVELS
    assert rule.sentence and rule.says and rule.where
    page, _, anchor = rule.doc.partition("#")
    assert anchor in anchors(page), f"{rule.doc} is not there"


def test_each_id_has_one_row() -> None:
    ids = re.findall(
        r"^    _\w+\(\"([\w-]+)\"", (ROOT / "zinc_rt" / "host" / "sanitizer_rules.py").read_text(), re.MULTILINE
    )
    assert ids == list(RULES)


def test_rules_named_by_other_packages_have_rows() -> None:
    named = {*STOPPED, *FAULTED, *STILL_RUNNING, *LINT, *(rule for rules in REMARKS.values() for rule in rules)}
    assert named <= set(RULES)
    learn = (ROOT / "probes" / "learning" / "learn.py").read_text()
    expected = {
        rule for line in re.findall(r"c\.expected \|= \{(.*)\}", learn) for rule in re.findall(r'"(.*?)"', line)
    }
    assert expected and expected <= set(RULES)
