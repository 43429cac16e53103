"""A page of docs is a file and two rows: docs/extending.md's is linked and in the site's navigation."""

from __future__ import annotations

import pytest
import yaml
from extending import extend_tree


def test_page_is_linked_and_in_the_navigation(tmp_path_factory: pytest.TempPathFactory) -> None:
    tree = extend_tree("A page of docs", tmp_path_factory.mktemp("page"))
    assert tree.files == ("docs/index.md", "docs/clocks.md", "properdocs.yml")
    assert (tree.root / "docs" / "clocks.md").read_text(encoding="utf-8").startswith("# Clocks")
    assert "(clocks.md)" in (tree.root / "docs" / "index.md").read_text(encoding="utf-8")
    site = yaml.safe_load((tree.root / "properdocs.yml").read_text(encoding="utf-8"))
    pages = [
        page for section in site["nav"] for rows in section.values() if isinstance(rows, list) for page in rows
    ]
    assert {"Clocks": "clocks.md"} in pages
