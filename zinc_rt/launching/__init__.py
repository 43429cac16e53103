"""Run one kernel of an externally compiled code object: load it, pass arguments, launch it, read its outputs."""
