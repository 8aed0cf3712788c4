"""
Chaos: operators on the sandbox are disturbed and killed, and must converge as if undisturbed.
"""
