// One job on the page: built once, then changed in place, so that focus and clicks survive.

import { at } from "./api.js";
import * as words from "./format.js";

export const ENDED = new Set(["SUCCESS", "PARTIAL", "FAILED", "CANCELED"]);
const RETRYABLE = new Set(["PARTIAL", "FAILED", "CANCELED"]);
const LOOKS = { SUCCESS: "good", PARTIAL: "part", FAILED: "bad", CANCELED: "off" };
const MARKS = {
  PENDING: "wait", PARSING: "look", DOWNLOADING: "down", MERGING: "merge",
  SUCCESS: "done", PARTIAL: "part", FAILED: "fail", CANCELED: "stop",
};
const PLAYED = new Set(["video", "audio", "image"]);
// The one playlist that names all others, and what a browser must know to play it.
const MASTER = "master.m3u8";
const PLAYLIST_TYPE = "application/vnd.apple.mpegurl";
const playsPlaylists = () => document.createElement("video").canPlayType(PLAYLIST_TYPE) !== "";
const SURE_FOR = 4000;

export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

function button(name, label, onClick, className = "icon") {
  const made = make("button", className);
  made.type = "button";
  made.append(icon(name));
  made.title = label;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", () => onClick(made));
  return made;
}

export const nameOf = (job) => job.title || job.url;

export class Card {
  constructor(job, on) {
    this.on = on;
    this.element = make("li", "job");
    this.element.dataset.id = job.id;
    this.mark = make("div", "mark");
    this.title = make("div", "title");
    this.facts = make("div", "facts");
    this.fact = Object.fromEntries(
      ["step", "size", "speed", "left", "host"].map((name) => {
        const span = make("span", name);
        this.facts.append(span);
        return [name, span];
      }),
    );
    const text = make("div");
    text.append(this.title, this.facts);
    this.acts = make("div", "acts");
    const head = make("div", "head");
    head.append(this.mark, text, this.acts);
    this.element.append(head);
    this.shown = {};
    this.update(job);
  }

  update(job) {
    const before = this.job;
    this.job = job;
    const look = LOOKS[job.status] || (job.waiting_for && job.waiting_for !== "children" ? "wait" : "run");
    this.element.dataset.look = look;
    this.element.dataset.status = job.status;
    if (this.changed("mark", job.status)) this.mark.replaceChildren(icon(MARKS[job.status]));
    this.title.textContent = nameOf(job);
    this.title.title = job.url;
    this.showFacts(job);
    this.showBar(job, before);
    this.showError(job);
    if (this.changed("acts", [job.status, job.files, job.children.total])) this.showActs(job);
    if (this.changed("files", job.files)) this.showFiles(job);
    this.showChildren(job);
  }

  changed(what, value) {
    const text = JSON.stringify(value);
    const is = this.shown[what] !== text;
    this.shown[what] = text;
    return is;
  }

  showFacts(job) {
    const p = job.progress;
    const runs = !ENDED.has(job.status) && (!job.waiting_for || job.waiting_for === "children");
    // Why it waits stands below.
    let step = job.waiting_for === "retry" ? "waiting to try again" : job.step;
    if (job.waiting_for === "worker" && job.queue_position) step += `, place ${job.queue_position}`;
    if (job.waiting_for === "retry" && job.retry_at) step += `, at ${words.moment(job.retry_at)}`;
    this.fact.step.textContent = job.status === "FAILED" ? "failed" : step;
    const size = job.files.reduce((sum, file) => sum + file.bytes, 0);
    if (size && !runs) this.fact.size.textContent = words.bytes(size);
    else if (runs && p.bytes) {
      const total = p.total_bytes ? ` of ${words.bytes(p.total_bytes)}` : "";
      this.fact.size.textContent = words.bytes(p.bytes) + total;
    } else this.fact.size.textContent = "";
    this.fact.speed.textContent = runs && p.bytes_per_second ? `${words.bytes(p.bytes_per_second)}/s` : "";
    this.fact.left.textContent = runs ? words.left(p.eta_seconds) : words.duration(job.duration);
    this.fact.host.textContent = job.title ? words.host(job.url) : "";
  }

  showBar(job, before) {
    const runs = !ENDED.has(job.status);
    if (!runs) { this.bar?.remove(); this.bar = null; return; }
    if (!this.bar) {
      this.bar = make("div", "bar");
      this.bar.append(make("i"));
      this.bar.setAttribute("role", "progressbar");
      this.bar.setAttribute("aria-label", "Progress");
      this.element.querySelector(".head").after(this.bar);
    }
    const { percent } = job.progress;
    const waits = job.waiting_for && job.waiting_for !== "children";
    this.bar.classList.toggle("unknown", percent == null && !waits);
    // A new stage begins at its beginning; the bar must not run backwards before people's eyes.
    this.bar.classList.toggle("fresh", before?.status !== job.status);
    this.bar.firstChild.style.transform = percent == null ? "" : `translateX(${percent - 100}%)`;
    this.bar.setAttribute("aria-valuetext", job.step);
    if (percent == null) this.bar.removeAttribute("aria-valuenow");
    else this.bar.setAttribute("aria-valuenow", String(Math.round(percent)));
  }

  showError(job) {
    const error = job.status === "CANCELED" ? null : job.error;
    if (!this.changed("error", error)) return;
    this.why?.remove();
    this.why = null;
    if (!error) return;
    this.why = make("p", "why");
    this.why.append(make("b", "", sentence(error.message)), " ", make("span", "", error.help));
    this.why.title = error.code;
    (this.bar || this.element.querySelector(".head")).after(this.why);
  }

  showActs(job) {
    const acts = [];
    const single = job.files.length === 1 ? job.files[0] : null;
    if (single) acts.push(...this.fileActs(single, true));
    if (!ENDED.has(job.status)) acts.push(button("stop", "Cancel", (b) => this.run(b, this.on.cancel)));
    if (RETRYABLE.has(job.status)) acts.push(button("retry", "Try again", (b) => this.run(b, this.on.retry)));
    if (ENDED.has(job.status)) acts.push(button("delete", "Delete", (b) => this.askDelete(b)));
    const had = [...this.acts.children].indexOf(document.activeElement);
    this.acts.replaceChildren(...acts);
    if (had >= 0) (acts[Math.min(had, acts.length - 1)] || this.element).focus();
  }

  fileActs(file, strong) {
    const acts = [];
    if (this.plays(file)) {
      acts.push(button("play", `Play ${file.name}`, () => this.on.play(this.job, file), strong ? "icon strong" : "icon"));
    }
    acts.push(button("save", `Download ${file.name}`, (b) => this.run(b, () => this.on.save(file))));
    return acts;
  }

  // The files of a package are halves, pictures without sound: they play from the master playlist.
  plays(file) {
    const packaged = this.job.files.some((one) => one.kind === "playlist");
    if (packaged) return file.name === MASTER && playsPlaylists();
    return PLAYED.has(file.kind);
  }

  showFiles(job) {
    this.files?.remove();
    this.files = null;
    if (job.files.length < 2) return;
    this.files = make("ul", "files");
    for (const file of mastersFirst(job.files)) {
      const item = make("li");
      item.append(this.nameOfFile(file), make("span", "quiet", words.bytes(file.bytes)), ...this.fileActs(file, false));
      this.files.append(item);
    }
    this.element.append(this.files);
  }

  // A link to take away: players are given the address of the master playlist.
  nameOfFile(file) {
    if (file.kind !== "playlist" || file.name !== MASTER) return make("span", "name", file.name);
    const link = make("a", "name", file.name);
    link.href = at(file.url);
    link.title = "Address for players of HLS";
    return link;
  }

  showChildren(job) {
    const { total, success, partial, failed, active } = job.children;
    if (!total) return;
    if (!this.kids) {
      this.kids = make("div", "kids");
      this.toggle = make("button");
      this.toggle.type = "button";
      this.toggle.setAttribute("aria-expanded", "false");
      this.toggle.append(make("span"), icon("open"));
      this.toggle.addEventListener("click", () => this.on.expand(this));
      this.kids.append(this.toggle);
      this.element.append(this.kids);
    }
    const parts = [`${total} entries`, success && `${success} done`, partial && `${partial} done in part`, active && `${active} to go`, failed && `${failed} failed`];
    this.toggle.firstChild.textContent = parts.filter(Boolean).join(", ");
  }

  async run(pressed, action) {
    // A button that is disabled or gone leaves the keyboard at the top of the page.
    const had = document.activeElement === pressed;
    const near = this.element.nextElementSibling || this.element.previousElementSibling;
    const list = this.element.parentElement;
    pressed.disabled = true;
    try { await action(this.job); } finally { pressed.disabled = false; }
    if (!had || document.activeElement !== document.body) return;
    if (pressed.isConnected) pressed.focus();
    else if (this.element.isConnected) this.acts.querySelector("button")?.focus();
    else (near?.querySelector("button") || list).focus();
  }

  // The first press asks, a second one within a few seconds means it.
  askDelete(pressed) {
    if (pressed.classList.contains("sure")) { this.run(pressed, this.on.remove); return; }
    pressed.classList.add("sure");
    pressed.append(make("span", "", "Delete?"));
    pressed.setAttribute("aria-label", "Press again to delete");
    setTimeout(() => {
      pressed.classList.remove("sure");
      pressed.setAttribute("aria-label", "Delete");
      pressed.querySelector("span")?.remove();
    }, SURE_FOR);
  }
}

const mastersFirst = (files) =>
  [...files].sort((a, b) => Number(b.name === MASTER) - Number(a.name === MASTER));

function sentence(text) {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
