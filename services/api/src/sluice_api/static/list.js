// The list of jobs: keeps the newest state of each, shows a page of them, newest first.

import * as api from "./api.js";
import { Card, ENDED, make, nameOf } from "./card.js";

const PAGE = 50;
const ACTIVE = ["PENDING", "PARSING", "DOWNLOADING", "MERGING"];
const FILTERS = {
  all: [], active: ACTIVE, done: ["SUCCESS", "PARTIAL"], failed: ["FAILED", "CANCELED"],
};
const MAX_CHILDREN = 200;

export class JobList {
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.cards = new Map();
    this.dirty = new Map();
    this.filter = "all";
    this.text = "";
    this.limit = PAGE;
    this.cursor = null;
    this.round = 0;
    this.loading = null;
    this.scheduled = false;
  }

  query(cursor) {
    const query = new URLSearchParams({ limit: String(PAGE), parent: "none" });
    FILTERS[this.filter].forEach((status) => query.append("status", status));
    if (this.text) query.set("q", this.text);
    if (cursor) query.set("cursor", cursor);
    return query;
  }

  // Read the first pages anew; what is shown stays until the answer is there.
  load({ keep = false } = {}) {
    this.loading = this.read(keep);
    return this.loading;
  }

  async read(keep) {
    const round = ++this.round;
    const wanted = keep ? this.limit : PAGE;
    const found = [];
    let cursor = null;
    do {
      const page = await api.jobs(this.query(cursor));
      if (round !== this.round) return;
      found.push(...page.jobs);
      cursor = page.next_cursor;
    } while (cursor && found.length < wanted);
    const ids = new Set(found.map((job) => job.id));
    for (const [id, card] of this.cards) {
      if (!card.job.parent_id && !ids.has(id)) this.drop(id);
    }
    this.limit = Math.max(PAGE, found.length);
    this.cursor = cursor;
    found.forEach((job) => this.take(job, { listed: true }));
    this.flush();
  }

  async more() {
    // The cursor of a list that is about to be replaced leads nowhere.
    await this.loading;
    const round = this.round;
    const page = await api.jobs(this.query(this.cursor));
    if (round !== this.round) return;
    this.limit += PAGE;
    this.cursor = page.next_cursor;
    page.jobs.forEach((job) => this.take(job, { listed: true }));
    this.flush();
  }

  take(job, { listed = false } = {}) {
    const card = this.cards.get(job.id);
    if (card && card.job.updated_at > job.updated_at) return;
    if (!card && !listed && !this.belongs(job)) return;
    this.dirty.set(job.id, job);
    this.schedule();
  }

  progress({ id, status, step, progress, updated_at: at }) {
    const job = this.dirty.get(id) || this.cards.get(id)?.job;
    if (!job || job.status !== status || job.updated_at > at) return;
    this.dirty.set(id, { ...job, step, progress, updated_at: at });
    this.schedule();
  }

  belongs(job) {
    if (job.parent_id) return this.cards.get(job.parent_id)?.kidList !== undefined;
    if (this.text) return false;
    const wanted = FILTERS[this.filter];
    return !wanted.length || wanted.includes(job.status);
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.flush());
  }

  flush() {
    this.scheduled = false;
    for (const job of this.dirty.values()) this.show(job);
    this.dirty.clear();
    this.trim();
    this.on.changed();
  }

  show(job) {
    const card = this.cards.get(job.id);
    if (card) {
      if (!ENDED.has(card.job.status) && ENDED.has(job.status) && !job.parent_id) {
        this.on.news(`${nameOf(job)}: ${job.step}`);
      }
      card.update(job);
      return;
    }
    const home = job.parent_id ? this.cards.get(job.parent_id)?.kidList : this.root;
    if (!home) return;
    const made = new Card(job, { ...this.on, expand: (one) => this.expand(one) });
    this.cards.set(job.id, made);
    home.insertBefore(made.element, this.placeIn(home, job));
  }

  // Jobs stand newest first, entries of a collection in their own order; ids sort by time.
  placeIn(home, job) {
    const children = home.children;
    const after = (id) => (job.parent_id ? id > job.id : id < job.id);
    let low = 0, high = children.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (after(children[middle].dataset.id)) high = middle; else low = middle + 1;
    }
    return children[low] || null;
  }

  trim() {
    while (this.root.children.length > this.limit) {
      const last = this.root.lastElementChild.dataset.id;
      this.drop(last);
      this.cursor = this.root.lastElementChild.dataset.id;
    }
  }

  drop(id) {
    const card = this.cards.get(id);
    this.dirty.delete(id);
    if (!card) return;
    for (const child of card.kidList?.children || []) this.cards.delete(child.dataset.id);
    card.element.remove();
    this.cards.delete(id);
    this.on.changed();
  }

  async expand(card) {
    const open = card.toggle.getAttribute("aria-expanded") !== "true";
    card.toggle.setAttribute("aria-expanded", String(open));
    if (!open) {
      for (const child of card.kidList.children) this.cards.delete(child.dataset.id);
      card.kidList.remove();
      card.kidList = undefined;
      return;
    }
    card.kidList = make("ul", "jobs");
    card.kids.append(card.kidList);
    await this.loadChildren(card);
  }

  async loadChildren(card) {
    const query = { parent: card.job.id, limit: String(MAX_CHILDREN) };
    let cursor = null;
    do {
      const page = await api.jobs(cursor ? { ...query, cursor } : query);
      page.jobs.forEach((job) => this.take(job, { listed: true }));
      cursor = page.next_cursor;
    } while (cursor && card.kidList);
  }

  get isEmpty() { return !this.root.children.length; }
  get hasMore() { return Boolean(this.cursor); }
}
