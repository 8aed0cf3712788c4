"""
Endpoints: the verbs of the resources, and the forms in which objects are answered.
"""
