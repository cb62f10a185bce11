// The table of requests under way, and the story of one of them.
import { ownerColor } from "./colors.js";
import { byId, element, getJson, setText } from "./dom.js";
import { number, seconds, shortId } from "./format.js";

const COUNTS = ["prompt", "cached", "pages", "priority", "age"];
const WIDE_ONLY = new Set(["cached", "priority"]);

/** One line. Its cells are made once and filled at every look, so that a line stays the one that was pointed at. */
class RequestRow {
  constructor(request, onPoint) {
    this.mark = element("i");
    this.phase = element("span");
    this.part = element("i");
    this.answer = element("span");
    this.counts = COUNTS.map((name) =>
      element("td", { class: WIDE_ONLY.has(name) ? "n wide-only" : "n", "data-label": name }),
    );
    const point = () => onPoint(request.number);
    const leave = () => onPoint(null);
    this.line = element(
      "tr",
      { on: { pointerenter: point, pointerleave: leave, focusin: point, focusout: leave } },
      element("td", {}, this.makeButton(request)),
      element("td", {}, this.phase),
      element(
        "td",
        {},
        element("div", { class: "progress" }, element("div", { class: "bar" }, this.part), this.answer),
      ),
      ...this.counts,
    );
  }

  makeButton({ id, sample }) {
    const name = shortId(id) + (sample ? ` #${sample}` : "");
    const attributes = { type: "button", title: `${id}: what was decided about it`, on: { click: () => tellWhy(id) } };
    return element("button", attributes, this.mark, element("span", { text: name }));
  }

  fill(now) {
    const isReading = now.phase === "prompt";
    const runsAgain = now.preemptions > 0 && (isReading || now.phase === "answer");
    this.mark.style.background = now.pages ? ownerColor(now.number) : "";
    this.phase.className = `phase ${now.phase.split(" ")[0]}`;
    setText(this.phase, runsAgain ? `${now.phase}, again` : now.phase);
    const [done, all] = isReading ? [now.computed_tokens, now.prompt_tokens] : [now.new_tokens, now.max_new_tokens];
    this.part.style.width = `${(100 * Math.min(1, done / Math.max(1, all))).toFixed(1)}%`;
    this.part.style.background = isReading ? "var(--second)" : "";
    const most = `at most ${number(all)}`;
    const drawn = done ? `${number(done)} of ${most}` : most;
    setText(this.answer, isReading ? `${number(done)} of ${number(all)} read` : drawn);
    const counts = [now.prompt_tokens, now.cached_tokens, now.pages, now.priority].map((count) => number(count));
    [...counts, seconds(now.age_seconds)].forEach((text, i) => setText(this.counts[i], text));
  }
}

export class RequestTable {
  /** `onPoint(number or null)`: a request is looked at. */
  constructor(body, onPoint) {
    this.body = body;
    this.onPoint = onPoint;
    this.rows = new Map();
  }

  show(requests) {
    const seen = new Set();
    let previous = null;
    for (const request of requests) {
      const key = `${request.id}/${request.sample}`;
      seen.add(key);
      if (!this.rows.has(key)) this.rows.set(key, new RequestRow(request, this.onPoint));
      const { line } = this.rows.get(key);
      this.rows.get(key).fill(request);
      const after = previous ? previous.nextSibling : this.body.firstChild;
      if (line !== after) this.body.insertBefore(line, after);
      previous = line;
    }
    for (const [key, { line }] of this.rows) {
      if (seen.has(key)) continue;
      line.remove();
      this.rows.delete(key);
    }
  }
}

async function tellWhy(id) {
  const story = byId("why-story");
  setText(byId("why-id"), id);
  story.replaceChildren(element("li", { class: "quiet", text: "asking the engine…" }));
  byId("why").showModal();
  try {
    const { requests } = await getJson(`/debug/requests/${encodeURIComponent(id)}/why`);
    story.replaceChildren(...requests.flatMap(tellStory));
  } catch (error) {
    story.replaceChildren(element("li", { text: error.message }));
  }
}

/** A line for each decision: when it was, counted from the first that has a time; in which step; and why. */
function tellStory({ decisions }) {
  const start = decisions.find((decision) => decision.seconds !== null)?.seconds ?? 0;
  const hasSamples = decisions.some((decision) => decision.sample);
  return decisions.map(({ seconds: at, step, sample, why }) =>
    element(
      "li",
      {},
      element("span", { class: "when", text: at === null ? "" : `+${seconds(at - start)}` }),
      element("span", { class: "when", text: `step ${number(step)}` }),
      element("span", { text: hasSamples ? `sample ${sample}: ${why}` : why }),
    ),
  );
}
