"""The ioctls that the runtime sends, as declarations: their structs, constants and numbers.

C names are kept, so that a reader finds them in the headers of Linux; tests/kmd/test_uapi_headers.py compares
every size, offset and number with the real ones. Who writes a member, and which arrays a request points to, the
simulated device knows by tables of its own (zinc_rt/sim/tables): the runtime needs neither.
"""
