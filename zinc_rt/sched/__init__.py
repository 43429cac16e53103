"""Many requests on one model: whose turn it is, who holds which pages and rows; no text, no HTTP, no device."""
