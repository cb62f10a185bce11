// Numbers as people read them.

export const NOTHING = "–";

export function number(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Large where it is large, with a digit after the point where it is small. */
export function rate(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value >= 100_000) return `${number(value / 1000)}k`;
  return number(value, value > 0 && value < 10 ? 1 : 0);
}

/** Seconds as [number, unit]. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return [NOTHING, ""];
  if (seconds < 0.01) return [number(seconds * 1000, 1), "ms"];
  if (seconds < 1) return [number(seconds * 1000), "ms"];
  if (seconds < 100) return [number(seconds, seconds < 10 ? 2 : 1), "s"];
  return [`${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`, "min"];
}

export const seconds = (value) => duration(value).join(" ").trim();

export function percent(share, digits = 0) {
  if (share === null || share === undefined) return NOTHING;
  if (share > 0 && share < 0.001 && digits === 1) return "<0.1%";
  return `${number(100 * share, digits)}%`;
}

export function bytes(count) {
  if (!count) return NOTHING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${number(count, count < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

/** A long id by its two ends; what stands between is only random. */
export function shortId(id) {
  return id.length > 24 ? `${id.slice(0, 14)}…${id.slice(-6)}` : id;
}
