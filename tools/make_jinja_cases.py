#!/usr/bin/env python3
"""Renders the templates of tests/data/jinja with Jinja2 and writes what they must give beside them.

usage: make_jinja_cases.py [SOURCE_ROOT]

Needs Python's jinja2 3.1.6. The environment is the one in which Hugging Face's transformers renders chat templates.
tests/data/jinja/more.txt: small templates, one a line as a JSON string, rendered with language.context.json
(→ more.jsonl). tests/data/jinja/chat/NAME.jinja with the inputs of inputs.json (→ chat/NAME.jsonl).
"""
import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(Extension):
    """{% generation %}…{% endgeneration %} marks what the assistant said; rendering prints it as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                           extensions=[Generation, "jinja2.ext.loopcontrols"])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = NOW.strftime
    return result


def render(source, variables):
    """{"output": text}, or {"error": message, "kind": "raise" where the template itself raised, else "other"}.

    The output is null where it names an object by its address: anything will do.
    """
    try:
        output = environment().from_string(source).render(**variables)
        output.encode()  # half a surrogate pair is an error
        return {"output": None if " at 0x" in output or "<class " in output else output}
    except jinja2.exceptions.TemplateError as error:
        own = type(error) is jinja2.exceptions.TemplateError
        return {"error": str(error), "kind": "raise" if own else "other"}
    except Exception as error:  # whatever Python raises inside a template
        return {"error": str(error), "kind": "other"}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def main(root):
    folder = root / "tests/data/jinja"
    context = json.loads((folder / "language.context.json").read_text(encoding="utf-8"))
    more = [json.loads(line) for line in (folder / "more.txt").read_text(encoding="utf-8").splitlines() if line]
    write_lines(folder / "more.jsonl", [{"template": source, **render(source, context)} for source in more])
    inputs = json.loads((folder / "chat/inputs.json").read_text(encoding="utf-8"))
    for path in sorted((folder / "chat").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        write_lines(path.with_suffix(".jsonl"),
                    [{"name": name, "input": value, **render(source, value)} for name, value in inputs.items()])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
