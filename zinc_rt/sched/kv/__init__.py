"""What requests hold: pages, cached prefixes, rows of recurrent state; who may have how many."""
