"""One kernel of a code object that others compiled: loaded, given arguments, launched, its outputs read."""
