"""
Actions: how handlers of any kind are executed.

Invocation of sync and async functions, outcomes, the progress between attempts, the patches that
carry it, and logs.
"""
