"""A small model of epoch, commit, answer and act, and an explorer that tries every order of its steps.

Two services, a store with one writer's row, and an engine. A message of a service to the store may be applied at any
later time, its answer may be lost, and a standby may take over at any time. Clocks say whether a lease has run out; the
protocol must hold without them. A service that lost an answer asks again. A service may be killed at any time, and begins
again as a standby.

What must hold in every state that can be reached:
- a client was told the number of a job: the store has that job, with the client's content, under that number;
- a job is in the store at most once;
- a job is executed at most once;
- no service gives up while it is the writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DOWN, IDLE, BEGUN, SENT, LOST_ANSWER, DURABLE, TOLD, CHECKED, ENDED = (
    "down", "idle", "begun", "sent", "lost answer", "durable", "told", "checked", "ended",
)  # fmt: skip


class Rules(NamedTuple):
    """What the protocol does; each can be switched off, to see that the explorer finds what it prevents."""

    fenced_retry: bool = True
    """a repeated commit checks the epoch first; off: any reader that sees enough rows takes its own for there"""
    numbered: bool = True
    """a repeated commit sees by its number that it is there already"""
    fenced_commit: bool = True
    """the store refuses a commit of an older epoch"""
    fenced_engine: bool = True
    """the engine refuses a start of an older epoch"""


class Message(NamedTuple):
    """A commit on its way to the store."""

    service: int
    epoch: int
    number: int
    at: int
    """the row that it would be"""
    content: str
    awaited: bool
    """its sender still waits for the answer"""


class Service(NamedTuple):
    """One service: where it is in its round, and what it holds to be true."""

    step: str = DOWN
    epoch: int = 0
    rows: int = 0
    number: int = 0
    content: str = ""
    left: int = 0
    """submissions that are still to come from its clients"""


class State(NamedTuple):
    """Everything."""

    services: tuple[Service, ...]
    epoch: int = 0
    batch: int = 0
    rows: tuple[str, ...] = ()
    messages: frozenset[Message] = frozenset()
    answers: frozenset[tuple[str, int]] = frozenset()
    engine_epoch: int = 0
    executed: tuple[int, ...] = ()

    def put(self, which: int, **changed: object) -> State:
        """The state with one service changed."""
        services = list(self.services)
        services[which] = services[which]._replace(**changed)  # type: ignore[arg-type]
        return self._replace(services=tuple(services))


def wrong(state: State) -> str | None:
    """What does not hold, if anything."""
    for content, number in state.answers:
        if number >= len(state.rows) or state.rows[number] != content:
            return f"the client of {content} was told number {number}, which is another job's or none"
    if len(set(state.rows)) < len(state.rows):
        return f"a job is in the store twice: {state.rows}"
    if len(set(state.executed)) < len(state.executed):
        return f"a job was executed twice: {state.executed}"
    if any(one.step == ENDED and one.epoch == state.epoch for one in state.services):
        return "a service has given up although it is the writer"
    return None


def steps(state: State, rules: Rules, takeovers: int) -> Iterator[tuple[str, State]]:
    """Every step that can come next, by name."""
    for which, one in enumerate(state.services):
        if one.step != DOWN or state.epoch < takeovers:
            yield from steps_of(state, which, one, rules)
        if one.step != DOWN and state.epoch < takeovers:
            yield f"{'AB'[which]} is killed", killed(state, which, one)
    for message in state.messages:
        yield from arrivals(state, message, rules)


def killed(state: State, which: int, one: Service) -> State:
    """The state after a service has lost its memory. Its messages are still on their way."""
    unawaited = (other._replace(awaited=False) if other.service == which else other for other in state.messages)
    return state.put(which, **Service(left=one.left)._asdict())._replace(messages=frozenset(unawaited))


def steps_of(state: State, which: int, one: Service, rules: Rules) -> Iterator[tuple[str, State]]:
    """What a service can do by itself."""
    name = "AB"[which]
    if (
        one.step == DOWN
    ):  # it takes over: reads what is there, opens the engine, starts what the engine does not know
        epoch = state.epoch + 1
        unknown = tuple(n for n in range(len(state.rows)) if n not in state.executed)
        taken = state.put(which, step=IDLE, epoch=epoch, rows=len(state.rows), number=0)
        yield (
            f"{name} takes over",
            taken._replace(epoch=epoch, batch=0, engine_epoch=epoch, executed=(*state.executed, *unknown)),
        )
    elif one.step == IDLE and one.left:
        content = f"{name.lower()}{one.left}"
        yield (
            f"{name} is asked for {content}",
            state.put(which, step=BEGUN, number=one.number + 1, content=content, left=one.left - 1),
        )
    elif one.step == BEGUN:
        yield from sent(state, which, one, "sends")
    elif one.step == LOST_ANSWER:
        if not rules.fenced_retry and len(state.rows) > one.rows:
            yield f"{name} believes that its row is there", state.put(which, step=DURABLE)
        yield from sent(state, which, one, "sends again")
    elif one.step == DURABLE:
        answers = state.answers | {(one.content, one.rows)}
        yield f"{name} answers", state.put(which, step=TOLD)._replace(answers=answers)
    elif one.step == TOLD:
        held = one.epoch == state.epoch
        yield f"{name} looks at the fence", state.put(which, step=CHECKED if held else ENDED)
    elif one.step == CHECKED:
        after = state.put(which, step=IDLE, rows=one.rows + 1)
        refused = rules.fenced_engine and one.epoch < state.engine_epoch
        yield (
            f"{name} starts {one.rows}",
            after if refused else after._replace(executed=(*state.executed, one.rows)),
        )


def sent(state: State, which: int, one: Service, verb: str) -> Iterator[tuple[str, State]]:
    message = Message(which, one.epoch, one.number, one.rows, one.content, awaited=True)
    unawaited = {other._replace(awaited=False) if other.service == which else other for other in state.messages}
    after = state.put(which, step=SENT)._replace(messages=frozenset({*unawaited, message}))
    yield f"{'AB'[which]} {verb} {one.content}", after


def arrivals(state: State, message: Message, rules: Rules) -> Iterator[tuple[str, State]]:
    """What can become of a message: applied or not, heard of or not."""
    name = "AB"[message.service]
    left = state._replace(messages=state.messages - {message})
    fenced = message.epoch != state.epoch and rules.fenced_commit
    there = rules.numbered and message.epoch == state.epoch and message.number <= state.batch
    collides = (
        not fenced and not there and message.at != len(state.rows)
    )  # a primary key: rows are not written over
    applied = left
    if not fenced and not there and not collides:
        applied = left._replace(rows=(*state.rows, message.content), batch=message.number)
    told = ENDED if fenced or collides else DURABLE
    if message.awaited:
        yield f"{name} hears of {message.content}", applied.put(message.service, step=told)
        yield f"the answer to {name} is lost", applied.put(message.service, step=LOST_ANSWER)
        yield f"the message of {name} is lost", left.put(message.service, step=LOST_ANSWER)
        # the connection is cut; the message is still on its way
        late = left._replace(messages=left.messages | {message._replace(awaited=False)})
        yield f"{name} gives up waiting", late.put(message.service, step=LOST_ANSWER)
    else:
        yield f"a late message of {name} arrives", applied


class Found(NamedTuple):
    """What the explorer found: how many states there are, and the shortest way to one that is wrong."""

    states: int
    violation: str | None = None
    path: tuple[str, ...] = ()


def explore(rules: Rules, submissions: tuple[int, int] = (1, 2), takeovers: int = 3) -> Found:
    """Visit every state that can be reached, nearest first, until one is wrong. A service becomes the writer at most so many times in all."""
    start = State(tuple(Service(left=n) for n in submissions))
    came: dict[State, tuple[State, str] | None] = {start: None}
    queue = [start]
    for state in queue:
        what = wrong(state)
        if what is not None:
            path, at = [], came[state]
            while at is not None:
                path.append(at[1])
                at = came[at[0]]
            return Found(len(came), what, tuple(reversed(path)))
        for name, after in steps(state, rules, takeovers):
            if after not in came:
                came[after] = state, name
                queue.append(after)
    return Found(len(came))
