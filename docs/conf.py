"""
How the documentation is built: by ``make docs``, from Markdown, without a network.

Two parts are generated before the pages are read: the guarantees, from the tests, and the settings,
from the code. They are included into pages that are written by hand.

The pages install the package from its repository, which they name ``<repository>``. Where it is
served is known only to those who publish the pages: ``make docs ARGS='-D
repository=https://git.example.com/kopf.git'``.
"""

import inspect
import pathlib
import sys

import sphinx.application

import kopf

DOCS = pathlib.Path(__file__).parent
sys.path.insert(0, str(DOCS / 'tools'))

import guarantees  # noqa: E402
import settings_reference  # noqa: E402

GENERATED = DOCS / '_generated'
GENERATED.mkdir(exist_ok=True)
(GENERATED / 'guarantees.md').write_text(
    guarantees.render(DOCS.parent / 'tests', DOCS / 'guarantees.toml')
)
(GENERATED / 'settings.rst').write_text(settings_reference.render(kopf.OperatorSettings))

REPOSITORY = '<repository>'  # what is in the pages, in place of the address

project = 'kopf'
author = 'the authors of kopf'
version = release = kopf.__version__

extensions = ['myst_parser', 'sphinx.ext.autodoc']
exclude_patterns = ['_build', '_generated', 'tools']
nitpicky = False  # internal types in signatures are not documented
default_role = 'code'  # docstrings have `names` in single backticks

myst_heading_anchors = 4
myst_enable_extensions = ['attrs_inline', 'colon_fence', 'deflist']

autodoc_member_order = 'bysource'
autodoc_inherit_docstrings = False  # those of the standard library are not about us
autodoc_typehints_format = 'short'
autodoc_class_signature = 'mixed'
python_maximum_signature_line_length = 600
python_use_unqualified_type_names = True

html_theme = 'furo'
html_title = 'kopf'
html_static_path = ['_static']
html_css_files = ['kopf.css']
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app: sphinx.application.Sphinx) -> None:
    app.add_config_value('repository', REPOSITORY, 'env', str)
    app.connect('source-read', name_repository)
    app.connect('autodoc-process-signature', shorten_decorators)


def name_repository(app: sphinx.application.Sphinx, page: str, source: list[str]) -> None:
    """Put the address of the repository into the commands of the page, if it is known."""
    source[0] = source[0].replace(REPOSITORY, app.config.repository)


def shorten_decorators(
    app: object, what: str, name: str, obj: object, *_: object
) -> tuple[str, str] | None:
    """Decorators have up to 30 options: their names and defaults say more than their types."""
    if what != 'function' or not name.startswith('kopf.on.') or not callable(obj):
        return None
    parameters = inspect.signature(obj).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare)), ''
