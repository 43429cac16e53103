"""Many requests on one device: pages, prefix cache and state rows so far; plain Python over arrays, no text, no
HTTP."""
