"""What the sanitizer adds to a kernel and says about it: initialised bytes, races, bounds, watchpoints."""
