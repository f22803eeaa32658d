// Queues: length, wait and forecast by type or tenant, now and over time. The history comes from the store.

import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "../vendor/uplot.js";
import { get, offers, withQuery } from "../api.js";
import { amount, number, percent, span, when } from "../format.js";
import { setQuery } from "../route.js";
import { Choice, colours, html, palette, Problem, Table, Time, useLoaded, useReady, useWidth, Waiting } from "../ui.js";

const WINDOWS = { "0.25": "15 minutes", 1: "1 hour", 6: "6 hours", 24: "24 hours", 168: "7 days", 720: "30 days" };
const POINTS = 120;

function Chart({ title, times, series, names, format, onDrawn }) {
  const box = useRef(null);
  const width = useWidth(box);
  const look = colours("text", "quiet", "line");
  useEffect(() => {
    if (!width || !box.current) return undefined;
    const colour = palette(names);
    const axis = { stroke: look.quiet, grid: { stroke: look.line, width: 1 }, ticks: { stroke: look.line } };
    const plot = new uPlot({
      width, height: 240, cursor: { drag: { x: true, y: false } },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      axes: [axis, { ...axis, size: 62, values: (_, values) => values.map(format) }],
      series: [{ label: "time", value: (_, at) => (at == null ? "–" : when(at)) },
        ...series.map((one) => ({ label: one.name, stroke: colour.get(one.name), width: 2, spanGaps: true, value: (_, x) => (x == null ? "–" : format(x)) }))],
    }, [times, ...series.map((one) => one.values)], box.current);
    onDrawn();
    return () => plot.destroy();
  }, [width, series, look.text]);
  return html`<section class="chart"><h2>${title}</h2><div ref=${box} role="img" aria-label=${`${title} over time; the table above has the newest values`}></div></section>`;
}

function Forecast({ value }) {
  if (!value) return html`<span>–</span>`;
  if (value.p50 === null) return html`<span class="hint">not known yet</span>`;
  return html`<span title=${`8 times in 10 between ${span(value.p10)} and ${span(value.p90)}`}>in ${span(value.p50)} <span class="hint">(${span(value.p10)} to ${span(value.p90)})</span></span>`;
}

export function Queues({ board, route }) {
  const hours = Number(route.query.get("hours")) || 1;
  const by = route.query.get("by") === "tenant" ? "tenant" : "type";
  const { value, error } = useLoaded(() => get(withQuery("/v1/queues/history", { since: Date.now() / 1000 - hours * 3600, points: POINTS, by })), [hours, by], hours > 2 ? 60 : 10);
  const ahead = useLoaded(() => (offers("forecasts") ? get("/v1/forecasts?limit=1") : Promise.resolve(null)), [], 10);
  const drawn = useRef(false);
  const ready = () => { if (!drawn.current) { drawn.current = true; document.body.dataset.ready = ""; } };
  useReady(Boolean(value && !value.series.length) || error !== null);
  const forecasts = new Map(((ahead.value && ahead.value.queues) || []).map((one) => [one.type, one]));
  const drawing = useMemo(() => {
    const series = value ? value.series.filter((one) => one.arrivals.some(Boolean) || one.length.some(Boolean)) : [];
    const lines = (values) => series.map((one) => ({ name: one.name, values: values(one) }));
    return {
      times: value ? Array.from({ length: POINTS }, (_, at) => value.since + (at + 1) * value.step) : [],
      names: by === "type" ? board.types.map((one) => one.name) : series.map((one) => one.name),
      lengths: lines((one) => one.length),
      waits: lines((one) => one.wait),
      starts: lines((one) => one.starts.map((n) => (60 * n) / value.step)),
    };
  }, [value]);
  const waiting = Object.entries(board.queues).filter(([, [n, running]]) => n || running);
  const coverage = ahead.value && ahead.value.coverage && (ahead.value.coverage.all || ahead.value.coverage);
  return html`<h1>Queues</h1>
    <${Table} label="Queues now" head=${["type", "waiting", "running", "oldest waits since", "queue of now is served"]}>
      ${waiting.map(([name, [n, running, since]]) => html`<tr key=${name}><th scope="row"><a href=${`#/jobs?type=${encodeURIComponent(name)}&state=waiting`}>${name}</a></th><td class="num">${number(n)}</td><td class="num">${number(running)}</td>
        <td>${since ? html`<${Time} at=${since} /> (${span(board.now - since)})` : "–"}</td><td>${n ? html`<${Forecast} value=${forecasts.get(name)} />` : "–"}</td></tr>`)}<//>
    ${coverage && coverage.of ? html`<p class="hint">80 % intervals held ${percent(coverage.coverage)} of the last ${number(coverage.of)} starts.</p>` : null}
    ${ahead.error ? html`<p class="hint">Forecasts: ${ahead.error.message}</p>` : null}
    <div class="bar"><${Choice} label="By" value=${by} options=${[["type", "type"], ["tenant", "tenant"]]} onChange=${(key) => setQuery(route, { by: key === "type" ? null : key })} />
      <label>Window <select value=${String(hours)} onChange=${(event) => setQuery(route, { hours: event.target.value })}>
        ${Object.entries(WINDOWS).sort((a, b) => a[0] - b[0]).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label></div>
    <${Problem} error=${error} />
    ${value ? html`
      <${Chart} title=${`Waiting jobs by ${by}`} ...${drawing} series=${drawing.lengths} format=${(x) => number(Math.round(x))} onDrawn=${ready} />
      <${Chart} title=${`Mean wait of started jobs by ${by}`} ...${drawing} series=${drawing.waits} format=${span} onDrawn=${ready} />
      <${Chart} title=${`Starts a minute by ${by}`} ...${drawing} series=${drawing.starts} format=${amount} onDrawn=${ready} />`
      : html`<${Waiting} />`}`;
}
