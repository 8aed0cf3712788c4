"""
Intents: what the operator's author has declared, and why it is due now.

Registries of handlers with their filters, the causes that are matched against them, and the
stop-flags.
"""
