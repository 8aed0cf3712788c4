"""
Endpoints: the verbs of resources, and the forms of objects in responses.
"""
