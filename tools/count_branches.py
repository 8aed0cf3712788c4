"""
Count the branches of functions, wherever they stand: ``python tools/count_branches.py [PATHS...]``.

Linters count statements. Here, ``and``, ``or``, conditional expressions, filters of comprehensions
and cases of ``match`` count too, and so does everything inside nested functions: readers must read
all of it. Prints the functions above the limit, and fails if there are any.
"""

import argparse
import ast
import pathlib
import sys
from collections.abc import Iterator

LIMIT = 12

STATEMENTS = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)


def count_branches(function: ast.AST) -> int:
    """Count the branches inside a function."""
    return sum(map(_count_own, ast.walk(function)))


def _count_own(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return len(node.ifs)
    return int(isinstance(node, STATEMENTS))


def find_functions(path: pathlib.Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Find all functions of a module, including nested ones."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('paths', nargs='*', type=pathlib.Path, default=[pathlib.Path('kopf')])
    parser.add_argument('--limit', type=int, default=LIMIT)
    args = parser.parse_args()

    excessive = [
        f'{path}:{function.lineno}: {function.name} has {branches} branches'
        for root in args.paths
        for path in sorted(root.rglob('*.py'))
        for function in find_functions(path)
        if (branches := count_branches(function)) > args.limit
    ]
    for line in excessive:
        print(line)
    if excessive:
        sys.exit(f'{len(excessive)} functions have more than {args.limit} branches: split them.')


if __name__ == '__main__':
    main()
