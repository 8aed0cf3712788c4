"""
The settings of operators by section, with their types, defaults and texts, as reStructuredText.

The texts are the strings below each field in the code. They are read from the sources: they do not
exist at runtime.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator

MODULES = re.compile(r'\b(?:[a-z_]+\.)+(?=[A-Z][a-z])')
"""The names of modules before the names of classes: they are useless to readers."""


def render(settings: type) -> str:
    lines: list[str] = []
    for section in dataclasses.fields(settings):
        lines += render_section(section.name, section.default_factory)
    return '\n'.join(lines) + '\n'


def render_section(section: str, group: type) -> Iterator[str]:
    yield f'.. rubric:: settings.{section}'
    yield ''
    yield from inspect.cleandoc(group.__doc__ or '').splitlines()
    yield ''
    for name, (annotation, default, text) in read_fields(group).items():
        yield f'.. py:attribute:: settings.{section}.{name}'
        yield f'   :type: {MODULES.sub("", annotation)}'
        yield from [f'   :value: {MODULES.sub("", default)}'] if default else []
        yield '   :no-index:'
        yield ''
        yield textwrap.indent(text, '   ')
        yield ''


def read_fields(group: type) -> dict[str, tuple[str, str, str]]:
    """Return the type, the default and the text of each field or property, in source order."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    assert isinstance(definition, ast.ClassDef)
    fields: dict[str, tuple[str, str, str]] = {}
    for node, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            fields[ast.unparse(node.target)] = (
                ast.unparse(node.annotation),
                get_default(node),
                get_text(following),
            )
        elif isinstance(node, ast.FunctionDef) and [
            ast.unparse(item) for item in node.decorator_list
        ] == ['property']:
            fields[node.name] = (
                ast.unparse(node.returns) if node.returns else '',
                '',
                ast.get_docstring(node) or '',
            )
    return {name: field for name, field in fields.items() if not name.startswith('_')}


def get_default(node: ast.AnnAssign) -> str:
    """Return the default as it is written in the code; for factories, their call."""
    if not isinstance(node.value, ast.Call):
        return ast.unparse(node.value) if node.value else ''
    factories = [
        keyword.value for keyword in node.value.keywords if keyword.arg == 'default_factory'
    ]
    return (
        f'{ast.unparse(factories[0])}()'
        if factories and isinstance(factories[0], ast.Name | ast.Attribute)
        else ''
    )


def get_text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
    return ''
