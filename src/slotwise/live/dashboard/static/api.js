// Requests to the public API. Errors carry what the service says in `detail`.

export class ServiceError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const listeners = new Set();
/** Call `listener` when the session is not valid (any more). */
export const onSignedOut = (listener) => listeners.add(listener);
export const signedOut = () => listeners.forEach((listener) => listener());

const offered = new Set();
/** Remember what the service offers, as /v1/me tells. */
export const setOffers = (names) => (names || []).forEach((name) => offered.add(name));
export const offers = (name) => offered.has(name);

export async function call(method, path, body) {
  const options = { method, headers: { "X-Slotwise": "1" }, cache: "no-store" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ServiceError(0, "the service does not answer");
  }
  if (answer.status === 401) signedOut();
  if (!answer.ok) {
    let detail = answer.statusText;
    try {
      detail = (await answer.json()).detail || detail;
    } catch { /* no JSON: the status text stands */ }
    throw new ServiceError(answer.status, String(detail));
  }
  return answer;
}

export const get = async (path) => (await call("GET", path)).json();
export const post = async (path, body) => (await call("POST", path, body)).json();

/** A path with conditions; those that are null, "" or an empty list are left out. */
export function withQuery(path, conditions) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(conditions)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}
