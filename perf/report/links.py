"""Links from a page to files: relative for files below its own folder, to a copy next to the page for all
others.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from zinc_rt.host.errors import OutputError


@dataclass(slots=True)
class PageLinks:
    """The links of a page that is written to `page`. `copied` counts the files copied to `beside`."""

    page: Path
    copied: int = 0

    @property
    def beside(self) -> Path:
        """Return the folder that belongs to the page: index-files for index.html."""
        return self.page.with_name(f"{self.page.stem}-files")

    def to(self, path: Path, folder: Path) -> str:
        """Return a link to `path`, a file in `folder`, for HTML. Raise OutputError if there is none."""
        home, target = self.page.resolve().parent, path.resolve()
        if target.is_relative_to(home):
            return quote(target.relative_to(home).as_posix())
        location = Path(path.relative_to(folder) if path.is_relative_to(folder) else path.name)
        copy = self.beside / location
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
        except OSError as error:
            raise OutputError(f"{copy}: cannot write: {error.strerror}", next="choose another --out") from error
        self.copied += 1
        return quote(copy.relative_to(self.page.parent).as_posix())
