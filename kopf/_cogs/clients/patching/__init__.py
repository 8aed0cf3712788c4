"""
Patching: changes of objects, from the whole of them to single requests.
"""
