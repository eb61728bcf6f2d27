"""What an answer's class ModelNew lacks: its forward, or what its methods use of the shown one.

Pure.  A file that was cut off between two lines is Python still, and so is a class that was written
again without its constructor.
"""

from __future__ import annotations

import ast

from actors.agents.replies import python_source

NAME = "ModelNew"
_PLAIN = (["nn.Module"], ["torch.nn.Module"], ["Module"])  # bases that bring no forward
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def class_problem(source: str, shown: str) -> str:
    """Return what is missing in the class of a candidate; "" for nothing.

    `shown`: the source that its model was shown.  A class with bases of its own, a decorator or a
    metaclass may have everything from there.
    """
    module, before = python_source.parse(source), python_source.parse(shown)
    if isinstance(module, str):
        return ""
    one = _class_of(module)
    if one is None or one.keywords or one.decorator_list:
        return ""
    if [ast.unparse(base) for base in one.bases] not in _PLAIN:
        return ""
    if not _has_forward(module, one):
        return f"{NAME} has no forward"
    old = None if isinstance(before, str) else _class_of(before)
    lost = _lost_attribute(module, one, old) if old is not None else ""
    return lost and (
        f"{NAME} uses self.{lost}, which only the shown source sets: write all of the class, or"
        " name smaller places"
    )


def _class_of(module: ast.Module) -> ast.ClassDef | None:
    return next((x for x in module.body if isinstance(x, ast.ClassDef) and x.name == NAME), None)


def _has_forward(module: ast.Module, one: ast.ClassDef) -> bool:
    """Whether the class has a forward, or a statement may give it one."""
    if "forward" in ast.unparse(one):
        return True
    others = [x for x in module.body if x is not one and not isinstance(x, ast.ClassDef)]
    return any(f"{NAME}.forward" in text or "setattr(" in text for text in map(ast.unparse, others))


def _lost_attribute(module: ast.Module, new: ast.ClassDef, old: ast.ClassDef) -> str:
    """Return an attribute that the new class reads, and only the old one has."""
    texts = {x.value for x in ast.walk(module) if isinstance(x, ast.Constant)}
    had, has = _attributes(old), _attributes(new)
    reads = (
        x.attr
        for x in ast.walk(new)
        if isinstance(x, ast.Attribute)
        and isinstance(x.ctx, ast.Load)
        and isinstance(x.value, ast.Name)
        and x.value.id == "self"
    )
    return next((name for name in reads if name in had - has and name not in texts), "")


def _attributes(one: ast.ClassDef) -> set[str]:
    """Return what the class's body and its methods bind: methods, names, attributes of self."""
    found = {x.name for x in one.body if isinstance(x, _FUNCTION | ast.ClassDef)}
    plain = [x for x in one.body if not isinstance(x, _FUNCTION | ast.ClassDef)]
    found |= {x.id for each in plain for x in ast.walk(each) if isinstance(x, ast.Name)}
    for x in ast.walk(one):
        match x:
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Call(args=[ast.Constant(value=str() as name), *_]):  # register_buffer(...)
                found.add(name)
            case _:
                pass
    return found
