"""
Kits: tools for operator authors, which the framework itself does not use.

The kits depend on the rest of the package; nothing in ``_core`` and ``_cogs`` depends on the kits.
"""
