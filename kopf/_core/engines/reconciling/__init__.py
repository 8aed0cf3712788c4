"""
Reconciling: what level-triggered functions need: when they are called, and what they see.
"""
