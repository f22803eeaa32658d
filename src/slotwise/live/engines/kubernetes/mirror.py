"""What the API server has told, as one picture, and what that means for the scheduler.

No network, no thread, no clock: pods and nodes are put in as they are seen, in any order and as often as they come, and `facts` says what is new
for the service. The picture is the whole truth about a node's use: whatever is bound to the node and was not placed by this service is foreign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from slotwise.live.engines.kubernetes.capacities import LEVELS, Capacity, level_for, rounded
from slotwise.live.engines.kubernetes.nodes import Node
from slotwise.live.engines.kubernetes.pods import EXIT_DELETED, AntiAffinity, Pod
from slotwise.live.engines.kubernetes.selectors import Constraint, labels_of, requires, unmet
from slotwise.live.engines.protocol import (
    Arrived,
    Attempt,
    Ended,
    Fact,
    Refused,
    ServerDrained,
    ServerRemoved,
    ServersChanged,
    ServerUp,
    Started,
    Withdrawn,
)
from slotwise.model.labels import matches

ALWAYS = ("cpu", "memory", "pods")
GONE = "the node was deleted"
OVERFULL = "pods of other schedulers hold its capacity"
MOST_REFERRED = 32  # constraints of pods that have been bound are remembered up to this number; each may split a class of servers


@dataclass
class PlacedPod:
    """A pod that the service has placed."""

    job: int
    attempt: int
    server: str
    demand: Capacity
    started: bool = False


@dataclass
class Told:
    """What the service knows of a node."""

    up: ServerUp
    closed: str = ""


class Mirror:
    """Pods and nodes as they were last seen, and what the service was told of them."""

    def __init__(self, scheduler: str, resources: Sequence[str] = ALWAYS) -> None:
        self.scheduler, self.resources = scheduler, tuple(resources)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.live: dict[str, PlacedPod] = {}
        self.uids: dict[Attempt, str] = {}
        self.reasons: dict[str, str] = {}  # of pods that wait and were not handed to the scheduler, by uid
        self.handed: set[str] = set()
        self._on_node: dict[str, set[str]] = {}  # pods that hold capacity, by node
        self._placed_on: dict[str, set[str]] = {}  # pods that the service has placed, by node
        self._keepers: dict[str, Pod] = {}  # pods that keep others out, by uid
        self._referred: dict[Constraint, None] = {}
        self._told: dict[str, Told] = {}
        self._kinds: Counter[tuple[object, object]] = Counter()  # capacities and labels that were told
        self._level = 0
        self._retold: set[str] = set()  # pods that are handed over once more
        self._dirty_pods: dict[str, Pod | None] = {}  # with the last state of those that are gone
        self._dirty_nodes: set[str] = set()
        self._relabelled = False  # whether a pod refers to labels that nodes were told without
        self._look_again = False  # whether pods that were not handed over may fit now

    # -- what the API server tells ----------------------------------------------------------------------------------

    def see_pod(self, pod: Pod) -> None:
        """Take in a pod; the same state twice changes nothing."""
        old = self.pods.get(pod.uid)
        if old == pod:
            return
        if old is not None and old.ended and not pod.ended:
            return  # a state from before its end, told late
        self.pods[pod.uid] = pod
        self._index(old, pod)
        if pod.scheduler == self.scheduler:
            self._dirty_pods[pod.uid] = None

    def drop_pod(self, uid: str, last: Pod | None = None) -> None:
        """A pod is gone; `last` is its last state, if that was told."""
        old = self.pods.pop(uid, None)
        if old is None:
            return
        self._index(old, None)
        if old.scheduler == self.scheduler:
            self._dirty_pods[uid] = last or old

    def see_node(self, node: Node) -> None:
        """Take in a node."""
        old = self.nodes.get(node.name)
        if old != node:
            self.nodes[node.name] = node
            self._dirty_nodes.add(node.name)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        if self.nodes.pop(name, None) is not None:
            self._dirty_nodes.add(name)

    def list_pods(self, pods: Iterable[Pod], of: bool) -> None:
        """Take in all pods of our scheduler (`of`), or all others: what is not among them is gone."""
        found = {pod.uid: pod for pod in pods}
        mine = [uid for uid, pod in self.pods.items() if (pod.scheduler == self.scheduler) == of]
        for uid in mine:
            if uid not in found:
                self.drop_pod(uid)
        for pod in found.values():
            self.see_pod(pod)

    def list_nodes(self, nodes: Iterable[Node]) -> None:
        """Take in all nodes: what is not among them is gone."""
        found = {node.name: node for node in nodes}
        for name in [name for name in self.nodes if name not in found]:
            self.drop_node(name)
        for node in found.values():
            self.see_node(node)

    def retell(self) -> None:
        """Tell again of every pod that waits: the service ignores what it knows. Forget labels to which no waiting pod refers if there are many."""
        if len(self._referred) > MOST_REFERRED:
            self._referred = {one: None for pod in self.pods.values() for one in pod.constraints}
            self._dirty_nodes.update(self.nodes)
        for uid, pod in self.pods.items():
            if pod.scheduler == self.scheduler and not pod.node and uid not in self.live:
                self._retold.add(uid)
                self._dirty_pods[uid] = None

    def _index(self, old: Pod | None, new: Pod | None) -> None:
        """Keep what is known by node."""
        for pod in (old, new):
            if pod is not None and pod.node and not self._as_placed(pod):
                self._dirty_nodes.add(pod.node)
        if old is not None and old.holds:
            self._on_node.get(old.node, set()).discard(old.uid)
            if self._keepers.pop(old.uid, None) is not None:
                self._look_again = True
        if new is not None and new.holds:
            self._on_node.setdefault(new.node, set()).add(new.uid)
            if new.keeps_out:
                self._keepers[new.uid] = new

    def _as_placed(self, pod: Pod) -> bool:
        """Return whether a pod holds what the service has placed, where it has placed it."""
        held = self.live.get(pod.uid)
        return held is not None and held.server == pod.node and held.demand == pod.demand

    # -- use of nodes -----------------------------------------------------------------------------------------------

    def foreign(self, name: str) -> dict[str, Decimal]:
        """Return what pods that the service has not placed hold of a node, and what its own hold beyond their demands."""
        total: dict[str, Decimal] = {}
        for uid in self._on_node.get(name, ()):
            held = self.live.get(uid)
            mine = held.demand if held is not None and held.server == name else {}
            for resource, amount in self.pods[uid].demand.items():
                more = amount - mine.get(resource, Decimal(0))
                if more > 0:
                    total[resource] = total.get(resource, Decimal(0)) + more
        return total

    def held(self, name: str) -> dict[str, Decimal]:
        """Return what pods that the service has placed hold of a node, bound or about to be."""
        total: dict[str, Decimal] = {}
        for uid in self._placed_on.get(name, ()):
            for resource, amount in self.live[uid].demand.items():
                total[resource] = total.get(resource, Decimal(0)) + amount
        return total

    def left(self, name: str) -> dict[str, Decimal]:
        """Return what a node has beside what pods of others hold."""
        node, foreign = self.nodes[name], self.foreign(name)
        return {
            resource: amount - foreign.get(resource, Decimal(0)) for resource, amount in node.allocatable.items()
        }

    def why_not(self, pod: Pod, name: str) -> str:
        """Return why a pod cannot be bound to a node now; "" if it can be. Capacity is counted with the pod's own placement."""
        node = self.nodes.get(name)
        if node is None:
            return GONE
        if node.closed:
            return node.closed
        lacking = unmet(pod.constraints, node.facts)
        if lacking:
            return f"node {name} does not meet: {'; '.join(lacking)}"
        left, held = self.left(name), self.held(name)
        own = {} if pod.uid in self.live else pod.demand
        for resource in pod.demand:
            wanted = held.get(resource, Decimal(0)) + own.get(resource, Decimal(0))
            if wanted > left.get(resource, Decimal(0)):
                return f"{OVERFULL}: {resource}"
        return ""

    def kept_out(self, pod: Pod, name: str | None = None) -> str:
        """Return which pod keeps this pod out of a node, by required anti-affinity; with no node, out of any."""
        for uid, other in self._keepers.items():
            for term in other.keeps_out:
                if (
                    uid != pod.uid
                    and term.excludes(pod.namespace, pod.labels or {})
                    and self._near(term, other, name)
                ):
                    return f"pod {other.full_name} on {other.node} has required anti-affinity against it"
        return ""

    def _near(self, term: AntiAffinity, other: Pod, name: str | None) -> bool:
        if name is None:
            return True
        mine, theirs = self.nodes.get(name), self.nodes.get(other.node)
        if mine is None or theirs is None:
            return name == other.node
        value = theirs.facts.labels.get(term.topology)
        return value is not None and mine.facts.labels.get(term.topology) == value

    # -- what the service does --------------------------------------------------------------------------------------

    def place(self, key: Attempt, uid: str, server: str, demand: Capacity) -> Pod | Fact:
        """Take note of a placement. Return the pod, which is to be bound unless it is; or what has become of it."""
        pod = self.pods.get(uid)
        gone = Ended(*key, EXIT_DELETED, 0.0, "the pod was deleted", by_user=True)
        if pod is None or (pod.deleting and not pod.node):
            return gone
        if pod.node not in ("", server):
            return gone._replace(reason=f"the pod was bound to {pod.node} by another scheduler")
        self.release(uid)
        self.live[uid] = PlacedPod(*key, server, demand)
        self._placed_on.setdefault(server, set()).add(uid)
        self.uids[key] = uid
        self.handed.add(uid)
        if pod.node:
            self._dirty_nodes.add(server)
            self._dirty_pods[uid] = None
        return pod

    def release(self, uid: str) -> PlacedPod | None:
        """Forget a placement."""
        held = self.live.pop(uid, None)
        if held is not None:
            self.uids.pop((held.job, held.attempt), None)
            self._placed_on[held.server].discard(uid)
            self._dirty_nodes.add(held.server)
        return held

    def refuse(self, uid: str, reason: str) -> list[Fact]:
        """Take a placement back because its node cannot take the pod. The server is drained first, so the job is not placed there again."""
        held = self.release(uid)
        if held is None:
            return []
        told = self._told.get(held.server)
        facts: list[Fact] = []
        if told is not None:
            if not told.closed:
                facts.append(ServerDrained(held.server, reason))
            told.closed = reason
        return [*facts, Refused(held.job, held.attempt, reason)]

    def hold(self, uid: str, reason: str) -> list[Fact]:
        """Take a placement back because the pod cannot be bound anywhere now; it is handed over again when something changes."""
        held = self.release(uid)
        if held is None:
            return []
        self.handed.discard(uid)
        self.reasons[uid] = reason
        return [Ended(held.job, held.attempt, EXIT_DELETED, 0.0, reason, by_user=True)]

    # -- what is new ------------------------------------------------------------------------------------------------

    def servers(self) -> list[ServerUp]:
        """Return the nodes that take pods, as servers; from now on they count as told."""
        self._dirty_nodes.update(self.nodes)
        self.refer(pod for pod in self.pods.values() if pod.scheduler == self.scheduler)
        self._level = level_for(self._exact(), self._level)
        self.node_facts()
        return [one.up for one in self._told.values() if not one.closed]

    def shape(self) -> list[ServerUp]:
        """Return all nodes as servers, whatever their states."""
        self._level = level_for(self._exact(), self._level)
        return [self._as_server(name) for name in self.nodes]

    def refer(self, pods: Iterable[Pod]) -> None:
        """Give nodes the labels that these pods refer to."""
        for pod in pods:
            for one in pod.constraints:
                if one not in self._referred:
                    self._referred[one] = None
                    self._relabelled = True
                    self._dirty_nodes.update(self.nodes)

    def facts(self, *, patient: bool = False) -> list[Fact]:
        """Return what is new since the last call, in an order that makes sense to the service.

        With `patient`, changes of capacity wait for a later call: each call with such changes costs the service a new plan.
        """
        ended = self._end_facts()
        fresh = [self.pods[uid] for uid in self._dirty_pods if uid in self.pods]
        self.refer(fresh)
        facts = [*ended, *self.node_facts(patient=patient and not self._relabelled)]
        self._relabelled = False
        if self._look_again:
            self._look_again = False
            fresh += [self.pods[uid] for uid in self.reasons if uid in self.pods and uid not in self._dirty_pods]
        self._dirty_pods.clear()
        for pod in sorted(fresh, key=lambda pod: (-pod.priority, pod.created, pod.full_name)):
            facts += self._arrival(pod)
        return facts

    def _end_facts(self) -> list[Fact]:
        """Return starts, ends and withdrawals of pods that have changed."""
        facts: list[Fact] = []
        for uid, last in self._dirty_pods.items():
            pod, held = self.pods.get(uid), self.live.get(uid)
            if held is not None:
                facts += self._of_live(pod, last, held, uid)
            elif uid in self.handed and (pod is None or pod.node or pod.ended or pod.deleting):
                self.handed.discard(uid)
                known = pod or last
                facts.append(Withdrawn(uid, known.namespace if known is not None else ""))
            if pod is None:
                self.reasons.pop(uid, None)
                self._retold.discard(uid)
        return facts

    def _of_live(self, pod: Pod | None, last: Pod | None, held: PlacedPod, uid: str) -> list[Fact]:
        key = held.job, held.attempt
        if pod is None:
            code = last.exit_code if last is not None and last.ended else EXIT_DELETED
            reason = last.reason if last is not None and last.ended else "the pod was deleted"
            by_user = not (last is not None and last.ended)
            end = Ended(*key, code, 0.0, reason, last.started if last else None, by_user)
        elif pod.ended:
            end = Ended(*key, pod.exit_code, 0.0, pod.reason, pod.started)
        elif pod.deleting and not pod.node:
            end = Ended(*key, EXIT_DELETED, 0.0, "the pod was deleted", by_user=True)
        elif pod.node not in ("", held.server):
            reason = f"the pod was bound to {pod.node} by another scheduler"
            end = Ended(*key, EXIT_DELETED, 0.0, reason, by_user=True)
        elif pod.node and pod.phase == "Running" and not held.started:
            held.started = True
            return [Started(*key, pod.started or 0.0)]
        else:
            return []
        self.release(uid)
        self.handed.discard(uid)
        return [end]

    def _arrival(self, pod: Pod) -> list[Fact]:
        """Return the arrival of a pod that waits, unless something is in the way, which is kept in `reasons`."""
        uid = pod.uid
        if pod.node or pod.ended or pod.deleting or uid in self.live:
            self.reasons.pop(uid, None)
            return []
        if uid in self.handed and uid not in self._retold:
            return []
        self._retold.discard(uid)
        reason = self._in_the_way(pod)
        if reason:
            self.reasons[uid] = reason
            return []
        self.reasons.pop(uid, None)
        self.handed.add(uid)
        spec = {
            "tenant": pod.namespace,
            "needs": {name: float(amount) for name, amount in pod.demand.items()},
            "requires": requires(pod.constraints),
            "name": pod.full_name,
            "body": json.dumps(
                {
                    "argv": [f"(pod {pod.full_name})"],
                    "kubernetes": {"uid": uid, "namespace": pod.namespace, "name": pod.name},
                    "needs": {name: float(amount) for name, amount in pod.demand.items()},
                }
            ),
        }
        return [Arrived(uid, spec, again=True)]

    def _in_the_way(self, pod: Pod) -> str:
        """Return why a pod is not handed to the scheduler; "" if nothing is in the way."""
        if pod.gates:
            return f"scheduling gates: {', '.join(pod.gates)}"
        if pod.unsupported:
            return f"this scheduler cannot honour it: {'; '.join(pod.unsupported)}"
        unknown = sorted(set(pod.demand) - set(self.resources))
        if unknown:
            return f"no node offered {', '.join(unknown)} when the service first started"
        kept_out = self.kept_out(pod)
        if kept_out:
            return kept_out
        wanted, needs = requires(pod.constraints), pod.demand
        fitting = [labels for _, labels in self._kinds if matches(wanted, dict(labels))]  # type: ignore[call-overload]
        if not fitting:
            shown = "; ".join(unmet_in_words(pod))
            return f"none of {len(self._told)} nodes meets: {shown}"
        for capacity, labels in self._kinds:
            if labels in fitting and all(
                dict(capacity).get(name, Decimal(0)) >= amount  # type: ignore[call-overload]
                for name, amount in needs.items()
            ):
                return ""
        shown = ", ".join(f"{name} {amount:f}" for name, amount in needs.items() if name != "pods")
        return f"no node that meets its constraints has {shown} beside what other pods hold"

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _exact(self) -> list[dict[str, Decimal]]:
        return [self._known(self.left(name)) for name in self.nodes]

    def _known(self, capacity: Capacity) -> dict[str, Decimal]:
        return {name: max(Decimal(0), capacity.get(name, Decimal(0))) for name in self.resources}

    def _as_server(self, name: str) -> ServerUp:
        capacity = rounded(self._known(self.left(name)), LEVELS[self._level])
        return ServerUp(
            name,
            {resource: float(amount) for resource, amount in capacity.items()},
            labels_of(self.nodes[name].facts, self._referred),
        )

    def node_facts(self, *, patient: bool = False) -> list[Fact]:
        """Return what is new about nodes. With `patient`, nodes whose capacity has changed are left for a later call."""
        if not self._dirty_nodes:
            return []
        names, self._dirty_nodes = sorted(self._dirty_nodes), set()
        facts, changed = self._compare(names, patient=patient)
        if changed and len({capacity for capacity, _ in self._kinds}) > 1:
            level = level_for(self._exact(), self._level)
            if level != self._level:
                self._level = level
                more, also = self._compare(sorted(self.nodes), patient=False)
                facts, changed = facts + more, changed | also
        if changed:
            facts.append(ServersChanged(tuple(self._told[name].up for name in sorted(changed))))
        return facts

    def _compare(self, names: Iterable[str], *, patient: bool) -> tuple[list[Fact], set[str]]:
        """Return facts about these nodes, and those whose capacity or labels differ from what was told."""
        facts: list[Fact] = []
        changed: set[str] = set()
        for name in names:
            told, node = self._told.get(name), self.nodes.get(name)
            if node is None:
                facts += self._node_gone(name, told)
                continue
            up = self._as_server(name)
            closed = node.closed or self._overfull(name, up)
            if told is None:
                if not closed:
                    self._tell(name, up)
                    facts.append(up)
                continue
            if closed:
                if not told.closed:
                    facts.append(ServerDrained(name, closed))
                told.closed = closed
            elif up != told.up:
                if patient:
                    self._dirty_nodes.add(name)
                    continue
                self._tell(name, up)
                changed.add(name)
            elif told.closed:
                told.closed = ""
                facts.append(up)
        return facts, changed

    def _node_gone(self, name: str, told: Told | None) -> list[Fact]:
        if told is None:
            return []
        if not self._placed_on.get(name):
            self._placed_on.pop(name, None)
            self._untell(name)
            return [ServerDrained(name, GONE), ServerRemoved(name)]
        facts: list[Fact] = [] if told.closed == GONE else [ServerDrained(name, GONE)]
        told.closed = GONE
        return facts

    def _overfull(self, name: str, up: ServerUp) -> str:
        """Return why a node takes no pods although it is open: what was placed there already needs more than is left."""
        for resource, amount in self.held(name).items():
            if resource in up.capacity and float(amount) > up.capacity[resource]:
                return f"{OVERFULL}: {resource}"
        return ""

    def _tell(self, name: str, up: ServerUp) -> None:
        self._untell(name)
        self._told[name] = Told(up)
        self._kinds[kind_of(up)] += 1
        self._look_again = True

    def _untell(self, name: str) -> None:
        told = self._told.pop(name, None)
        if told is not None:
            kind = kind_of(told.up)
            self._kinds[kind] -= 1
            if not self._kinds[kind]:
                del self._kinds[kind]


def kind_of(up: ServerUp) -> tuple[object, object]:
    """Return capacity and labels as a key."""
    return tuple((name, Decimal(repr(value))) for name, value in up.capacity.items()), tuple(
        sorted(up.labels.items())
    )


def unmet_in_words(pod: Pod) -> list[str]:
    """Return the constraints of a pod in words."""
    return [f"{key} = {' or '.join(values)}" for key, values in requires(pod.constraints).items()]
