// Speaks to the server; knows the key and nothing of the page.

const KEY = "sluice-key";

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (text) => sessionStorage.setItem(KEY, text),
  clear: () => sessionStorage.removeItem(KEY),
};

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `The server answered ${status}.`);
    this.status = status;
    this.code = body.code || "";
    this.results = body.results;
  }
}

export function headers(more = {}) {
  const own = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  return { ...own, ...more };
}

async function call(method, path, body, more) {
  const options = { method, headers: headers(more) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
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
export const submit = (links, preset) =>
  call("POST", "/v1/jobs:batch", { jobs: links.map((url) => ({ url, preset })) });
export const cancel = (job) => call("POST", job.links.cancel);
export const retry = (job) => call("POST", job.links.retry);
export const remove = (job) => call("DELETE", job.links.self);

// An address that a player or a download can use: those send no key of ours.
export async function fileUrl(file) {
  if (!key.get()) return file.url;
  return (await call("POST", `${file.url}/link`)).url;
}
