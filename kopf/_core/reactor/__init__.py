"""
The reactor: from the streams of a cluster to the handlers of an operator.

It runs the operator, decides which resources are watched and where, and takes each change of each object, in order,
through its cycle: a cause detected, handlers run, one patch sent.
"""
