#!/usr/bin/env python3
"""Write the components of a zinc-rt installation as CycloneDX 1.6 JSON, from the metadata of the installed
packages.

`python3 ci/run.py sbom [FILE]`: the required packages, with theirs, in the versions of this environment; `--extra
NAME` adds an optional group. Without FILE it goes to stdout. Nothing is looked up anywhere.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement

from zinc_rt.host.errors import ZincError
from zinc_rt.host.files import check_writable, write_atomically

PRODUCT = "zinc-rt"


def requirements_of(distribution: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Return the names of a distribution's requirements on this platform, each with the requested extras."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield normalise_name(requirement.name), frozenset(requirement.extras)


def collect_distributions(
    product: str, extras: frozenset[str]
) -> tuple[dict[str, Distribution], dict[str, set[str]]]:
    """Return every distribution reachable from `product`, and the dependencies. Raise PackageNotFoundError."""
    distributions: dict[str, Distribution] = {}
    edges: dict[str, set[str]] = {}
    waiting = [(product, extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, requested = waiting.pop()
        if (name, requested) in seen:
            continue
        seen.add((name, requested))
        distributions[name] = distribution(name)
        below = list(requirements_of(distributions[name], requested))
        edges.setdefault(name, set()).update(other for other, _ in below)
        waiting += below
    return distributions, edges


def component_record(name: str, distribution: Distribution, kind: str = "library") -> dict[str, Any]:
    about = distribution.metadata
    row: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl_of(name, distribution),
        "name": about["Name"],
        "version": distribution.version,
        "purl": purl_of(name, distribution),
        "description": about.get("Summary") or "",
    }
    if licence := read_licence(distribution):
        row["licenses"] = [licence]
    if record := record_digest(distribution):
        row["properties"] = [{"name": "python:record-sha256", "value": record}]
    return row


def read_licence(distribution: Distribution) -> dict[str, Any] | None:
    """Return the SPDX expression from the metadata, else a name: the field or the classifier, unchanged."""
    about = distribution.metadata
    if expression := about.get("License-Expression"):
        return {"expression": expression}
    kinds = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")
    ]
    text = (about.get("License") or "").strip()
    name = kinds[0] if kinds else text.splitlines()[0][:100] if text else ""
    return {"license": {"name": name}} if name else None


def record_digest(distribution: Distribution) -> str:
    """Return the SHA-256 over the digests of the installed files, which identifies the contents of an
    environment.
    """
    import hashlib

    digest = hashlib.sha256()
    rows = 0
    for file in sorted(distribution.files or (), key=str):
        if file.hash is None or file.hash.mode != "sha256":
            continue
        try:
            digest.update(f"{file} ".encode() + base64.urlsafe_b64decode(file.hash.value + "="))
        except binascii.Error:
            continue
        rows += 1
    return digest.hexdigest() if rows else ""


def purl_of(name: str, distribution: Distribution) -> str:
    return f"pkg:pypi/{name}@{distribution.version}"


def normalise_name(name: str) -> str:
    """Normalise a name according to PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build_sbom(extras: frozenset[str] = frozenset()) -> dict[str, Any]:
    distributions, edges = collect_distributions(PRODUCT, extras)
    stamp = os.environ.get("SOURCE_DATE_EPOCH")  # https://reproducible-builds.org/specs/source-date-epoch
    when = datetime.fromtimestamp(int(stamp), UTC) if stamp else datetime.now(UTC)
    components = [component_record(name, distributions[name]) for name in sorted(distributions) if name != PRODUCT]
    body: dict[str, Any] = {
        "metadata": {
            "timestamp": when.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "component": component_record(PRODUCT, distributions[PRODUCT], "application"),
        },
        "components": components,
        "dependencies": [
            {
                "ref": purl_of(name, distributions[name]),
                "dependsOn": sorted(purl_of(other, distributions[other]) for other in edges[name] - {name}),
            }
            for name in sorted(distributions)
        ],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{number}", "version": 1}
    return {**head, **body}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="ci/run.py sbom"
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="file to write (default stdout)")
    parser.add_argument(
        "--extra", action="append", default=[], metavar="NAME", help="also include this optional dependency group"
    )
    arguments = parser.parse_args(argv)
    try:
        check_writable(arguments.file)
        known = set(distribution(PRODUCT).metadata.get_all("Provides-Extra") or ())
        if unknown := sorted(set(arguments.extra) - known):
            print(
                f"sbom: unknown extra {unknown[0]!r}; expected one of {', '.join(sorted(known))}", file=sys.stderr
            )
            return 2
        text = json.dumps(build_sbom(frozenset(arguments.extra)), indent=1) + "\n"
        if arguments.file:
            write_atomically(arguments.file, lambda file: file.write(text.encode()))
        else:
            sys.stdout.write(text)
    except PackageNotFoundError as error:
        print(
            f"sbom: {error.name} is not installed here\n  next: pip install it, or leave out its --extra",
            file=sys.stderr,
        )
        return 2
    except ZincError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
