"""The exceptions that the runtime raises, at their public path. They are defined in host/errors.py, which every
package imports."""

from zinc_rt.host.errors import (
    CheckFailed,
    FindingError,
    InputError,
    NothingRan,
    OutputError,
    UnsupportedError,
    UsageError,
    ZincError,
)

__all__ = [
    "CheckFailed",
    "FindingError",
    "InputError",
    "NothingRan",
    "OutputError",
    "UnsupportedError",
    "UsageError",
    "ZincError",
]
