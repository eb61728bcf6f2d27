"""The names that a Python file uses and does not define.

A candidate of the rule book must not end in a NameError: every text is checked before it is
returned.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from functools import lru_cache

IMPLICIT_NAMES = frozenset(dir(builtins)) | {"__name__", "__file__", "__class__", "__annotations__"}


@lru_cache(maxsize=8)
def undefined_names(text: str) -> frozenset[str]:
    """The global names that a file uses and nothing in it can define; none if it imports `*`."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return frozenset()
    table = symtable.symtable(text, "text", "exec")
    defined = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    used: set[str] = set()
    scopes = [table]
    while scopes:
        scope = scopes.pop()
        scopes.extend(scope.get_children())
        for symbol in scope.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
            elif symbol.is_referenced() and (symbol.is_global() or scope is table):
                used.add(symbol.get_name())
    return frozenset(used - defined - IMPLICIT_NAMES)
