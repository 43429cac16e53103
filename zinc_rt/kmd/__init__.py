"""The driver seam: kernel structs, the Driver protocol and its Linux implementation, queue transports on top."""
