"""
The reactor: from the watch-streams of a cluster to the handlers of an operator.

It runs the operator, decides which resources are watched and where, and processes each change of
each object in order: it detects the cause, runs the handlers, and sends one patch.
"""
