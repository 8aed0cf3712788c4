"""
Apply: patches of all types, server-side apply, and field ownership.
"""
