"""
The registry: the preparation, validation, writing, reading, watching and deletion of objects.
"""
