// Puts the page together.

import * as api from "./api.js";
import { nameOf } from "./card.js";
import { JobList } from "./list.js";
import { OperatorView } from "./operate.js";
import { follow } from "./stream.js";

const $ = (id) => document.getElementById(id);
const SEARCH_PAUSE = 250;
const PRESET = "sluice-preset";
const MAX_NOTES = 12;

let stop = null;
let wasConnected = false;
let may = { submit: false, operate: false };

const list = new JobList($("jobs"), {
  changed: showState,
  news: (text) => { $("news").textContent = text; },
  cancel: (job) => act(api.cancel(job)),
  retry: (job) => act(api.retry(job)),
  remove: async (job) => {
    if (await act(api.remove(job))) list.drop(job.id);
  },
  play,
  save,
});

async function act(promise) {
  try {
    const answer = await promise;
    if (answer.status) list.take(answer);
    note([]);
    return true;
  } catch (problem) {
    fail(problem);
    return false;
  }
}

const operator = new OperatorView({ refused: () => signIn("The key is not known, or was revoked.") });

function fail(problem) {
  if (problem.status === 401) signIn("The key is not known, or was revoked.");
  else note([{ text: problem.message, bad: true }]);
}

function note(all) {
  const more = all.length - MAX_NOTES;
  const lines = more > 0 ? [...all.slice(0, MAX_NOTES), { text: `And ${more} more.`, bad: true }] : all;
  $("notes").replaceChildren(...lines.map(({ text, bad }) => {
    const p = document.createElement("p");
    p.textContent = text;
    p.className = bad ? "bad" : "";
    return p;
  }));
}

function showState() {
  const words = {
    all: may.submit ? "Nothing here yet. Paste a link above." : "Nothing here.", active: "Nothing runs or waits.",
    done: "Nothing is done yet.", failed: "Nothing failed.",
  };
  $("empty").hidden = !list.isEmpty;
  $("empty-words").textContent = list.text ? "Nothing found." : words[list.filter];
  $("more").hidden = !list.hasMore;
}

async function submit(event) {
  event.preventDefault();
  const links = $("links").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!links.length) return;
  $("go").disabled = true;
  try {
    const answer = await api.submit(links, $("preset").value, $("allow-gaps").checked);
    report(links, answer.results);
  } catch (problem) {
    if (problem.results) report(links, problem.results);
    else fail(problem);
  } finally {
    $("go").disabled = false;
    $("links").focus();
  }
}

// Good lines leave the field; refused ones stay to be mended.
function report(links, results) {
  const refused = results.filter((line) => line.error);
  const existing = results.filter((line) => line.existing).length;
  const fresh = results.length - refused.length - existing;
  const lines = [];
  if (fresh) lines.push({ text: fresh === 1 ? "1 link accepted." : `${fresh} links accepted.` });
  if (existing) lines.push({ text: existing === 1 ? "1 link is in the list already." : `${existing} links are in the list already.` });
  refused.forEach((line) => lines.push({ text: `${links[line.line - 1].slice(0, 120)}: ${line.error.message} ${line.error.help || ""}`.trim(), bad: true }));
  note(lines);
  $("links").value = refused.map((line) => links[line.line - 1]).join("\n");
}

async function play(job, file) {
  const kind = { video: "video", audio: "audio", image: "img", playlist: "video" }[file.kind];
  try {
    const { url } = file;
    const media = document.createElement(kind);
    media.src = `${api.at(url)}${url.includes("?") ? "&" : "?"}inline=1`;
    if (kind === "img") media.alt = file.name;
    else { media.controls = true; media.autoplay = true; }
    $("player-title").textContent = nameOf(job);
    $("player-stage").replaceChildren(media);
    $("player").showModal();
  } catch (problem) { fail(problem); }
}

async function save(file) {
  try {
    const link = document.createElement("a");
    link.href = api.at(file.url);
    link.download = file.name;
    document.body.append(link);
    link.click();
    link.remove();
  } catch (problem) { fail(problem); }
}

function onEvent(name, data) {
  if (name === "job") list.take(data);
  else if (name === "progress") list.progress(data);
  else if (name === "deleted") list.drop(data.id);
  // What was missed can't be told by events alone.
  else if (name === "snapshot" && wasConnected) list.load({ keep: true }).catch(fail);
}

function onState(on) {
  $("live").dataset.state = on ? "on" : "off";
  $("live-words").textContent = on ? "live" : "reconnecting";
  if (on) setTimeout(() => { wasConnected = true; }, 1000);
}

function signIn(why = "") {
  stop?.();
  stop = null;
  operator.hide();
  note([]);
  $("sign-in").hidden = false;
  $("submit").hidden = $("no-submit").hidden = $("work").hidden = $("sign-out").hidden = $("views").hidden = true;
  $("sign-in-wrong").textContent = why;
  $("key").focus();
}

// Jobs or operating: the address says which, so that it can be kept and gone back to.
function showView() {
  const operating = location.hash === "#operate" && !$("views").hidden;
  $("view-jobs").setAttribute("aria-current", operating ? "false" : "page");
  $("view-operate").setAttribute("aria-current", operating ? "page" : "false");
  $("submit").hidden = !may.submit || operating;
  $("no-submit").hidden = may.submit || operating;
  $("work").hidden = $("notes").hidden = operating;
  if (operating) operator.show();
  else operator.hide();
}

async function open() {
  const me = await api.whoAmI();
  const scopes = new Set(me.scopes);
  may = { submit: scopes.has("submit") || scopes.has("operate"), operate: scopes.has("operate") };
  const { presets, default: first } = await api.presets();
  const chosen = localStorage.getItem(PRESET) || first;
  $("preset").replaceChildren(...presets.map((preset) => new Option(preset.title, preset.name, false, preset.name === chosen)));
  $("sign-in").hidden = true;
  $("sign-out").hidden = !me.expires_at;
  $("views").hidden = !may.operate;
  showView();
  await list.load();
  stop ??= follow("/v1/events", { onEvent, onState, onRefused: () => signIn("The key is not known, or was revoked.") });
}

$("submit").addEventListener("submit", submit);
$("links").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("submit").requestSubmit();
});
$("preset").addEventListener("change", () => localStorage.setItem(PRESET, $("preset").value));
$("more").addEventListener("click", () => list.more().catch(fail));
$("tabs").addEventListener("click", (event) => {
  const { filter } = event.target.dataset;
  if (!filter) return;
  list.filter = filter;
  for (const tab of $("tabs").children) tab.setAttribute("aria-pressed", String(tab === event.target));
  list.load().catch(fail);
});
let searching = 0;
$("search").addEventListener("input", () => {
  clearTimeout(searching);
  searching = setTimeout(() => {
    list.text = $("search").value.trim();
    list.load().catch(fail);
  }, SEARCH_PAUSE);
});
$("player-close").addEventListener("click", () => $("player").close());
$("player").addEventListener("close", () => $("player-stage").replaceChildren());
$("player").addEventListener("click", (event) => { if (event.target === $("player")) $("player").close(); });
window.addEventListener("hashchange", showView);
$("sign-out").addEventListener("click", () => api.signOut().then(() => signIn(), fail));
$("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = $("key").value.trim();
  $("key").value = "";
  try {
    await api.signIn(key);
    await open();
  } catch (problem) {
    if (problem.status === 401) signIn("This key is not known.");
    else if (problem.status === 403) signIn("This key may not look at jobs: it lacks the scope read.");
    else $("sign-in-wrong").textContent = problem.message;
  }
});

(async () => {
  try {
    await open();
  } catch (problem) {
    if (problem.status === 401) signIn();
    else {
      $("submit").hidden = false;
      fail(problem);
    }
  }
})();
