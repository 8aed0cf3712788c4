"""
The keyword options of decorators, with their defaults.
"""

import inspect


def get_keywords(decorator):
    """Get the defaults of the keyword-only options of a decorator, by their names."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(decorator).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
