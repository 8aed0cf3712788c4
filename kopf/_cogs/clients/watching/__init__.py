"""
Watching: watch-streams, from their lines to the events that are handed over.
"""
