// The address of a view: its name, what it is about, and the conditions, all in the hash.

import { useEffect, useState } from "preact/hooks";

/** The hash as {name, rest, query}: #/jobs/12?state=waiting */
function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/");
  let detail = null;
  try {
    detail = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch { /* no valid name: the list is shown */ }
  return { name, detail, query: new URLSearchParams(query) };
}

export function useRoute() {
  const [route, set] = useState(parse());
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Change conditions in the URL without a new entry in the history. */
export function setQuery(route, values) {
  const query = new URLSearchParams(route.query);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === "" || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", `#/${route.name}${route.detail === null ? "" : `/${encodeURIComponent(route.detail)}`}${text ? `?${text}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
