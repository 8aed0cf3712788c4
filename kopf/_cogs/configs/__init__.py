"""
Configs: the settings of an operator, and the storages of its state in the objects.
"""
