"""The scheduler: requests of one model, their slots, pages and state rows. It is independent of text, HTTP
and devices."""
