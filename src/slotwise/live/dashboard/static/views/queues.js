// Queues: length, wait and forecast by type or tenant, now and over time. The history comes from the store.

import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "../vendor/uplot.js";
import { get, offers, withQuery } from "../api.js";
import { amount, number, percent, span, tick, when } from "../format.js";
import { setQuery } from "../route.js";
import { Choice, colours, html, palette, Problem, Table, useLoaded, useReady, useWidth, Waiting } from "../ui.js";

const WINDOWS = { "0.25": "15 minutes", 1: "1 hour", 6: "6 hours", 24: "24 hours", 168: "7 days", 720: "30 days" };
const POINTS = 120;
const WHOLE = Array.from({ length: 24 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3)); // distances of ticks of an axis that counts jobs
const LENGTHS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000]; // likewise, seconds
const LETTER = 7; // pixels: the width of a letter of an axis, at most

/** Let the legend tell the newest values, unless the pointer chooses others. */
const newest = (plot) => plot.setLegend({ idx: plot.data[0].length - 1 });

/** The width of an axis with these labels. */
const wide = (plot, labels) => 20 + LETTER * Math.max(4, ...(labels || []).map((one) => one.length));

function Chart({ title, times, series, names, format, steps, onDrawn }) {
  const box = useRef(null);
  const width = useWidth(box);
  const look = colours("text", "quiet", "line");
  useEffect(() => {
    if (!width || !box.current) return undefined;
    const colour = palette(names);
    const axis = { stroke: look.quiet, grid: { stroke: look.line, width: 1 }, ticks: { stroke: look.line } };
    const plot = new uPlot({
      width, height: 240, padding: [null, 34, null, null], cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      axes: [{ ...axis, space: 90, values: (_, at) => at.map((one) => tick(one, times[times.length - 1] - times[0])) }, { ...axis, size: wide, incrs: steps, values: (_, values) => values.map(format) }],
      legend: { live: true, markers: { fill: (_, at) => (at ? colour.get(series[at - 1].name) : null) } },
      hooks: { setCursor: [(plot) => { if (plot.cursor.idx == null) newest(plot); }] },
      series: [{ label: "at", value: (_, at) => (at == null ? "–" : when(at)) },
        ...series.map((one) => ({ label: one.name, stroke: colour.get(one.name), width: 2, spanGaps: true, value: (_, x) => (x == null ? "–" : format(x)) }))],
    }, [times, ...series.map((one) => one.values)], box.current);
    newest(plot);
    onDrawn();
    return () => plot.destroy();
  }, [width, series, look.text]);
  return html`<section class="chart"><h2>${title}</h2><div ref=${box} role="img" aria-label=${`${title} over time; the table above has the newest values`}></div></section>`;
}

/** When all waiting jobs of a queue should have started. */
function Forecast({ value }) {
  if (!value || value.p50 === null) return html`<span class="hint">not known yet</span>`;
  return html`<span title="in brackets: 8 times in 10">in ${span(value.p50)} <span class="hint">(${span(value.p10)} to ${value.p90 === null ? "not known" : span(value.p90)})</span></span>`;
}

/** How often the 80 % intervals of a queue's jobs held. */
const Held = ({ coverage }) => (coverage && coverage.of ? html`${percent(coverage.coverage)} <span class="hint">of ${number(coverage.of)}</span>` : "–");

function Types({ board, forecasts, coverage }) {
  const rows = Object.entries(board.queues).filter(([, [n, running]]) => n || running);
  if (!rows.length) return html`<p class="panel hint">No job waits and none runs.</p>`;
  return html`<${Table} label="Queues now" head=${["type", "waiting", "running", "oldest waits for", "last of them starts", "80 % intervals held"]}>
    ${rows.map(([name, [n, running, since]]) => html`<tr key=${name}><th scope="row"><a href=${`#/jobs?type=${encodeURIComponent(name)}&state=waiting`}>${name}</a></th><td class="num">${number(n)}</td><td class="num">${number(running)}</td>
      <td class="num">${since ? html`<span title=${`since ${when(since)}`}>${span(board.now - since)}</span>` : "–"}</td>
      <td>${n ? html`<${Forecast} value=${forecasts.get(name)} />` : "–"}</td><td class="num"><${Held} coverage=${coverage[name]} /></td></tr>`)}<//>`;
}

function Tenants({ rows }) {
  if (!rows.length) return html`<p class="panel hint">No job waits, or nothing is foreseen yet.</p>`;
  return html`<${Table} label="Waiting jobs of tenants now" head=${["tenant", "waiting", "last of them starts"]}>
    ${rows.map((one) => html`<tr key=${one.tenant}><th scope="row"><a href=${`#/jobs?tenant=${encodeURIComponent(one.tenant)}&state=waiting`}>${one.tenant}</a></th><td class="num">${number(one.waiting)}</td><td><${Forecast} value=${one} /></td></tr>`)}<//>`;
}

export function Queues({ board, route }) {
  const hours = Number(route.query.get("hours")) || 1;
  const end = Number(route.query.get("until")) || null;
  const by = route.query.get("by") === "tenant" ? "tenant" : "type";
  const { value, error } = useLoaded(
    () => get(withQuery("/v1/queues/history", { since: (end || Date.now() / 1000) - hours * 3600, until: end, points: POINTS, by })),
    [hours, by, end], end ? 0 : hours > 2 ? 60 : 10,
  );
  const move = (share) => setQuery(route, { until: Math.round((end || Date.now() / 1000) + share * hours * 3600) });
  const ahead = useLoaded(() => (offers("forecasts") ? get("/v1/forecasts?limit=1") : Promise.resolve(null)), [], 10);
  const drawn = useRef(false);
  const ready = () => { if (!drawn.current) { drawn.current = true; document.body.dataset.ready = ""; } };
  useReady(Boolean(value && !value.series.some((one) => one.arrivals.some(Boolean) || one.length.some(Boolean))) || error !== null);
  const forecasts = new Map(((ahead.value && ahead.value.queues) || []).map((one) => [one.type, one]));
  const drawing = useMemo(() => {
    const places = new Map(board.types.map((one, at) => [one.name, at]));
    const series = value ? value.series.filter((one) => one.arrivals.some(Boolean) || one.length.some(Boolean)) : [];
    series.sort((a, b) => (places.get(a.name) ?? 0) - (places.get(b.name) ?? 0));
    const lines = (values) => series.map((one) => ({ name: one.name, values: values(one) }));
    return {
      times: value ? Array.from({ length: POINTS }, (_, at) => value.since + (at + 1) * value.step) : [],
      names: by === "type" ? board.types.map((one) => one.name) : series.map((one) => one.name),
      lengths: lines((one) => one.length),
      waits: lines((one) => one.wait),
      starts: lines((one) => one.starts.map((n) => (60 * n) / value.step)),
    };
  }, [value]);
  const coverage = ahead.value && ahead.value.coverage && (ahead.value.coverage.all || ahead.value.coverage);
  return html`<div class="bar top"><h1>Queues</h1></div>
    ${by === "type" ? html`<${Types} board=${board} forecasts=${forecasts} coverage=${(ahead.value && ahead.value.coverage && ahead.value.coverage.by_type) || {}} />` : html`<${Tenants} rows=${(ahead.value && ahead.value.tenants) || []} />`}
    ${coverage && coverage.of ? html`<p class="hint">${percent(coverage.coverage)} of the last ${number(coverage.of)} starts lay within the 80 % interval that was forecast.</p>` : null}
    ${ahead.error ? html`<p class="hint">Forecasts: ${ahead.error.message}</p>` : null}
    <div class="bar"><${Choice} label="By" value=${by} options=${[["type", "type"], ["tenant", "tenant"]]} onChange=${(key) => setQuery(route, { by: key === "type" ? null : key })} />
      <label>Window <select value=${String(hours)} onChange=${(event) => setQuery(route, { hours: event.target.value })}>
        ${Object.entries(WINDOWS).sort((a, b) => a[0] - b[0]).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      <span class="pager"><button type="button" onClick=${() => move(-0.5)}>Earlier</button>
        <button type="button" disabled=${!end} onClick=${() => move(0.5)}>Later</button><button type="button" disabled=${!end} onClick=${() => setQuery(route, { until: null })}>Now</button></span></div>
    <${Problem} error=${error} />
    ${value && !drawing.lengths.length ? html`<p class="panel hint">No job was there in this window.</p>` : value ? html`
      <${Chart} title=${`Waiting jobs by ${by}`} ...${drawing} series=${drawing.lengths} steps=${WHOLE} format=${(x) => number(Math.round(x))} onDrawn=${ready} />
      <${Chart} title=${`Mean wait of started jobs by ${by}`} ...${drawing} series=${drawing.waits} steps=${LENGTHS} format=${span} onDrawn=${ready} />
      <${Chart} title=${`Starts a minute by ${by}`} ...${drawing} series=${drawing.starts} format=${amount} onDrawn=${ready} />`
      : html`<${Waiting} />`}`;
}
