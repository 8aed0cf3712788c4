"""
Printers: the columns and cells in which the API shows objects of the built-in kinds to humans.
"""
