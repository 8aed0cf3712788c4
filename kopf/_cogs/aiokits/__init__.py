"""
Asyncio kits: primitives for tasks, time, values, toggles and limits that the standard library
lacks.
"""
