"""The part of our style that a program can see: `python tools/prose.py` lists every finding, and fails if there is one.

- `long`: a sentence of more than 35 words, in documentation, docstrings and comments;
- `things`: a pronoun for persons, such as "nobody" or "whoever", which here nearly always means a job, a server or a caller;
- `below`: a constant that is explained by a string below it instead of a comment before or beside it;
- `verb`: a docstring of a function, but for properties, that does not begin with a verb such as "Return". Packages in
  `VERBS_LATER` are not held to it yet.

Code, formulas, tables and quotations do not count. `python tools/prose.py FILE...` reads only these files.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 35
THINGS = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|those who|who waits|who is|who has|the others)\b", re.IGNORECASE
)
VERBS_LATER = ("cli", "display", "experiments", "foresee", "live", "policies/guarded", "report", "shims")
# words that begin a description instead of an instruction
NO_VERBS = frozenset(
    [
        "The",
        "A",
        "An",
        "Whether",
        "How",
        "What",
        "Which",
        "Where",
        "Why",
        "When",
        "Who",
        "As",
        "Of",
        "For",
        "From",
        "At",
        "In",
        "On",
        "To",
        "If",
        "With",
        "Without",
        "By",
        "Each",
        "Every",
        "All",
        "Also",
        "Some",
        "Any",
        "No",
        "None",
        "Nothing",
        "One",
        "Two",
        "It",
        "Its",
        "This",
        "That",
        "These",
        "Those",
        "There",
        "Only",
        "Not",
        "Numbers",
        "Names",
        "Jobs",
        "Servers",
        "Types",
    ]
)
Finding = tuple[int, str, str]  # line, rule, sentence


def passages(path: Path) -> list[tuple[int, str]]:
    """Return the first line and the text of each paragraph, docstring and comment of a file."""
    text = path.read_text("utf-8")
    return _paragraphs(text) if path.suffix == ".md" else _strings_and_comments(text)


def _paragraphs(text: str) -> list[tuple[int, str]]:
    text = re.sub(r"^ *```.*?^ *```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    found: list[tuple[int, str]] = []
    block: list[str] = []
    for n, line in enumerate([*text.splitlines(), ""], 1):
        starts = re.match(r"\s*([-*]|\d+\.) ", line)
        if block and (not line.strip() or starts or line.lstrip().startswith(("|", "#"))):
            found.append((n - len(block), " ".join(block)))
            block = []
        code = not block and line.startswith("    ")
        if line.strip() and not code and not line.lstrip().startswith(("|", "#")):
            block.append(line.strip())
    return found


def _strings_and_comments(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    comment: list[str] = []
    statements = {
        node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and _is_string(node)
    }
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            beside = bool(token.line[: token.start[1]].strip())  # beside code: a passage of its own
            item = token.string.startswith("# - ")
            if comment and (beside or item or line != last + 1):
                found.append((first, " ".join(comment)))
                comment = []
            first, last = (first if comment else line), (-1 if beside else line)
            comment.append(token.string.lstrip("#").strip())
        elif token.type == tokenize.STRING and line in statements:  # a docstring
            prose = re.sub(
                r"^\|.*$", "", inspect.cleandoc(token.string.strip('r"')), flags=re.MULTILINE
            )  # without tables
            for part in re.split(r"\n\s*\n|\n(?=\s*[-*] )", prose):
                # without code, formulas and tables
                if not all(row.startswith("    ") for row in part.strip("\n").split("\n")):
                    found.append((line, part))
    return [*found, (first, " ".join(comment))] if comment else found


def findings(path: Path) -> list[Finding]:
    """Return all findings in a file."""
    found: list[Finding] = []
    for line, text in passages(path):
        for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text.strip())):
            if len(sentence.split()) > MOST_WORDS:
                found.append((line, "long", sentence))
            if THINGS.search(re.sub(r"`[^`]*`|\"[^\"]*\"", "", sentence)):  # without code and quotations
                found.append((line, "things", sentence))
    if path.suffix == ".py":
        found += _messages(path)
        found += _descriptions(path)
        body = ast.parse(path.read_text("utf-8")).body
        for before, node in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and _is_string(node):
                found.append((node.lineno, "below", ast.unparse(before).split("=")[0].strip()))
    return found


def _messages(path: Path) -> list[Finding]:
    """Return the findings in texts that a user may read."""
    if "src" not in path.parts:
        return []
    tree = ast.parse(path.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return [
        (node.lineno, "things", str(node.value))
        for node in texts
        if isinstance(node.value, str) and " " in node.value and THINGS.search(node.value)
    ]


def _descriptions(path: Path) -> list[Finding]:
    """Return the docstrings of functions that begin with a description."""
    place = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    if not place.startswith("src/") or place.startswith(tuple(f"src/slotwise/{name}/" for name in VERBS_LATER)):
        return []
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if text.split()[0].rstrip(",:.") in NO_VERBS and not is_property:
                found.append((node.lineno, "verb", f"{node.name}: {text}"))
    return found


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def files() -> list[Path]:
    """Return every source and page that is under version control, or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\n") if name]
    return sorted(path for path in paths if path.is_file() and path.name != "CHANGELOG.md" and not is_made(path))


def is_made(path: Path) -> bool:
    """Return whether docs/generate.py wrote a page; the sentences of such a page are checked in the code."""
    return path.suffix == ".md" and path.read_text("utf-8").startswith("<!-- written by docs/generate.py")


def main() -> None:
    """Print every finding; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="read these files instead of all")
    totals: Counter[str] = Counter()
    for path in [given.resolve() for given in parser.parse_args().files] or files():
        for line, rule, text in findings(path):
            totals[rule] += 1
            print(f"{path.relative_to(ROOT)}:{line}: {rule}: {text[:140]}")
    print(", ".join(f"{rule} {totals[rule]}" for rule in ("long", "things", "below", "verb")))
    sys.exit(bool(totals))


if __name__ == "__main__":
    main()
