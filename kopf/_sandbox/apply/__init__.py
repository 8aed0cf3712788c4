"""
Apply: patches of all types, server-side apply, and the ownership of fields.
"""
