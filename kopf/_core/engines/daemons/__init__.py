"""
Daemons: the functions that run beside an object while it exists, and the timers of objects.
"""
