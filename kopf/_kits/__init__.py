"""
Kits: what operator authors use and the framework itself does not.

The kits stand on the rest of the package; nothing in ``_core`` and ``_cogs`` knows about them.
"""
