"""
Workloads: the controllers of a real cluster, its scheduler, and nodes on which pods only pretend to
run.

Optional: a sandbox without them does not load them. They write through the same path as requests,
as their own users, so webhooks see what they do. All times are by the clock of the event loop.
"""
