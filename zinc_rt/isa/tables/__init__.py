"""The instructions of gfx11 and gfx12, one row per instruction; rows.py parses them."""
