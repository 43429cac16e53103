"""Kernel interfaces as declarations: structs, their pointed-to arrays, constants, ioctl numbers.

C names are kept, so that a reader finds them in the kernel's headers; tests/kmd/test_uapi_headers.py compares
every size, offset and number with the real ones.
"""
