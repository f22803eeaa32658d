"""M14, MaxWeight at local refresh times (a reconstruction), as a policy. The kernels are those of Algorithm 1, in `slots`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from slotwise.core import state as st
from slotwise.core.contract.claims import PolicyClaim, Unknown
from slotwise.core.contract.policy import SolverOptions
from slotwise.core.contract.reasons import Because, Reason
from slotwise.core.contract.view import View
from slotwise.policies.paper.algorithm1 import SlotPolicy


class M14Options(SolverOptions):
    """Options of M14."""

    weights: Literal["queue", "log"] = Field("queue", description="weigh a type by Q, or by log(1 + Q)")
    queues: Literal["central", "own"] = Field(
        "central", description="common queues, or one per server joined by the shortest-queue rule"
    )


class M14(SlotPolicy):
    """Maguluri & Srikant's MaxWeight with configurations renewed at local refresh times (a reconstruction)."""

    name = "m14"
    summary = "MaxWeight at local refresh times: a configuration is kept until the server is empty (reconstruction)"
    Options = M14Options

    @property
    def own_queues(self) -> bool:
        return bool(self.options.queues == "own")

    @property
    def log_weights(self) -> bool:
        return bool(self.options.weights == "log")

    def claim(self) -> PolicyClaim:
        return Unknown(
            "refreshing each server on its own has no guarantee, and is unstable in the paper's example 1 (intensity"
            " 0.89); the proof of Maguluri and Srikant 2014 needs all servers empty at once",
            "section 3, remark 2",
        )

    def why_waits(self, view: View, i: int) -> Because:
        if self.own_queues:
            server, j = int(view.store.arrays["jobs"][i, st.QUEUE]) // len(view.types), view.type_of(i)
            if server in view.server_of:
                slots, taken = int(view.store.configuration[server, j]), int(view.store.running[server, j])
                name = view.server_of[server]
                return Because(Reason.OWN_QUEUE, {"server": name, "slots": slots, "taken": taken})
        return super().why_waits(view, i)
