"""One backend per tier behind one small protocol; only this room knows which tier it is."""
