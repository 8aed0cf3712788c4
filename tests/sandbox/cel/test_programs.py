"""
Expressions: their values, their types, and their errors. The comparison with the API is in
``tests/fidelity``.
"""

import pytest

from kopf._sandbox.cel import availability, cel_types, checker, programs, schema_values, values

SCHEMA = {
    'type': 'object',
    'properties': {
        'n': {'type': 'integer'},
        'ratio': {'type': 'number'},
        's': {'type': 'string'},
        'at': {'type': 'string', 'format': 'date-time'},
        'tags': {
            'type': 'array',
            'x-kubernetes-list-type': 'set',
            'items': {'type': 'string'},
        },
        'labels': {'type': 'object', 'additionalProperties': {'type': 'string'}},
        'any': {'x-kubernetes-int-or-string': True},
        'a-b': {'type': 'string'},
        'in': {'type': 'string'},
    },
}
DATA = {
    'n': 3,
    'ratio': 2,
    's': 'text',
    'at': '2024-02-29T12:30:45Z',
    'tags': ['a', 'b'],
    'labels': {'k': 'v'},
    'any': 'x',
    'a-b': 'dash',
    'in': 'keyword',
    'undeclared': 1,
}


def build_environment():
    kind = schema_values.build_type(SCHEMA)
    return checker.Environment({'self': kind}, programs.load_library())


def compile_text(text):
    return programs.compile_program(text, build_environment(), ())


def evaluate(text):
    return compile_text(text).evaluate({'self': schema_values.build_value(DATA, SCHEMA)})


@pytest.mark.parametrize(
    'text, expected',
    [
        ('self.n + 2', 5),
        ('self.ratio / 4.0', 0.5),
        ('self.n > 2 ? "more" : "less"', 'more'),
        ('self.tags.map(t, t + "!")', ['a!', 'b!']),
        ('self.tags == ["b", "a"]', True),
        ('self.tags + ["b", "c"]', ['a', 'b', 'c']),
        ('self.labels.all(k, v, k == "k" && v == "v")', True),
        ('self.labels[?"z"].orValue("none")', 'none'),
        ('has(self.labels.k) && !has(self.labels.z)', True),
        ('self.a__dash__b + self.__in__', 'dashkeyword'),
        ('self.at.getFullYear()', 2024),
        ('type(self.any) == string', True),
        ('self.labels["z"] == "" || true', True),
        ('self.labels["z"] == "" && false', False),
        ('[1, 2, 3].exists_one(x, x > 2)', True),
        ('[[1, 2].sum(), [3, 1].min(), [3, 1].max()]', [3, 1, 3]),
        ('"a,b,c".split(",", 2)', ['a', 'b,c']),
        ('"%s-%d-%.1f".format(["x", 1, 2.5])', 'x-1-2.5'),
        ('quantity("1Gi").compareTo(quantity("1024Mi"))', 0),
        ('semver("1.10.0").isGreaterThan(semver("1.9.0"))', True),
        ('url("https://host:1/p").getHost()', 'host:1'),
        ('cidr("10.0.0.0/8").containsIP(ip("10.1.2.3"))', True),
        ('-7 / 2', -3),
        ('1 == 1.0 && 1u == 1', None),
    ],
)
def test_expressions_have_values(text, expected):
    if expected is None:
        with pytest.raises(programs.CompilationError, match='found no matching overload'):
            evaluate(text)
    else:
        assert evaluate(text) == expected


@pytest.mark.parametrize(
    'text, problem',
    [
        ('self.labels["z"] == ""', 'no such key: z'),
        ('self.n / 0 == 1', 'division by zero'),
        ('9223372036854775807 + self.n > 0', 'integer overflow'),
        ('self.tags[5] == ""', 'index out of bounds: 5'),
        ('self.any > 1', 'no such overload'),
        ('quantity(self.s).isInteger()', 'quantities must match'),
        ('[].map(x, x).max() == 1', 'max called on empty list'),
        ('optional.none().value() == 1', 'optional.none.. dereference'),
    ],
)
def test_expressions_can_fail(text, problem):
    with pytest.raises(values.EvaluationError, match=problem):
        evaluate(text)


@pytest.mark.parametrize(
    'text, problem',
    [
        ('self.n >', 'Syntax error: mismatched input'),
        ('self.absent == 1', "undefined field 'absent'"),
        ('self.n == "x"', r"found no matching overload for '_==_' applied to '\(int, string\)'"),
        ('other == 1', "undeclared reference to 'other'"),
        ('self.n.all(x, x > 1)', "expression of type 'int' cannot be range of a comprehension"),
        ('self.s.charAt("x") == ""', r"for 'charAt' applied to 'string.\(string\)'"),
    ],
)
def test_wrong_expressions_are_refused(text, problem):
    with pytest.raises(programs.CompilationError, match=problem):
        compile_text(text)


def test_results_must_be_of_the_wanted_type():
    with pytest.raises(programs.CompilationError, match='must evaluate to bool') as caught:
        programs.compile_program('1 + 1', build_environment(), (cel_types.BOOL,))

    assert caught.value.given == cel_types.INT


def test_places_of_problems_are_shown():
    with pytest.raises(programs.CompilationError) as caught:
        compile_text('self.n > 1 &&\n self.z')

    assert str(caught.value).endswith(
        "ERROR: <input>:2:6: undefined field 'z'\n |  self.z\n | .....^"
    )


def test_endless_loops_are_stopped():
    hundred = f'[{", ".join(map(str, range(100)))}]'
    text = f'{hundred}.all(a, {hundred}.all(b, {hundred}.all(c, {hundred}.all(d, true))))'

    with pytest.raises(values.EvaluationError, match='actual cost limit exceeded'):
        evaluate(text)


def test_parsing_needs_the_library(monkeypatch):
    monkeypatch.setattr(availability, 'LIBRARY', 'absent_library_of_cel')

    assert not availability.is_available()
