"""The part of our style that a program can see: `python tools/prose.py` lists every finding that tools/prose.txt does not excuse.

- `long`: a sentence of more than 35 words, in documentation, docstrings and comments;
- `things`: a pronoun for persons, such as "nobody" or "whoever", which here nearly always means a job, a server or a caller;
- `below`: a constant that is explained by a string below it instead of a comment before or beside it.

tools/prose.txt holds the findings that remain, as a number for each file and rule. A number may only fall: `--write` writes lower numbers
and refuses higher ones. `--list FILE` prints the findings of one file.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXCUSED = ROOT / "tools" / "prose.txt"
MOST_WORDS = 35
THINGS = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|those who|who waits|who is|who has|the others)\b", re.IGNORECASE
)
Finding = tuple[int, str, str]  # line, rule, sentence


def passages(path: Path) -> list[tuple[int, str]]:
    """Return the first line and the text of each paragraph, docstring and comment of a file."""
    text = path.read_text("utf-8")
    return _paragraphs(text) if path.suffix == ".md" else _strings_and_comments(text)


def _paragraphs(text: str) -> list[tuple[int, str]]:
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    found: list[tuple[int, str]] = []
    block: list[str] = []
    for n, line in enumerate([*text.splitlines(), ""], 1):
        starts = re.match(r"\s*([-*]|\d+\.) ", line)
        if block and (not line.strip() or starts or line.lstrip().startswith(("|", "#"))):
            found.append((n - len(block), " ".join(block)))
            block = []
        if line.strip() and not line.lstrip().startswith(("|", "#")):
            block.append(line.strip())
    return found


def _strings_and_comments(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    comment: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            beside = bool(token.line[: token.start[1]].strip())  # beside code: a passage of its own
            if comment and (beside or line != last + 1):
                found.append((first, " ".join(comment)))
                comment = []
            first, last = (first if comment else line), (-1 if beside else line)
            comment.append(token.string.lstrip("#").strip())
        elif token.type == tokenize.STRING and token.line.lstrip().startswith(('"""', 'r"""')):
            prose = re.sub(r"^\s*\|.*$", "", token.string.strip('r"'), flags=re.MULTILINE)  # without tables
            for part in re.split(r"\n\s*\n|\n(?=\s*[-*] )", prose):
                if not re.match(r"\s{4,}\S.*\s{3,}\S", part.split("\n")[-1]):  # a table in a docstring
                    found.append((line, part))
    return [*found, (first, " ".join(comment))] if comment else found


def findings(path: Path) -> list[Finding]:
    """Return all findings in a file."""
    found: list[Finding] = []
    for line, text in passages(path):
        for sentence in re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text.strip())):
            if len(sentence.split()) > MOST_WORDS:
                found.append((line, "long", sentence))
            if THINGS.search(sentence):
                found.append((line, "things", sentence))
    if path.suffix == ".py":
        body = ast.parse(path.read_text("utf-8")).body
        for before, node in itertools.pairwise(body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and _is_string(node):
                found.append((node.lineno, "below", ast.unparse(before).split("=")[0].strip()))
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
    paths = [ROOT / name for name in listed.split("\n") if name and not name.startswith("docs/reference/")]
    return sorted(path for path in paths if path.is_file() and path.name != "CHANGELOG.md")


def excused() -> Counter[tuple[str, str]]:
    """Return the number of findings that remain, by file and rule."""
    rows = [line.split() for line in EXCUSED.read_text().splitlines() if line and not line.startswith("#")]
    return Counter({(name, rule): int(number) for name, rule, number in rows})


def main() -> None:
    """List what is new, or write what remains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write lower numbers into tools/prose.txt")
    parser.add_argument("--list", metavar="FILE", help="print every finding of one file")
    chosen = parser.parse_args()
    if chosen.list:
        for line, rule, text in findings(Path(chosen.list).resolve()):
            print(f"{chosen.list}:{line}: {rule}: {text[:160]}")
        return
    found = {path.relative_to(ROOT).as_posix(): findings(path) for path in files()}
    counts = Counter((name, rule) for name, one in found.items() for _, rule, _ in one)
    known = excused() if EXCUSED.exists() else None
    worse = [key for key in counts if known is not None and counts[key] > known[key]]
    for name, rule in sorted(worse):
        print(
            f"{name}: {counts[name, rule]} findings of rule {rule}, at most {(known or counts)[name, rule]} may remain:"
        )
        for line, other, text in found[name]:
            if other == rule:
                print(f"  {name}:{line}: {text[:140]}")
    if chosen.write and not worse:
        head = "# Findings of tools/prose.py that remain: file, rule, number. A number may only fall (python tools/prose.py --write).\n"
        EXCUSED.write_text(head + "".join(f"{name} {rule} {n}\n" for (name, rule), n in sorted(counts.items())))
    totals = Counter[str]()
    for (_, rule), n in counts.items():
        totals[rule] += n
    print(", ".join(f"{rule} {totals[rule]}" for rule in ("long", "things", "below")) + " remain")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
