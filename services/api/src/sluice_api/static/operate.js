// What operators see and steer: read anew every few seconds while it is shown.

import * as api from "./api.js";
import { make } from "./card.js";
import * as words from "./format.js";

const EVERY = 3000;
const SURE = 4000; // how long a second click counts as "yes"
const LETTERS = 20;

const $ = (id) => document.getElementById(id);

export class OperatorView {
  constructor(on) {
    this.on = on;
    this.timer = 0;
    this.round = 0;
    this.isShown = false;
    this.all = false;
    $("operate-all").addEventListener("click", () => {
      this.all = !this.all;
      $("operate-all").setAttribute("aria-pressed", String(this.all));
      this.read();
    });
    $("site").addEventListener("submit", (e) => {
      e.preventDefault();
      this.run(e.submitter || e.target.lastElementChild, () => this.keepSite(e.target));
    });
    $("letters-requeue").addEventListener("click", (e) => this.sure(e.currentTarget, () => api.letters("requeue")));
    $("letters-drop").addEventListener("click", (e) => this.sure(e.currentTarget, () => api.letters("drop")));
  }

  // What was there of the host goes; nothing of it ever comes back to be shown.
  async keepSite(form) {
    const site = { host: $("site-host").value };
    const [file] = $("site-cookies").files;
    if (file) site.cookies = await file.text();
    if ($("site-user").value || $("site-password").value) {
      site.username = $("site-user").value;
      site.password = $("site-password").value;
    }
    const kept = await api.keepSite(site);
    form.reset();
    return kept;
  }

  show() {
    this.isShown = true;
    $("operate").hidden = false;
    return this.read();
  }

  hide() {
    this.isShown = false;
    $("operate").hidden = true;
    clearTimeout(this.timer);
  }

  async read() {
    clearTimeout(this.timer);
    const round = ++this.round;
    const parts = {
      queues: api.queues(), workers: api.workers(), stats: api.stats(),
      letters: api.deadLetters(LETTERS), sites: api.sites(), audit: api.audit(8),
    };
    for (const [name, promise] of Object.entries(parts)) {
      try {
        const found = await promise;
        if (round !== this.round || !this.isShown) return;
        this[name](found);
        this.trouble(name, "");
      } catch (problem) {
        if (round !== this.round) return;
        if (problem.status === 401) { this.on.refused(); return; }
        // A failed reading is shown as one, and what was read before stays.
        this.trouble(name, problem.message);
      }
    }
    this.timer = setTimeout(() => this.read(), EVERY);
  }

  trouble(name, text) {
    const line = $(`${name}-trouble`);
    if (line) line.textContent = text;
  }

  queues({ queues }) {
    const busy = (q) => q.paused || q.waiting || q.in_flight || q.due || q.delayed || q.dead;
    const shown = this.all ? queues : queues.filter(busy);
    fill("queues-rows", shown, (q) => q.name, (q) => {
      const tr = row([
        q.name, q.waiting, q.in_flight, q.due, q.delayed, q.dead,
        q.oldest_age_seconds == null ? "" : words.duration(q.oldest_age_seconds),
        `${q.in_per_minute} / ${q.out_per_minute}`,
      ]);
      tr.classList.toggle("paused", q.paused);
      if (q.paused) tr.firstChild.append(make("span", "tag", `paused by ${q.paused_by}`));
      tr.append(cell(this.button(q.paused ? "Resume" : "Pause", () => api.switchQueue(q.name, q.paused ? "resume" : "pause"))));
      return tr;
    });
    $("queues-none").hidden = shown.length > 0;
  }

  workers({ workers }) {
    fill("workers-rows", workers, (w) => w.id, (w) => {
      const mood = w.draining ? "draining" : w.standby ? "standby" : w.jobs.length ? "busy" : "idle";
      const tr = row([
        w.id, w.stage, words.duration(w.alive_seconds), words.bytes(w.memory_bytes), mood,
      ]);
      tr.firstChild.title = Object.entries(w.versions).map(([k, v]) => `${k} ${v}`).join(", ");
      const runs = make("td");
      for (const run of w.runs) runs.append(make("div", "run", `${run.title || run.job_id}: ${run.step}`));
      const act = w.draining ? "" : this.sureButton("Drain", () => api.drain(w.id));
      tr.append(runs, cell(act));
      return tr;
    });
    $("workers-none").hidden = workers.length > 0;
  }

  letters({ dead_letters: letters, next_cursor: more }) {
    fill("letters-rows", letters, (x) => x.id, (x) => {
      const tr = row([words.moment(x.created_at), x.queue, x.reason]);
      tr.children[1].className = "name";
      tr.children[2].title = x.payload;
      tr.append(cell(
        this.button("Requeue", () => api.letter(x.id, "requeue")),
        this.sureButton("Drop", () => api.letter(x.id, "drop")),
      ));
      return tr;
    });
    $("letters-none").hidden = letters.length > 0;
    $("letters-more").hidden = !more;
    $("letters-requeue").hidden = $("letters-drop").hidden = !letters.length;
  }

  stats(s) {
    const jobs = Object.entries(s.jobs).filter(([, n]) => n).map(([state, n]) => `${n} ${state.toLowerCase()}`);
    const facts = {
      Jobs: jobs.join(", ") || "none",
      Redis: s.broker_reachable ? "answers" : "does not answer",
      "Not handed over": s.outbox_pending ? `${s.outbox_pending}, oldest ${words.duration(s.outbox_lag_seconds)}` : "nothing",
      Leader: s.leader.holder || "none",
      Streams: s.sse_clients,
      "Free space": words.bytes(s.storage_free_bytes),
      Versions: Object.entries(s.versions).map(([part, all]) => `${part} ${all.join(" and ")}`).join(", "),
    };
    $("stats-facts").replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [make("dt", "", name), make("dd", "", String(value))]));
  }

  sites({ sites }) {
    fill("sites-rows", sites, (s) => s.host, (s) => {
      const tr = row([
        s.host, s.cookies || "", s.expires_at ? words.moment(s.expires_at) : "", s.password ? "yes" : "",
        s.used_at ? words.moment(s.used_at) : "",
      ]);
      if (!s.readable) tr.firstChild.append(make("span", "tag", "sealed with another key"));
      tr.append(cell(this.sureButton("Forget", () => api.forgetSite(s.host))));
      return tr;
    });
    $("sites-none").hidden = sites.length > 0;
  }

  audit({ entries }) {
    fill("audit-rows", entries, (e) => e.id, (e) => row([
      words.moment(e.at), e.actor, e.action, e.target || (e.detail ? JSON.stringify(e.detail) : ""),
    ]));
    $("audit-none").hidden = entries.length > 0;
  }

  button(text, act) {
    const one = make("button", "small", text);
    one.type = "button";
    one.addEventListener("click", () => this.run(one, act));
    return one;
  }

  sureButton(text, act) {
    const one = make("button", "small", text);
    one.type = "button";
    one.addEventListener("click", () => this.sure(one, act));
    return one;
  }

  // What can't be undone wants a second click.
  sure(one, act) {
    if (one.dataset.sure) return this.run(one, act);
    const text = one.textContent;
    one.dataset.sure = "1";
    one.textContent = `${text}?`;
    one.classList.add("sure");
    setTimeout(() => {
      delete one.dataset.sure;
      one.classList.remove("sure");
      one.textContent = text;
    }, SURE);
    return undefined;
  }

  async run(one, act) {
    one.disabled = true;
    const wrong = $("operate-wrong");
    wrong.textContent = "";
    try {
      const { done, remaining } = await act();
      if (remaining) wrong.textContent = `${done} done, ${remaining} remain.`;
    } catch (problem) {
      if (problem.status === 401) this.on.refused();
      else wrong.textContent = problem.message;
    } finally {
      one.disabled = false;
    }
    await this.read();
  }
}

function row(texts) {
  const tr = document.createElement("tr");
  tr.append(...texts.map((text) => make("td", typeof text === "number" ? "number" : "", String(text))));
  return tr;
}

function cell(...inside) {
  const td = make("td", "acts");
  td.append(...inside.filter(Boolean));
  return td;
}

// Rows are changed only where something differs, so that a click under way keeps its button.
function fill(id, items, key, build) {
  const body = $(id);
  const old = new Map([...body.children].map((tr) => [tr.dataset.key, tr]));
  const rows = items.map((item) => {
    const [name, shown] = [key(item), JSON.stringify(item)];
    const kept = old.get(name);
    if (kept && (kept.dataset.shown === shown || kept.querySelector("[data-sure]"))) return kept;
    const tr = build(item);
    tr.dataset.key = name;
    tr.dataset.shown = shown;
    return tr;
  });
  if (rows.length !== body.children.length || rows.some((tr, i) => body.children[i] !== tr)) body.replaceChildren(...rows);
}
