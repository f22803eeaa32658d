// The cluster: every server as a cell on one canvas, and a table that says the same.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { capacities, order, serverAt } from "../board.js";
import { amount, number, percent, several, span } from "../format.js";
import { setQuery } from "../route.js";
import { Choice, colours, html, ServerLink, sharp, State, Table, useReady, useWidth } from "../ui.js";
import { PolicyChange } from "./policy.js";

const ROWS = 50; // of the table at once
const NAMED = 400; // up to so many servers, cells are wide enough for names unless the user wants them small
const GAP = 2;
const SMALL = 9; // pixels: the least size of a cell that can still be told apart
const FONT = "11px system-ui, sans-serif";

/** How cells are laid out: their size, how many in a row, and where the names of rows stand. */
function layout(count, width, height, named, widest) {
  if (named) {
    const wide = Math.max(72, widest + 14);
    const columns = Math.max(1, Math.floor((width + GAP) / (wide + GAP)));
    const rows = Math.ceil(count / columns);
    const high = Math.max(30, Math.min(56, Math.floor((height * 0.5) / rows)));
    return { columns, rows, wide: Math.floor((width + GAP) / columns) - GAP, high, left: 0 };
  }
  const left = Math.min(widest + 10, Math.floor(width / 4));
  let size = 40;
  const fits = (side) => Math.ceil(count / Math.floor((width - left + GAP) / (side + GAP))) * (side + GAP) <= height;
  while (size > SMALL && !fits(size)) size -= 1;
  const columns = Math.max(1, Math.floor((width - left + GAP) / (size + GAP)));
  return { columns, rows: Math.ceil(count / columns), wide: size, high: size, left };
}

function drawCell(context, look, box, server, capacity, share) {
  const { x, y, wide, high } = box;
  const [status, , used, kept] = server;
  context.fillStyle = look.free;
  context.fillRect(x, y, wide, high);
  if (status === 3) {
    context.fillStyle = look.down;
    context.fillRect(x, y, wide, high);
    context.strokeStyle = look.surface;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x + 2, y + 2);
    context.lineTo(x + wide - 2, y + high - 2);
    context.moveTo(x + wide - 2, y + 2);
    context.lineTo(x + 2, y + high - 2);
    context.stroke();
    return;
  }
  const whole = capacity[share];
  if (whole > 0) {
    const full = Math.min(1, used[share] / whole) * high;
    const held = Math.min(1 - full / high, kept[share] / whole) * high;
    context.fillStyle = look.used;
    context.fillRect(x, y + high - full, wide, full);
    context.fillStyle = look.kept;
    context.fillRect(x, y + high - full - held, wide, held);
  } else {
    context.fillStyle = look.line;
    context.fillRect(x + wide / 2 - 2, y + high / 2 - 0.5, 4, 1);
  }
  if (status === 1 || status === 2) {
    context.strokeStyle = status === 1 ? look.turning : look.draining;
    context.lineWidth = 2;
    context.setLineDash(status === 2 ? [3, 2] : []);
    context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
    context.setLineDash([]);
  }
}

function Cells({ board, resource, named, chosen, setChosen, places }) {
  const outer = useRef(null);
  const canvas = useRef(null);
  const [top, setTop] = useState(0);
  const width = useWidth(outer);
  const height = Math.max(180, Math.round(window.innerHeight * 0.5));
  const widest = useMemo(() => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = FONT;
    let most = 0;
    let longest = 0;
    for (const name of board.names) {
      if (name.length > longest - 3) {
        longest = Math.max(longest, name.length);
        most = Math.max(most, context.measureText(name).width);
      }
    }
    return Math.min(220, Math.ceil(most));
  }, [board.names, board.names.length]);
  const shape = layout(places.length, Math.max(120, width), height, named, widest);
  const total = shape.rows * (shape.high + GAP);
  const view = Math.min(total, height);
  const at = places.indexOf(chosen);

  useEffect(() => {
    if (!canvas.current || !width) return;
    const context = sharp(canvas.current, width, view);
    const look = colours("free", "used", "kept", "turning", "draining", "down", "surface", "line", "text", "quiet", "accent", "on-used");
    const sizes = capacities(board);
    context.clearRect(0, 0, width, view);
    context.font = FONT;
    context.textBaseline = "middle";
    const first = Math.max(0, Math.floor(top / (shape.high + GAP)));
    const last = Math.min(shape.rows, Math.ceil((top + view) / (shape.high + GAP)));
    for (let row = first; row < last; row += 1) {
      const y = row * (shape.high + GAP) - top;
      for (let column = 0; column < shape.columns; column += 1) {
        const i = row * shape.columns + column;
        if (i >= places.length) break;
        const place = places[i];
        const box = { x: shape.left + column * (shape.wide + GAP), y, wide: shape.wide, high: shape.high };
        const capacity = sizes.get(board.server_classes[place]) || [];
        drawCell(context, look, box, board.servers[place], capacity, resource);
        if (named) {
          const name = board.names[place];
          const room = shape.wide - 8;
          let shown = name;
          while (shown.length > 2 && context.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
          const wideness = Math.min(room, context.measureText(shown).width);
          context.fillStyle = look.surface;
          context.globalAlpha = 0.82;
          context.fillRect(box.x + 3, y + shape.high / 2 - 7, wideness + 4, 14);
          context.globalAlpha = 1;
          context.fillStyle = look.text;
          context.fillText(shown, box.x + 5, y + shape.high / 2 + 0.5);
        }
        if (place === chosen) {
          context.strokeStyle = look.accent;
          context.lineWidth = 3;
          context.strokeRect(box.x + 0.5, y + 0.5, shape.wide - 1, shape.high - 1);
        }
      }
      if (!named && shape.left) {
        const step = Math.max(1, Math.ceil(13 / (shape.high + GAP))); // a name on every row that has height for one
        if (row % step === 0) {
          context.fillStyle = look.quiet;
          context.fillText(board.names[places[row * shape.columns]], 0, y + shape.high / 2, shape.left - 6);
        }
      }
    }
  });

  const cellUnder = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - shape.left) / (shape.wide + GAP));
    const row = Math.floor((event.clientY - box.top + top) / (shape.high + GAP));
    const i = row * shape.columns + column;
    return column >= 0 && column < shape.columns && i < places.length ? places[i] : null;
  };
  const open = (place) => { location.hash = `#/servers/${encodeURIComponent(board.names[place])}`; };
  const keys = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: shape.columns, ArrowUp: -shape.columns, Home: -Infinity, End: Infinity };
  const press = (event) => {
    if (event.key === "Enter" && at >= 0) open(chosen);
    if (!(event.key in keys)) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(places.length - 1, (at < 0 ? -1 : at) + keys[event.key]));
    setChosen(places[Number.isFinite(next) ? next : 0]);
    const y = Math.floor(next / shape.columns) * (shape.high + GAP);
    const box = outer.current;
    if (y < box.scrollTop) box.scrollTop = y;
    else if (y + shape.high > box.scrollTop + view) box.scrollTop = y + shape.high - view;
  };
  return html`<div class="cells" ref=${outer} style=${{ height: `${view}px`, overflowY: total > view ? "auto" : "hidden" }}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)} tabindex="0" role="application"
      aria-label=${`Map of ${several(places.length, "server")}; arrow keys choose one, Enter opens it; the table below says the same`}
      onKeyDown=${press} onMouseMove=${(event) => { const place = cellUnder(event); if (place !== null && place !== chosen) setChosen(place); }}
      onClick=${(event) => { const place = cellUnder(event); if (place !== null) open(place); }}>
    <div class="cells-whole" style=${{ height: `${total}px` }}><canvas ref=${canvas}></canvas></div></div>`;
}

/** One line about the server that is chosen on the map. */
function Chosen({ board, place, resource }) {
  if (place === null || place >= board.names.length) {
    return html`<p class="chosen" role="status">Point at a server, or choose one with the arrow keys.</p>`;
  }
  const one = serverAt(board, place);
  const parts = board.resources.map((name, r) => `${amount(one.used[r])} of ${amount(one.capacity[r])} ${name}${one.kept[r] ? ` (${amount(one.kept[r])} kept)` : ""}`);
  return html`<p class="chosen" role="status"><${ServerLink} name=${one.name} /> <${State} of=${one.status} />
    ${" "}${several(one.jobs, "job")}; ${parts.join(", ")}${one.reason ? ` – ${one.reason}` : ""}</p>`;
}

const SORTS = { name: "name", status: "status", free: "least free first", jobs: "most jobs first" };

function ServerTable({ board, places, resource, route }) {
  const sort = SORTS[route.query.get("sort")] ? route.query.get("sort") : "name";
  const sizes = capacities(board);
  const rank = useMemo(() => {
    const list = [...places];
    const rest = (at) => {
      const whole = (sizes.get(board.server_classes[at]) || [])[resource] || 0;
      return whole ? (whole - board.servers[at][2][resource]) / whole : 2;
    };
    if (sort === "free") list.sort((a, b) => rest(a) - rest(b));
    if (sort === "jobs") list.sort((a, b) => board.servers[b][1] - board.servers[a][1]);
    if (sort === "status") list.sort((a, b) => board.servers[b][0] - board.servers[a][0]);
    return list;
  }, [places, sort, resource, sort === "name" ? 0 : board.seq]);
  const pages = Math.max(1, Math.ceil(rank.length / ROWS));
  const page = Math.min(pages - 1, Math.max(0, Number(route.query.get("page")) || 0));
  const shown = rank.slice(page * ROWS, (page + 1) * ROWS);
  const turn = (to) => setQuery(route, { page: to || null });
  return html`<section aria-label="Servers as a table">
    <div class="bar"><h2>Servers</h2>
      <label>Order <select value=${sort} onChange=${(event) => setQuery(route, { sort: event.target.value === "name" ? null : event.target.value, page: null })}>
        ${Object.entries(SORTS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      <span class="hint">${number(rank.length)} of ${number(board.names.length)}${pages > 1 ? `, page ${page + 1} of ${pages}` : ""}</span>
      ${pages > 1 ? html`<span class="pager"><button type="button" disabled=${page === 0} onClick=${() => turn(page - 1)}>Previous</button>
        <button type="button" disabled=${page === pages - 1} onClick=${() => turn(page + 1)}>Next</button></span>` : null}</div>
    <${Table} label="Servers: status, jobs, and used of each resource" head=${["server", "class", "status", "jobs", ...board.resources.map((name) => `${name} used`), "kept", "reason"]}>
      ${shown.map((at) => {
        const one = serverAt(board, at);
        const kept = board.resources.map((name, r) => (one.kept[r] ? `${amount(one.kept[r])} ${name}` : "")).filter(Boolean).join(", ");
        return html`<tr key=${one.name}><th scope="row"><${ServerLink} name=${one.name} /></th><td>${one.kind}</td><td><${State} of=${one.status} /></td>
          <td class="num">${one.jobs}</td>${board.resources.map((_, r) => html`<td class="num">${amount(one.used[r])} / ${amount(one.capacity[r])}</td>`)}
          <td>${kept || "–"}</td><td>${one.reason || "–"}</td></tr>`;
      })}<//></section>`;
}

const Figure = ({ name, children, hint }) => html`<div class="figure"><dt>${name}</dt><dd>${children}</dd>${hint ? html`<dd class="hint">${hint}</dd>` : null}</div>`;

function Figures({ board, resource }) {
  const counts = board.statuses.map(() => 0);
  let used = 0;
  let whole = 0;
  let kept = 0;
  const sizes = capacities(board);
  board.servers.forEach(([status, , u, k], at) => {
    counts[status] += 1;
    if (status === 3) return;
    used += u[resource];
    kept += k[resource];
    whole += (sizes.get(board.server_classes[at]) || [])[resource] || 0;
  });
  const waiting = Object.values(board.queues).reduce((sum, [n]) => sum + n, 0);
  const oldest = Math.min(...Object.values(board.queues).map(([, , since]) => since ?? Infinity));
  const load = board.load;
  const name = board.resources[resource];
  return html`<dl class="figures">
    <${Figure} name="running jobs">${number(board.live)}<//>
    <${Figure} name="waiting jobs" hint=${Number.isFinite(oldest) ? `oldest ${span(board.now - oldest)}` : "none waits"}>${number(waiting)}<//>
    <${Figure} name=${`${name} in use`} hint=${whole ? `${amount(used)} of ${amount(whole)}, ${amount(kept)} kept` : "no server has any"}>${whole ? percent(used / whole) : "–"}<//>
    <${Figure} name="servers" hint=${`${counts[1]} turning, ${counts[2]} draining, ${counts[3]} down`}>${number(board.names.length)}<//>
    <${Figure} name="observed load" hint=${load && load.intensity !== null
      ? `${load.outside ? "outside the capacity region" : `may grow by ${percent(load.headroom)}`}${load.share ? `; proven up to ${percent(load.share)}` : "; nothing is proven"}`
      : `not known yet${load && load.why ? `: ${load.why}` : ""}`}>${load && load.intensity !== null ? percent(load.intensity) : "–"}<//>
  </dl>`;
}

const LEGEND = [["used", "allocated"], ["kept", "kept by the policy"], ["free", "free"], ["turning", "turning"], ["draining", "draining"], ["down", "down"]];

export function Cluster({ board, route, who }) {
  const [chosen, setChosen] = useState(null);
  const resource = Math.max(0, board.resources.indexOf(route.query.get("resource")));
  const wanted = (route.query.get("find") || "").toLowerCase();
  const state = route.query.get("status") || "";
  const whole = order(board);
  const places = useMemo(
    () => whole.filter((at) => (!wanted || board.names[at].toLowerCase().includes(wanted)) && (!state || board.statuses[board.servers[at][0]] === state)),
    [whole, wanted, state, state ? board.seq : 0],
  );
  const cells = route.query.get("cells") || (places.length <= NAMED ? "names" : "small");
  useReady(true);
  return html`<div class="bar"><h1>Cluster</h1><${PolicyChange} board=${board} who=${who} /></div>
    <${Figures} board=${board} resource=${resource} />
    <div class="bar">
      <${Choice} label="Resource" value=${board.resources[resource]} options=${board.resources.map((name) => [name, name])}
        onChange=${(name) => setQuery(route, { resource: name === board.resources[0] ? null : name })} />
      <${Choice} label="Cells" value=${cells} options=${[["names", "with names"], ["small", "small"]]} onChange=${(key) => setQuery(route, { cells: key })} />
      <label>Find <input type="search" value=${route.query.get("find") || ""} placeholder="name of a server"
        onInput=${(event) => setQuery(route, { find: event.target.value, page: null })} /></label>
      <label>Status <select value=${state} onChange=${(event) => setQuery(route, { status: event.target.value, page: null })}>
        <option value="">all</option>${board.statuses.map((one) => html`<option value=${one}>${one === "lost" ? "down" : one}</option>`)}</select></label>
    </div>
    <ul class="legend" aria-label="Legend">${LEGEND.map(([key, text]) => html`<li><span class=${`swatch swatch-${key}`}></span>${text}</li>`)}</ul>
    ${places.length ? html`<${Cells} board=${board} resource=${resource} named=${cells === "names"} chosen=${chosen} setChosen=${setChosen} places=${places} />`
      : html`<p class="hint">No server matches.</p>`}
    <${Chosen} board=${board} place=${chosen} resource=${resource} />
    <${ServerTable} board=${board} places=${places} resource=${resource} route=${route} />`;
}
