// Follows the server's events for ever: reads them by fetch, since EventSource sends no key.

import { at, headers } from "./api.js";

const SILENCE = 40_000; // the server says something every 15 s
const LONGEST_PAUSE = 15_000;

export function follow(path, { onEvent, onState, onRefused }) {
  const own = { last: null, pause: 0, hint: 3000 };
  let ended = false;
  let abort = null;

  async function once() {
    abort = new AbortController();
    const more = { Accept: "text/event-stream" };
    if (own.last) more["Last-Event-ID"] = own.last;
    let watchdog = setTimeout(() => abort.abort(), SILENCE);
    try {
      const answer = await fetch(at(path), { headers: headers(more), signal: abort.signal, cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) { ended = true; onRefused(); return; }
      if (!answer.ok) return;
      onState(true);
      own.pause = 0;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        blocks.forEach((block) => take(block));
      }
    } catch {
      // Gone; the loop comes back.
    } finally {
      clearTimeout(watchdog);
    }
  }

  function take(block) {
    let name = "message", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) own.last = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
      else if (line.startsWith("retry: ")) own.hint = Number(line.slice(7)) || 3000;
    }
    if (data) onEvent(name, JSON.parse(data));
  }

  (async () => {
    while (!ended) {
      await once();
      onState(false);
      own.pause = Math.min(LONGEST_PAUSE, own.pause ? own.pause * 1.7 : own.hint);
      if (!ended) await new Promise((go) => setTimeout(go, own.pause * (0.75 + Math.random() / 2)));
    }
  })();

  return () => { ended = true; abort?.abort(); };
}
