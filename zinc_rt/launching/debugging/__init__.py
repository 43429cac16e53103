"""The debugger of single launches: zinc-rt debug (docs/debug.md)."""
