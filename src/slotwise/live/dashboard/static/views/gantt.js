// Jobs on servers over time, as bars on one canvas; what has not happened yet is drawn lighter.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, offers } from "../api.js";
import { exactly, span as duration } from "../format.js";
import { colours, fitting, html, JobLink, palette, Said, ServerLink, sharp, State, Table, Time, useLoaded, useWidth } from "../ui.js";

const LANE = 15; // pixels: the height of a bar with its gap
const LEAST_LANE = 3;
const ROW = 52; // pixels: with more lanes than fit into it, bars become lower
const AXIS = 22;
const MOST_LANES = 24; // of one server: more jobs at a time share the last one

/** Lanes for the spans of one row: each span gets the first lane that is free when it begins. */
function inLanes(spans) {
  const ends = [];
  return spans.slice().sort((a, b) => a.placed - b.placed).map((one) => {
    let lane = ends.findIndex((end) => end <= one.placed);
    if (lane < 0) lane = Math.min(ends.length, MOST_LANES - 1);
    ends[lane] = one.ended ?? Infinity;
    return { ...one, lane };
  });
}

const hasFailed = (one) => one.state === "failed" || one.state === "lost";
const AHEAD = 0.35; // of the window lies in the future

/** The window to draw. A service that is younger than the window is drawn from its first job on. */
export function shownFrom(found, ahead) {
  const since = found.spans.length ? Math.max(found.since, Math.min(...found.spans.map((one) => one.placed)) - 1) : found.since;
  return { since, until: found.until + (ahead ? (found.until - since) * AHEAD : 0) };
}

/** When running jobs should end, by forecast. */
export function useEnds() {
  const { value } = useLoaded(() => (offers("forecasts") ? get("/v1/forecasts") : Promise.resolve(null)), [], 10);
  return new Map(((value && value.running) || []).filter((one) => one.p50 !== null).map((one) => [one.job, { p50: value.as_of + one.p50, p90: value.as_of + one.p90 }]));
}

const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400];

export function Gantt({ rows, spans, since, until, now, types, forecasts = new Map(), high = ROW }) {
  const outer = useRef(null);
  const canvas = useRef(null);
  const width = useWidth(outer);
  const [chosen, setChosen] = useState(null);
  const shown = rows.map((name) => {
    const laid = inLanes(spans.filter((one) => one.server === name));
    const lanes = Math.max(1, ...laid.map((one) => one.lane + 1));
    const lane = Math.max(LEAST_LANE, Math.min(LANE, Math.floor(high / lanes)));
    return { name, laid, lane, tall: Math.max(LANE, lanes * lane) };
  });
  const left = Math.min(160, Math.max(70, width / 6));
  const height = AXIS + shown.reduce((sum, row) => sum + row.tall + 6, 0);
  const x = (time) => left + ((time - since) / (until - since)) * (width - left);
  const boxes = useRef([]);

  useEffect(() => {
    if (!canvas.current || !width) return;
    const context = sharp(canvas.current, width, height);
    const look = colours("text", "quiet", "line", "accent", "down");
    const colour = palette(types.map((one) => one.name));
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const step = STEPS.find((one) => (until - since) / one < width / 90) || 86400;
    for (let tick = Math.ceil(since / step) * step; tick < until; tick += step) {
      context.fillStyle = look.line;
      context.fillRect(x(tick), AXIS - 4, 1, height);
      context.fillStyle = look.quiet;
      const options = step < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
      const label = new Date(tick * 1000).toLocaleTimeString(undefined, options);
      if (x(tick) + 3 + context.measureText(label).width < width) context.fillText(label, x(tick) + 3, AXIS / 2);
    }
    boxes.current = [];
    let top = AXIS;
    for (const row of shown) {
      context.fillStyle = look.text;
      context.fillText(fitting(context, row.name, left - 10), 4, top + LANE / 2 + 1);
      for (const one of row.laid) {
        const from = Math.max(left, x(one.placed));
        const to = Math.min(width, x(one.ended ?? now));
        const y = top + one.lane * row.lane + 2;
        const thick = row.lane > 5 ? row.lane - 3 : row.lane - 1;
        context.fillStyle = colour.get(one.type) || look.quiet;
        context.fillRect(from, y, Math.max(1.5, to - from), thick);
        if (hasFailed(one)) {
          context.fillStyle = look.down;
          context.fillRect(to - 3, y, 3, thick);
        }
        const ahead = one.ended === null ? forecasts.get(one.job) : null;
        if (ahead) {
          context.fillStyle = colour.get(one.type) || look.quiet;
          context.globalAlpha = 0.35;
          context.fillRect(to, y, Math.max(0, Math.min(width, x(ahead.p50)) - to), thick);
          context.globalAlpha = 0.15;
          context.fillRect(Math.min(width, x(ahead.p50)), y, Math.max(0, Math.min(width, x(ahead.p90)) - x(ahead.p50)), thick);
          context.globalAlpha = 1;
        }
        if (chosen === one.job) {
          context.strokeStyle = look.text;
          context.lineWidth = 2;
          context.strokeRect(from, y, Math.max(2, to - from), thick);
        }
        boxes.current.push([from, y, Math.max(4, to - from), thick, one]);
      }
      top += row.tall + 6;
      context.fillStyle = look.line;
      context.fillRect(0, top - 3, width, 1);
    }
    if (now >= since && now <= until) {
      context.fillStyle = look.accent;
      context.fillRect(x(now), AXIS - 6, 2, height);
    }
  });

  const under = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const found = boxes.current.find(([bx, by, bw, bh]) => px >= bx && px <= bx + bw && py >= by && py <= by + bh);
    return found ? found[4] : null;
  };
  const known = spans.find((one) => one.job === chosen);
  const present = new Set(spans.map((one) => one.type));
  const list = spans.slice(0, 100);
  if (!rows.length) return html`<p class="panel hint">No server matches.</p>`;
  return html`<ul class="legend" aria-label="Types">${types.map((one, at) => [one, at]).filter(([one]) => present.has(one.name)).map(([one, at]) => html`<li><span class=${`swatch series-${at % 8}`}></span>${one.name}</li>`)}
    ${spans.some(hasFailed) ? html`<li><span class="swatch swatch-down"></span>ends in a failure</li>` : null}</ul>
    <div class="gantt" ref=${outer}><canvas ref=${canvas} role="img" aria-label=${`${spans.length} jobs on ${rows.length} servers; the table below says the same`}
      onMouseMove=${(event) => { const one = under(event); setChosen(one ? one.job : null); }}
      onClick=${(event) => { const one = under(event); if (one) location.hash = `#/jobs/${one.job}`; }}></canvas></div>
    <p class=${`chosen ${known ? "" : "hint"}`} role="status">${known ? html`<${JobLink} id=${known.job} /> <${Said} text=${known.name} /> (${known.type}, ${known.tenant}) on ${known.server}, ${known.state}, ${duration((known.ended ?? now) - known.placed)}` : spans.length ? "Point at a bar to see its job." : "No job was here in this window."}</p>
    <details><summary>The same as a table (${spans.length} jobs)</summary><${Table} label=${spans.length > list.length ? `The newest ${list.length} of ${spans.length} jobs` : "Jobs"} head=${["job", "name", "server", "type", "state", "placed", "ended"]}>
      ${list.map((one) => html`<tr key=${`${one.job}`}><th scope="row"><${JobLink} id=${one.job} /></th><td class="break"><${Said} text=${one.name || "–"} /></td><td><${ServerLink} name=${one.server} /></td><td>${one.type}</td><td><${State} of=${one.state} /></td>
        <td title=${exactly(one.placed)}><${Time} at=${one.placed} /></td><td><${Time} at=${one.ended} /></td></tr>`)}<//></details>`;
}
