"""The instructions of gfx11 and gfx12, one row each: rows.py reads them."""
