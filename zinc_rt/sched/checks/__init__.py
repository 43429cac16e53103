"""What holds at every step boundary, and a device that knows whose every page is."""
