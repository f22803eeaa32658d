// Usage: who used how much in a period, from what the store keeps.

import { get, withQuery } from "../api.js";
import { amount, number, span } from "../format.js";
import { setQuery } from "../route.js";
import { html, Problem, Said, Table, Time, useLoaded, useReady, Waiting } from "../ui.js";

const PERIODS = { 1: "1 hour", 24: "24 hours", 168: "7 days", 720: "30 days", all: "all that is kept" };
const KEYS = [["tenant", "tenant"], ["type", "type"], ["user", "user"], ["state", "state"]];

const codes = (found) => Object.entries(found).map(([code, n]) => `${code}: ${number(n)}`).join(", ") || "–";

export function Usage({ route }) {
  const asked = route.query.get("hours");
  const hours = asked in PERIODS ? asked : "24";
  const by = (route.query.get("by") ?? "tenant").split(",").filter((key) => KEYS.some(([one]) => one === key));
  const since = () => (hours === "all" ? null : Date.now() / 1000 - Number(hours) * 3600);
  const { value, error } = useLoaded(() => get(withQuery("/v1/usage", { by: by.join(",") || ",", since: since() })), [hours, by.join(",")], 60);
  useReady(value !== null || error !== null);
  const toggle = (key) => setQuery(route, { by: (by.includes(key) ? by.filter((one) => one !== key) : [...by, key]).join(",") || "none" });
  const resources = value ? [...new Set(value.rows.flatMap((row) => Object.keys(row.hours)))] : [];
  return html`<div class="bar top"><h1>Usage</h1></div>
    <div class="bar"><div class="choice" role="group" aria-label="By"><span class="choice-label" aria-hidden="true">By</span>
      ${KEYS.map(([key, text]) => html`<button type="button" aria-pressed=${String(by.includes(key))} onClick=${() => toggle(key)}>${text}</button>`)}</div>
      <label>Period <select value=${hours} onChange=${(event) => setQuery(route, { hours: event.target.value })}>
        ${Object.entries(PERIODS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label></div>
    <${Problem} error=${error} />
    ${!value ? html`<${Waiting} error=${error} />` : !value.rows.length ? html`<p class="panel hint">No job was there in this period.</p>` : html`
      <${Table} label="Resource-hours, jobs, waits and exit codes" head=${[...value.by, ...resources.map((one) => `${one} h`), "started", "ended", "retried", "mean wait", "median", "95 %", "exit codes"]}>
        ${value.rows.map((row) => html`<tr key=${Object.values(row.group).join("\n")}>
          ${value.by.map((key) => html`<td class="break"><${Said} text=${row.group[key] || "–"} /></td>`)}
          ${resources.map((one) => html`<td class="num">${amount(row.hours[one] || 0)}</td>`)}
          <td class="num">${number(row.started)}</td><td class="num">${number(row.ended)}</td><td class="num">${number(row.retried)}</td>
          ${["mean", "p50", "p95"].map((one) => html`<td class="num">${row.wait ? span(row.wait[one]) : "–"}</td>`)}
          <td>${codes(row.exit_codes)}</td></tr>`)}<//>`}
    ${value ? html`<p class="hint">From <${Time} at=${value.since} /> to <${Time} at=${value.until} />. The store keeps ended jobs for ${span(value.keep_days * 86400)}${value.complete ? "" : html`
      and has none that ended before <${Time} at=${value.kept_since} />: the period is not complete`}.${" "}
      <code>slotwise usage --csv</code> prints the same for a spreadsheet.</p>` : null}`;
}
