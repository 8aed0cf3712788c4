"""
Admission: the handlers that review requests to the API, and the webhooks that lead to them.
"""
