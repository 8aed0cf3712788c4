"""
Controllers: what the cluster does by itself, with no requests behind it.
"""
