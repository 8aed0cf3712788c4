"""
Actions: how handlers are executed, whatever they are for.

Invocation of sync and async functions, outcomes, the progress between attempts, the patches that carry it, and logs.
"""
