"""
Printers: the table columns and cells of the built-in kinds.
"""
