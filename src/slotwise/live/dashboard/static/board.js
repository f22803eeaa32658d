// The board: the state of the cluster, kept up to date by the stream of changes.

import { get, signedOut } from "./api.js";

const TICK = 5; // seconds after which a board without changes is drawn again: ages on it go on

/** The newest board (null before the first), how the connection stands, and who is told of changes. */
class Store {
  constructor() {
    this.board = null;
    this.connection = "connecting";
    this.version = 0;
    this.listeners = new Set();
    this.source = null;
    this.timer = 0;
    this.received = 0; // when the newest board came, by the clock of this page
    this.untold = false;
    setInterval(() => this.tick(), TICK * 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && this.untold) this.tell(); });
  }

  /** Let ages on the board go on while nothing changes. Without a connection they stand still. */
  tick() {
    const since = (performance.now() - this.received) / 1000;
    if (this.connection !== "live" || !this.board || since < TICK) return;
    this.board.now = this.board.told + since;
    this.tell();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Draw the views again. A page that is not seen draws nothing until it is. */
  tell() {
    this.untold = document.hidden;
    if (document.hidden) return;
    this.version += 1;
    this.listeners.forEach((listener) => listener());
  }

  async open() {
    try {
      this.full(await get("/v1/board"));
    } catch (error) {
      if (error.status === 401) return;
      this.connection = "lost";
      this.tell();
      this.again();
      return;
    }
    this.follow();
  }

  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), 2000);
  }

  close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }

  follow() {
    this.close();
    const source = new EventSource(`/v1/board/changes?after=${this.board.seq}`);
    this.source = source;
    source.addEventListener("full", (event) => this.full(JSON.parse(event.data)));
    source.addEventListener("delta", (event) => this.delta(JSON.parse(event.data)));
    source.onopen = () => {
      this.connection = "live";
      this.tell();
    };
    source.onerror = async () => {
      this.connection = "lost";
      this.tell();
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      this.close();
      try {
        const answer = await fetch("/v1/me", { cache: "no-store" });
        if (answer.status === 401) return signedOut();
      } catch { /* still away */ }
      this.again();
    };
  }

  full(board) {
    board.alarms = board.alarms || [];
    board.index = new Map(board.names.map((name, at) => [name, at]));
    board.order = null;
    this.board = board;
    this.arrived();
  }

  delta(delta) {
    const board = this.board;
    if (!board || delta.after !== board.seq) {
      if (board && delta.seq <= board.seq && delta.trouble === undefined) return; // known already
      if (!board || delta.after > board.seq) {
        this.open(); // a change is missing: the full board again
        return;
      }
    }
    for (const [at, ...row] of delta.servers || []) board.servers[at] = row;
    for (const [name, kind, ...row] of delta.added || []) {
      board.index.set(name, board.names.length);
      board.names.push(name);
      board.server_classes.push(kind);
      board.servers.push(row);
      board.order = null;
    }
    Object.assign(board.queues, delta.queues || {});
    for (const name of ["seq", "now", "fault", "live", "reasons", "alarms", "load", "trouble", "epoch"]) {
      if (delta[name] !== undefined) board[name] = delta[name];
    }
    this.arrived();
  }

  arrived() {
    this.received = performance.now();
    this.board.told = this.board.now;
    this.connection = "live";
    this.tell();
  }
}

export const store = new Store();

const natural = new Intl.Collator("en", { numeric: true }).compare;

/** Places of the servers in the order in which they are drawn: by class, then by name with numbers as numbers. */
export function order(board) {
  if (!board.order) {
    board.order = board.names.map((_, at) => at);
    const { names, server_classes: kinds } = board;
    board.order.sort((a, b) => natural(kinds[a], kinds[b]) || natural(names[a], names[b]));
  }
  return board.order;
}

/** One server as an object. */
export function serverAt(board, at) {
  const [status, jobs, used, kept] = board.servers[at];
  const kind = board.classes.find((one) => one.name === board.server_classes[at]);
  return {
    name: board.names[at],
    kind: board.server_classes[at],
    status: board.statuses[status],
    shown: board.statuses[status] === "lost" ? "down" : board.statuses[status],
    jobs,
    used,
    kept,
    capacity: kind ? kind.capacity : used.map(() => 0),
    reason: board.reasons[board.names[at]] || "",
  };
}

export const capacities = (board) => new Map(board.classes.map((one) => [one.name, one.capacity]));
