"""
Engines: self-contained features that run beside the cycle of one object.

Activities, admission, daemons and timers, indexing, peering, posting of events, probing, metrics.
"""
