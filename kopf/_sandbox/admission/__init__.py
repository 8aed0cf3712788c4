"""
Admission: the webhooks that change or reject objects before they are stored.
"""
