"""
Events: the k8s-events about objects, as shown by ``kubectl describe``.
"""
