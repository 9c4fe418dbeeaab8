// Speaks to the server. The session's cookie is none of its business: no script can read it.

export class Problem extends Error {
  constructor(status, body) {
    super([body.detail || `The server answered ${status}.`, body.help].filter(Boolean).join(" "));
    this.status = status;
    this.code = body.code || "";
    this.results = body.results;
  }
}

// A proxy may serve all of this below a path, and may or may not tell the server so.
const ROOT = new URL(".", document.baseURI).pathname;
export const at = (path) => (path.startsWith(ROOT) ? path : ROOT + path.slice(1));

// Pages elsewhere can't send this header, so the server knows that a change was asked for here.
export function headers(more = {}) {
  return { "Sluice-Page": "1", ...more };
}

async function call(method, path, body, more) {
  const options = { method, headers: headers(more) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(at(path), options);
  } catch {
    throw new Problem(0, { detail: "The server can't be reached." });
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, data);
  return data;
}

export const config = () => call("GET", "/config.json");
export const presets = () => call("GET", "/v1/presets");
export const jobs = (query) => call("GET", `/v1/jobs?${new URLSearchParams(query)}`);
export const submit = (links, preset, gaps) =>
  call("POST", "/v1/jobs:batch", { jobs: links.map((url) => ({ url, preset, allow_gaps: gaps })) });
export const cancel = (job) => call("POST", job.links.cancel);
export const retry = (job) => call("POST", job.links.retry);
export const remove = (job) => call("DELETE", job.links.self);


export const signIn = (key) => call("POST", "/v1/session", { key });
export const signOut = () => call("DELETE", "/v1/session");
export const whoAmI = () => call("GET", "/v1/session");

export const queues = () => call("GET", "/v1/queues");
export const switchQueue = (name, what) => call("POST", `/v1/queues/${encodeURIComponent(name)}/${what}`);
export const workers = () => call("GET", "/v1/workers");
export const drain = (id) => call("POST", `/v1/workers/${encodeURIComponent(id)}/drain`);
export const sites = () => call("GET", "/v1/sites");
export const keepSite = (site) => call("POST", "/v1/sites", site);
export const forgetSite = (host) => call("DELETE", `/v1/sites/${encodeURIComponent(host)}`);
export const stats = () => call("GET", "/v1/stats");
export const audit = (limit) => call("GET", `/v1/audit?limit=${limit}`);
export const deadLetters = (limit) => call("GET", `/v1/dead-letters?limit=${limit}`);
export const letter = (id, what) =>
  (what === "drop" ? call("DELETE", `/v1/dead-letters/${id}`) : call("POST", `/v1/dead-letters/${id}/${what}`));
export const letters = (what) => call("POST", `/v1/dead-letters:${what}`, { filter: { all: true } });
