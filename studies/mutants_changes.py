"""Mutants of a file: small changes of its expressions and statements."""

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_DROPPED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)


class Mutant(NamedTuple):
    """A change of one expression or statement.

    Attributes:
        path: file, from the root of the repository.
        name: a short hash, which stays while the text of the line does.
        line: number of the changed line.
        kind: word for the change.
        old, new: source text.
        start, end: offsets of ``old`` in the bytes of the file.
    """

    path: str
    name: str
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int

    def source(self, content: bytes) -> bytes:
        """Returns the content of the file with the change."""
        return content[: self.start] + self.new.encode() + content[self.end :]

    def is_python(self, content: bytes) -> bool:
        """Returns True if the file with the change can be compiled."""
        try:
            compile(self.source(content), self.path, "exec")
        except (SyntaxError, ValueError):
            return False
        return True


def mutants(path: str, content: bytes) -> Iterator[Mutant]:
    """Yields all mutants of a file; a few of them may not be Python."""
    seen: Counter[tuple] = Counter()
    lines = content.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    tree = ast.parse(content)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node
    for node in ast.walk(tree):
        if _is_ignored(node):
            continue
        for kind, new in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            old = content[start:end].decode()
            key = (path, lines[node.lineno - 1].strip(), node.col_offset, kind, old, new)
            seen[key] += 1
            text = repr((*key, seen[key]))
            name = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
            mutant = Mutant(path, name, node.lineno, kind, old, new, start, end)
            yield mutant


def _is_ignored(node: ast.AST) -> bool:
    """Returns True for what no test can notice: annotations, imports, and words of messages."""
    while (parent := getattr(node, "parent", None)) is not None:
        if isinstance(parent, ast.AnnAssign | ast.arg) and node is parent.annotation:
            return True
        if isinstance(parent, ast.FunctionDef) and node is parent.returns:
            return True
        if isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.unparse(parent.test):
            return True
        if isinstance(parent, ast.JoinedStr | ast.Import | ast.ImportFrom):
            return True
        node = parent
    return False


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the kinds and the source texts of the changes of a node."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=[operation]) if type(operation) in _COMPARISONS:
            new.ops = [_COMPARISONS[type(operation)]()]
            yield "comparison", f"({ast.unparse(new)})"
        case ast.BinOp(op=operation) if type(operation) in _OPERATORS:
            new.op = _OPERATORS[type(operation)]()
            yield "operator", f"({ast.unparse(new)})"
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "operator", f"({ast.unparse(new)})"
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool()):
            yield "constant", str(not node.value)
        case ast.Constant(value=int() | float()):
            yield "number", f"({node.value!r} + 1)"
            yield "number", f"({node.value!r} - 1)"
        case ast.Call(args=[first, second, *others]) if not any(
            isinstance(x, ast.Starred) for x in node.args
        ):
            new.args = [second, first, *others]
            yield "arguments", ast.unparse(new)
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            return
        case _ if isinstance(node, _DROPPED):
            yield "statement", "pass"
    parent = getattr(node, "parent", None)
    if isinstance(parent, ast.If | ast.IfExp | ast.While) and node is parent.test:
        yield "condition", f"(not ({ast.unparse(node)}))"
