// The policy of the cluster, and changing it: what a change does is shown before it is applied.

import { useEffect, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { Confirm, html, Problem } from "../ui.js";

function Plan({ policy, onPlan }) {
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let over = false;
    setPlan(null);
    setError(null);
    onPlan(null);
    post("/v1/cluster/plan", { policy }).then(
      (found) => { if (!over) { setPlan(found); onPlan(found); } },
      (failed) => { if (!over) setError(failed); },
    );
    return () => { over = true; };
  }, [policy]);
  if (error) return html`<${Problem} error=${error} />`;
  if (!plan) return html`<p class="hint">Working out what would change …</p>`;
  return html`<h3>What this does</h3><pre class="effect">${plan.text || "Nothing differs from what runs."}</pre>`;
}

export function PolicyChange({ board, who }) {
  const [open, setOpen] = useState(false);
  const [names, setNames] = useState(null);
  const [policy, setPolicy] = useState("");
  const [plan, setPlan] = useState(null);
  useEffect(() => {
    if (open && !names) get("/v1/policies").then(setNames, () => setNames([]));
  }, [open]);
  const shown = html`<span class="policy">Policy <strong>${board.policy}</strong></span>`;
  if (who.role !== "operate") return shown;
  return html`${shown} <button type="button" onClick=${() => { setPolicy(""); setOpen(true); }}>Change the policy …</button>
    ${open ? html`<${Confirm} title="Change the policy" action="Apply" ready=${Boolean(plan && plan.plan)} onClose=${() => setOpen(false)}
      onDo=${() => post("/v1/cluster/apply", { policy, plan: plan.plan })}>
      <p>Running jobs go on. The new policy decides about all jobs that wait.</p>
      <label class="stacked">New policy <select value=${policy} onChange=${(event) => setPolicy(event.target.value)}>
        <option value="">choose one</option>
        ${(names || []).filter((one) => one.name !== board.policy).map((one) => html`<option value=${one.name}>${one.name}: ${one.summary}</option>`)}</select></label>
      ${policy ? html`<${Plan} policy=${policy} onPlan=${setPlan} />` : null}<//>` : null}`;
}
