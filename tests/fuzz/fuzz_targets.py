"""
Targets: what is fuzzed. Each is a function of bytes that raises if something is broken, whatever
the bytes are.

The functions are called with all kinds of garbage, for hours: they leave nothing behind, run no
programs, and reach no network.
"""

import dataclasses
import importlib
import pathlib
from collections.abc import Callable

CORPUS = pathlib.Path(__file__).parent / 'corpus'

Check = Callable[[bytes], None]


@dataclasses.dataclass(frozen=True)
class Target:
    """
    One thing to be fuzzed: the module with the function ``check``, and how much of it is a part of
    the tests.
    """

    name: str
    module: str
    mutations: int  # in the tests: as many as take a second or two

    def load(self) -> Check:
        check: Check = importlib.import_module(self.module).check
        return check

    def list_corpus(self) -> list[pathlib.Path]:
        """
        List the known inputs: both the samples to begin with, and those that once broke something.
        """
        return sorted((CORPUS / self.name).iterdir())


TARGETS = {
    target.name: target
    for target in [
        Target('json', 'fuzz_json', mutations=3000),
        Target('http', 'fuzz_http', mutations=3000),
        Target('streams', 'fuzz_streams', mutations=2000),
        Target('kubeconfigs', 'fuzz_kubeconfigs', mutations=300),
        Target('reviews', 'fuzz_reviews', mutations=700),
        Target('selectors', 'fuzz_selectors', mutations=600),
        Target('patches', 'fuzz_patches', mutations=2000),
        Target('objects', 'fuzz_objects', mutations=500),
        Target('certificates', 'fuzz_certificates', mutations=3000),
        Target('sandbox', 'fuzz_sandbox', mutations=300),
    ]
}
