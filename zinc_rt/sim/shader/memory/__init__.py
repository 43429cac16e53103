"""Translation of memory instructions, and of addresses to host pointers."""
