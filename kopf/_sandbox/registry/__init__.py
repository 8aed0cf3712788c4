"""
The registry: how objects are prepared, validated, written, read, watched and deleted.
"""
