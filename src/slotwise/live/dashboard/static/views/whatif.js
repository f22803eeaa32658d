// What if: the next hours under another cluster, policy or load, beside going on as now; and what keeps free capacity from being used.

import { useEffect, useState } from "preact/hooks";
import { get, offers, post, withQuery } from "../api.js";
import { amount, amounts, changeOfWaits, percent, span } from "../format.js";
import { html, JobLink, Problem, ServerLink, Table, useLoaded, useReady, Waiting } from "../ui.js";

const LISTED = 15; // servers of the advice
const HOLDERS = 4; // jobs that are named for each of them
const EMPTY = { add: "", addCount: 1, remove: "", removeCount: 1, drain: "", policy: "", type: "", rate: 1.5, tenant: "", part: 50, hours: 2 };

function body(form) {
  const asked = { hours: Number(form.hours) };
  if (form.add) asked.add = { [form.add]: Number(form.addCount) };
  if (form.remove) asked.remove = { [form.remove]: Number(form.removeCount) };
  if (form.drain) asked.drain = [form.drain];
  if (form.policy) asked.policy = form.policy;
  if (form.type) asked.rate = { [form.type]: Number(form.rate) };
  if (form.tenant) asked.share = { [form.tenant]: Number(form.part) / 100 };
  return asked;
}

/** A figure with its interval. */
const Between = ({ of, format }) => (of ? html`<span>${format(of.p50)} <span class="hint">(${format(of.p10)} to ${format(of.p90)})</span></span>` : html`<span>–</span>`);

function Compared({ found }) {
  if (!found.now || !found.then) return html`<section class="panel"><p>Not known yet${found.reason ? `: ${found.reason.replace(/^not known (yet|now): /, "")}` : ""}.</p></section>`;
  const { now, then } = found;
  const names = [...new Set([...Object.keys(now.types || {}), ...Object.keys(then.types || {})])];
  const tenants = [...new Set([...Object.keys(now.tenants || {}), ...Object.keys(then.tenants || {})])];
  const row = (title, one, two, format) => html`<tr><th scope="row">${title}</th><td><${Between} of=${one} format=${format} /></td><td><${Between} of=${two} format=${format} /></td></tr>`;
  const used = Object.keys(now.utilisation || {});
  const change = found.change && found.change.wait;
  return html`<section class="panel"><h2>Side by side, over the next ${span(found.hours * 3600)}</h2>
    ${found.hours < found.asked ? html`<p class="hint">More jobs come than can be run ahead for ${span(found.asked * 3600)}, so the window is shorter.</p>` : null}
    ${change ? html`<p>Mean waits become <strong class=${change.p50 > 0 ? "up" : "downward"}>${changeOfWaits(change)}</strong>.</p>` : null}
    <${Table} label=${`From ${found.runs ?? "several"} runs of each; in brackets the range of 8 in 10 runs`} head=${["", "going on as now", "with the change"]}>
      ${row("waiting jobs, mean", now.queue && now.queue.mean, then.queue && then.queue.mean, amount)}${row("waiting jobs at the end", now.queue && now.queue.end, then.queue && then.queue.end, amount)}
      ${row("starved jobs", now.starved, then.starved, amount)}
      ${used.map((name) => row(`${name} in use`, now.utilisation[name], (then.utilisation || {})[name], percent))}
      ${row("headroom", now.headroom, then.headroom, percent)}
      ${names.map((name) => row(`wait of ${name}`, (now.types[name] || {}).wait, (then.types[name] || {}).wait, span))}
      ${tenants.map((name) => row(`wait of tenant ${name}`, (now.tenants[name] || {}).wait, (then.tenants[name] || {}).wait, span))}<//></section>`;
}

function Advice() {
  const { value, error } = useLoaded(() => (offers("advice") ? get("/v1/advice") : Promise.resolve(null)), [], 30);
  let shown;
  if (!offers("advice")) shown = html`<p class="hint">This service gives no such advice.</p>`;
  else if (error) shown = html`<p class="hint">${error.message}</p>`;
  else if (!value) shown = html`<p class="hint">Loading …</p>`;
  else {
    shown = html`<p>Free: ${amounts(value.free)}. Of that no waiting or usual job can use ${amounts(value.unusable)}.</p>
      ${(value.servers || []).length ? html`<${Table} label="Servers whose free capacity is of no use now" head=${["server", "unusable", "held by jobs", "until (likely)", "fits then"]}>
        ${value.servers.slice(0, LISTED).map((one) => html`<tr key=${one.server}><th scope="row"><${ServerLink} name=${one.server} /></th><td>${amounts(one.unusable)}</td><td>${one.jobs.slice(0, HOLDERS).map((id) => html`<${JobLink} id=${id} /> `)}${one.jobs.length > HOLDERS ? html`<span class="hint">and ${one.jobs.length - HOLDERS} more</span>` : null}</td><td>${one.until ? `in ${span(one.until.p50)}` : "–"}</td><td>${one.fits_then || "–"}</td></tr>`)}<//>${value.servers.length > LISTED ? html`<p class="hint">And ${value.servers.length - LISTED} more servers like these.</p>` : null}` : null}
      ${(value.drains || []).length ? html`<${Table} label="What a drain would free" head=${["drain", "for type", "the first fits after (likely)", "fit when it is empty"]}>
        ${value.drains.slice(0, 10).map((one) => html`<tr key=${`${one.server} ${one.type}`}><th scope="row"><${ServerLink} name=${one.server} /></th><td>${one.type}</td><td>${one.after ? span(one.after.p50) : "–"}</td><td class="num">${one.gains}</td></tr>`)}<//>` : null}`;
  }
  return html`<section class="panel"><h2>Free capacity that nothing can use</h2><p class="hint">Nothing is moved: this only says what is held, by what, and until when.</p>${shown}</section>`;
}

/** One change that may be made, as a line of the form; it stands out when it is chosen. */
const Change = ({ title, on, children }) => html`<div class=${on ? "change change-on" : "change"}><span class="change-title">${title}</span><span class="change-fields">${children}</span></div>`;
const Count = ({ label, of, set }) => html`<input aria-label=${label} type="number" min="1" max="10000" value=${of} onInput=${set} />`;

export function WhatIf({ board }) {
  const [form, setForm] = useState(EMPTY);
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [policies, setPolicies] = useState([]);
  useEffect(() => { get("/v1/policies").then(setPolicies, () => setPolicies([])); }, []);
  const [tenants, setTenants] = useState([]);
  useEffect(() => { get(withQuery("/v1/queues/history", { by: "tenant", points: 2 })).then((all) => setTenants(all.series.map((one) => one.name)), () => setTenants([])); }, []);
  useReady(true);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const asked = body(form);
  const nothing = Object.keys(asked).length === 1;
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      setFound({ ...await post("/v1/whatif", asked), asked: asked.hours });
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const classes = board.classes.map((one) => html`<option value=${one.name}>${one.name}</option>`);
  return html`<div class="bar top"><h1>What if</h1></div><p class="hint">Runs the cluster forward from this moment, as it is and with the change. Nothing is changed.</p>
    <section class="panel"><form class="changes" onSubmit=${run}>
      <${Change} title="Add servers" on=${form.add}><${Count} label="how many to add" of=${form.addCount} set=${set("addCount")} /> of class
        <select aria-label="Add servers of class" value=${form.add} onChange=${set("add")}><option value="">none</option>${classes}</select><//>
      <${Change} title="Remove servers" on=${form.remove}><${Count} label="how many to remove" of=${form.removeCount} set=${set("removeCount")} /> of class
        <select aria-label="Remove servers of class" value=${form.remove} onChange=${set("remove")}><option value="">none</option>${classes}</select><//>
      <${Change} title="Drain a server" on=${form.drain}><input aria-label="Drain the server" list="servers" value=${form.drain} placeholder="none" onInput=${set("drain")} /><//>
      <datalist id="servers">${board.names.slice(0, 500).map((name) => html`<option value=${name}></option>`)}</datalist>
      <${Change} title="Another policy" on=${form.policy}><select aria-label="Policy" value=${form.policy} onChange=${set("policy")}><option value="">${board.policy} (as now)</option>
        ${policies.filter((one) => one.name !== board.policy).map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select><//>
      <${Change} title="Another load" on=${form.type}><input aria-label="times as many" type="number" min="0" max="100" step="0.1" value=${form.rate} onInput=${set("rate")} /> × jobs of type
        <select aria-label="More or fewer jobs of type" value=${form.type} onChange=${set("type")}><option value="">none</option>${board.types.map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select><//>
      <${Change} title="Another share" on=${form.tenant}><input aria-label="percent of the cluster" type="number" min="1" max="99" value=${form.part} onInput=${set("part")} /> % for tenant
        <input aria-label="The tenant with this share" list="tenants" value=${form.tenant} placeholder="none" onInput=${set("tenant")} /><//>
      <datalist id="tenants">${tenants.map((name) => html`<option value=${name}></option>`)}</datalist>
      <${Change} title="Look ahead" on="yes"><input aria-label="Over the next hours" type="number" min="0.1" max="168" step="0.1" value=${form.hours} onInput=${set("hours")} /> hours<//>
      <div class="change-run"><button type="submit" class="primary" disabled=${busy || nothing || !offers("whatif")}>${busy ? "Running …" : "Run both"}</button>
        ${offers("whatif") ? nothing && html`<span class="hint">Choose at least one change.</span>` : html`<span class="hint">This service does not run forward.</span>`}</div>
    </form><${Problem} error=${error} /></section>
    ${busy ? html`<section class="panel" aria-busy="true"><${Waiting} what="Running forward, as it is and with the change" /></section>` : found ? html`<${Compared} found=${found} />` : null}<${Advice} />`;
}
