"""
Admission: the webhooks that change and refuse what is going to be stored.
"""
