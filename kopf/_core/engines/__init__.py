"""
Engines: self-contained features that run beside the cycle of one object, a folder for each.

The main module of an engine logs under the name of the engine, e.g. ``kopf._core.engines.peering``:
users refer to these names when they configure the logs. Other modules log under their own names,
e.g. ``kopf._core.engines.peering.keepalive``.
"""
