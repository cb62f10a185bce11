"""A jinja2 environment for templates of unknown origin: immutable, and with every step that could cost much guarded.

Guards are put into the parsed template, not around it: loops count their rounds, and text, lists and comparisons are
charged where they arise. So a limit holds on any thread, without signals, and inside macros and captured blocks too.
"""

from __future__ import annotations

import types
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace, pass_context
from jinja2.visitor import NodeTransformer

from pagoda.core.errors import TemplateError
from pagoda.text.template_budget import MAX_NUMBER_BITS, counted, current_budget, measure
from pagoda.text.template_filters import build_filters, build_tests
from pagoda.text.template_methods import check_method, check_percent_format, guard_format, join_text

# Filters under names that no template can spell.
_LOOP, _WRITE, _VALUE, _CONCAT = " loop", " write", " value", " concat"
_BINARY_OPERATORS = frozenset(("+", "-", "*", "/", "//", "%", "**"))
# Ten times what the longest template in use has; compiling that many takes about a second.
_MAX_NODES = 1 << 14


class QuietNamespace(Namespace):
    """A namespace may come to hold itself many times over, so it does not show what is in it."""

    def __repr__(self) -> str:
        return "<Namespace>"


class GenerationBlock(Extension):
    """`{% generation %}` marks what the model wrote, for training; here its content is simply rendered."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _GuardInserter(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise TemplateError("the chat template has a recursive loop, which is not allowed")
        self.generic_visit(node)
        node.iter = _through(_LOOP, node.iter)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [_through(_WRITE, _as_expression(child)) for child in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _through(_CONCAT, nodes.List(node.nodes).set_lineno(node.lineno))

    def _guard_value(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        return _through(_VALUE, node)

    def _guard_loaded(self, node: nodes.List | nodes.Tuple) -> nodes.Node:
        # A tuple may also be the target of an assignment.
        self.generic_visit(node)
        return node if isinstance(node, nodes.Tuple) and node.ctx != "load" else _through(_VALUE, node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _through(_VALUE, node) if isinstance(node.arg, nodes.Slice) else node

    visit_List = visit_Tuple = _guard_loaded
    visit_Dict = visit_Compare = _guard_value


def _through(name: str, expression: nodes.Node) -> Any:
    return nodes.Filter(expression, name, [], [], None, None).set_lineno(expression.lineno)


def _as_expression(child: nodes.Node) -> nodes.Node:
    return nodes.Const(child.data).set_lineno(child.lineno) if isinstance(child, nodes.TemplateData) else child


class TemplateSandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = _BINARY_OPERATORS

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, GenerationBlock],
            # Folding constants would run filters while the template is compiled, at nobody's expense.
            optimized=False,
        )
        guards = {_LOOP: _loop, _WRITE: _write, _VALUE: _value, _CONCAT: _concat}
        self.filters: dict[str, Any] = {**build_filters(), **guards}
        self.tests: dict[str, Any] = dict(build_tests())
        self.globals = {
            "range": safe_range,
            "dict": dict,
            "namespace": QuietNamespace,
            "cycler": Cycler,
            "joiner": Joiner,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        if sum(1 for _ in tree.find_all(nodes.Node)) > _MAX_NODES:
            raise TemplateError(f"the chat template has more than {_MAX_NODES} parts")
        guarded: nodes.Template = _GuardInserter().visit(tree)
        return guarded

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: B902, N805
        budget = current_budget()
        budget.count_iterations()
        budget.allow_size(measure((args, kwargs), budget.max_value_bytes))
        if isinstance(__obj, types.BuiltinMethodType):
            check_method(__obj.__self__, __obj.__name__, args)
            if isinstance(__obj.__self__, str) and __obj.__name__ == "join" and args:
                return join_text(__obj.__self__, args[0])
        return budget.check_value(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return current_budget().check_value(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Any:
        formatted = super().wrap_str_format(value)
        return None if formatted is None else guard_format(value.__self__, formatted)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"a template may not read {attribute!r} of a {type(obj).__name__}")


@pass_context
def _loop(context: Context, iterable: Any) -> Any:
    return counted(iterable)


@pass_context
def _write(context: Context, value: Any) -> str:
    budget = current_budget()
    text = value if isinstance(value, str) else str(budget.check_value(value))
    budget.write(text)
    return text


@pass_context
def _value(context: Context, value: Any) -> Any:
    return current_budget().check_value(value)


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    current_budget().allow_size(measure(values))
    return "".join(map(str, values))


def _check_operands(operator: str, left: Any, right: Any) -> None:
    budget = current_budget()
    if operator == "%" and isinstance(left, str):
        check_percent_format(left, right)
    elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        budget.allow_size(len(left) + len(right))
    elif operator == "*":
        _check_product(left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(times, int):
            current_budget().allow_size(len(sequence) * max(times, 0))


def _check_bits(num_bits: int) -> None:
    if num_bits > MAX_NUMBER_BITS:
        raise TemplateError("the chat template made a number of more than a thousand digits")
