"""One backend per tier behind a common protocol. Only this package contains tier-specific code."""
