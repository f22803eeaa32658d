"""Command lines and directives as Slurm's commands read them: short options with their value attached, long options, prefixes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from slotwise.errors import InputError

T = TypeVar("T")
FLAG, VALUE, OPTIONAL = "flag", "value", "optional"  # what an option takes; OPTIONAL: a value only behind =


class SlurmOption(NamedTuple):
    """An option of a command of Slurm."""

    name: str
    """the long name, without dashes"""
    letter: str = ""
    takes: str = VALUE
    effect: str = ""
    """empty: it is understood; NO_EFFECT or a reason why it is refused otherwise"""


NO_EFFECT = "has no effect"


class Read(NamedTuple):
    """What a command line says."""

    values: dict[str, str]
    """by long name; of an option that is repeated, the last value"""
    rest: list[str]
    """the words after the options"""
    repeated: dict[str, list[str]]
    """by long name: every value"""


def no_effect(*options: str) -> list[SlurmOption]:
    """Return options that are accepted and ignored, each written as `name`, `name/letter` or `name/letter/flag`."""
    return [_written(one, NO_EFFECT) for one in options]


def refused(reason: str, *options: str) -> list[SlurmOption]:
    """Return options that are refused for a reason."""
    return [_written(one, reason) for one in options]


def flags(*options: str) -> list[SlurmOption]:
    """Return options without a value."""
    return [_written(f"{one}/{FLAG}" if "/" in one else f"{one}//{FLAG}", "") for one in options]


def _written(text: str, effect: str) -> SlurmOption:
    name, letter, takes = [*text.split("/"), "", ""][:3]
    return SlurmOption(name, letter, takes or VALUE, effect)


def read_words(words: Sequence[str], known: Sequence[SlurmOption], *, mixed: bool = False) -> Read:
    """Read a command line. The options end at the first word that is none, or with `mixed` at `--` only."""
    by_letter = {one.letter: one for one in known if one.letter}
    found = Read({}, [], {})
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.rest.extend(left)
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            option = _long(name, known)
            if option.takes == FLAG and equals:
                raise InputError("takes no value", where=f"--{option.name}")
            if option.takes == VALUE and not equals:
                value = _next(left, f"--{option.name}")
            _put(found, option, value)
        elif word.startswith("-") and len(word) > 1:
            _read_letters(word[1:], by_letter, left, found)
        else:
            found.rest.append(word)
            if not mixed:
                found.rest.extend(left)
                break
    return found


def _read_letters(letters: str, by_letter: dict[str, SlurmOption], left: list[str], found: Read) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in by_letter:
            raise InputError(f"no option -{letter} is known here")
        option = by_letter[letter]
        if option.takes == FLAG:
            _put(found, option, "")
            continue
        value = letters.removeprefix("=") if letters else ""
        if not letters and option.takes == VALUE:
            value = _next(left, f"-{letter}")
        _put(found, option, value)
        return


def _long(name: str, known: Sequence[SlurmOption]) -> SlurmOption:
    exact = [one for one in known if one.name == name]
    begun = exact or [one for one in known if one.name.startswith(name)]
    if len(begun) == 1 or exact:
        return begun[0]
    if begun:
        raise InputError(f"--{name} may be {' or '.join(f'--{one.name}' for one in begun)}")
    raise InputError(f"no option --{name} is known here")


def _next(left: list[str], where: str) -> str:
    if not left:
        raise InputError("needs a value", where=where)
    return left.pop(0)


def _put(found: Read, option: SlurmOption, value: str) -> None:
    if option.effect and option.effect != NO_EFFECT:
        shown = f"--{option.name}" + (f"={value}" if value else "")
        raise InputError(option.effect, where=shown)
    found.values[option.name] = value
    found.repeated.setdefault(option.name, []).append(value)


def typed(kind: Callable[[str], T], values: Mapping[str, str], option: str) -> T | None:
    """Return the value of an option, read; None: it is not given."""
    if option not in values:
        return None
    try:
        return kind(values[option])
    except ValueError as error:
        raise InputError(f"{values[option]!r} {error}", where=f"--{option}") from None


def ignored(values: dict[str, str], known: Sequence[SlurmOption]) -> list[str]:
    """Return the options that were given and have no effect."""
    return [f"--{one.name}" for one in known if one.effect == NO_EFFECT and one.name in values]
