"""
Peering: of several operators with the same purpose, only the one of the highest priority is active.
"""
