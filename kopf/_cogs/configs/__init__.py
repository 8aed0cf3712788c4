"""
Configs: the settings of an operator, and how its state is kept on the objects.
"""
