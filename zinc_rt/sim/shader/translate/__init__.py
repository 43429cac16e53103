"""Machine code to one wave function: blocks, control flow, what holds at each instruction."""
