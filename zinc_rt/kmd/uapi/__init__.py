"""The ioctls that the runtime sends, as declarations: their structs, constants and numbers.

C names are kept, so that they can be searched in the headers of Linux; tests/kmd/test_uapi_headers.py compares
every size, offset and number with the real headers. The direction of each member and the arrays of a request are
declared in the tables of the simulated device (zinc_rt/sim/tables), since the runtime does not need them.
"""
