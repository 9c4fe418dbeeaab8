// Figures in words.

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(n) {
  if (n == null) return "";
  let unit = 0;
  while (n >= 1000 && unit < UNITS.length - 1) { n /= 1000; unit += 1; }
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (seconds == null) return "";
  const s = Math.max(0, Math.round(seconds));
  const pad = (n) => String(n).padStart(2, "0");
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return h ? `${h}:${pad(m)}:${pad(s % 60)}` : `${m}:${pad(s % 60)}`;
}

export function left(seconds) {
  if (seconds == null) return "";
  if (seconds < 1) return "almost there";
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${Math.round(seconds / 3600)} h left`;
}

export function host(url) {
  try { return new URL(url).host; } catch { return ""; }
}

export function moment(iso) {
  const then = new Date(iso);
  const sameDay = then.toDateString() === new Date().toDateString();
  return then.toLocaleString([], sameDay ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" });
}
