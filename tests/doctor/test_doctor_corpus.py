"""Sick machines get their first cause named; healthy ones are left alone."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import sick_machines as corpus

from zinc_rt.doctor.bundle.redact import Redactor
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.causes import EXPLAINS, ORDER
from zinc_rt.doctor.diagnose import diagnose
from zinc_rt.doctor.rules.table import RULES

SICK = {
    sick["id"]: [m for m in corpus.list_machines() if m.name.startswith(f"{sick['id']}@")]
    for sick in corpus.load_sicknesses()
}


@pytest.mark.parametrize("name", SICK)
@pytest.mark.rest(keep=12)
def test_first_cause_is_named_and_healthy_parts_are_not_blamed(name: str) -> None:
    for machine in SICK[name]:
        diagnosis = diagnose(machine.capture)
        blamed = [finding for finding in diagnosis.findings if finding.severity != "note"]
        innocent = [
            f.id for f in blamed if not any(fnmatchcase(f.id, item) for item in (machine.first, *machine.also))
        ]
        assert diagnosis.first is not None and diagnosis.first.id == machine.first, machine.name
        assert not innocent, machine.name


@pytest.mark.parametrize("name", corpus.BASES)
def test_healthy_machine_gets_notes_only(name: str) -> None:
    diagnosis = diagnose(MachineCapture(corpus.load_base(name).files))
    assert [(f.id, f.title) for f in diagnosis.findings if f.severity != "note"] == []
    unread = name == "container"  # it has no kernel log
    assert diagnosis.exit_code() == (77 if unread else 0)


def test_corpus_meets_minimum_size() -> None:
    machines = corpus.list_machines()
    assert len(machines) >= 200 and len({machine.name for machine in machines}) == len(machines)
    sources = {machine.source for machine in machines if machine.source}
    assert len(sources) >= 20 and all(source.startswith("https://") for source in sources)


def test_edit_without_effect_is_rejected() -> None:
    sick = {"id": "none", "bases": ["vm"], "edits": [{"file": "id.txt", "replace": ["no such text", "x"]}]}
    with pytest.raises(corpus.EditError, match="changes nothing"):
        corpus.make_machine(sick, "vm")


def test_every_cause_and_every_rank_names_a_rule() -> None:
    """A misspelt id in a table would never match, in silence."""
    ids = {rule.id for rule in RULES}
    patterns = {*EXPLAINS, *ORDER, *(item for row in EXPLAINS.values() for item in row)}
    assert not [pattern for pattern in patterns if not any(fnmatchcase(item, pattern) for item in ids)]


def test_rule_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "removed", ["^proc/", "^sys/", "^etc/", "kernel.log", "id.txt", "lspci.txt", "firmware.txt", "dev.txt"]
)
def test_absent_data_is_unknown_and_blames_nothing(removed: str) -> None:
    import re

    for name in corpus.BASES:
        files = {path: data for path, data in corpus.load_base(name).files.items() if not re.search(removed, path)}
        diagnosis = diagnose(MachineCapture(files))
        assert [f.id for f in diagnosis.findings if f.severity != "note"] == [], name
        assert diagnosis.unknown or removed == "dev.txt" or name == "container", name


@pytest.mark.parametrize("name", corpus.BASES)
@pytest.mark.rest(keep=2)
def test_redaction_keeps_what_the_rules_read(name: str) -> None:
    """The diagnosis of a healthy machine, and of each sick one made from it, is the same from a bundle."""
    sick = [machine for machine in corpus.list_machines() if machine.name.endswith(f"@{name}")]
    assert sick
    for files, unreadable in [
        (corpus.load_base(name).files, {}),
        *((item.files, item.unreadable) for item in sick),
    ]:
        redacted, _ = Redactor().redact_files(dict(files))
        before, after = (diagnose(MachineCapture(item, unreadable)) for item in (files, redacted))
        assert [finding.id for finding in after.findings] == [finding.id for finding in before.findings]
