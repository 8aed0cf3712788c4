"""
Leading: one replica of an operator handles objects, the others stand by. See `elections`.
"""
