// The table of requests under way, and the story of one of them.
import { ownerColor } from "./colors.js";
import { byId, element, getJson, setText } from "./dom.js";
import { number, seconds, shortId } from "./format.js";

/** `onPoint(number or null)`: a request is looked at. */
export class RequestTable {
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
      if (!this.rows.has(key)) this.rows.set(key, this.makeRow(request));
      const row = this.rows.get(key);
      row.update(request);
      const after = previous ? previous.nextSibling : this.body.firstChild;
      if (row.line !== after) this.body.insertBefore(row.line, after);
      previous = row.line;
    }
    for (const [key, row] of this.rows) {
      if (!seen.has(key)) { row.line.remove(); this.rows.delete(key); }
    }
  }

  makeRow(request) {
    const mark = element("i");
    const id = element("span", { text: shortId(request.id) + (request.sample ? ` #${request.sample}` : "") });
    const button = element("button", { type: "button", title: `${request.id}: what was decided about it`, on: { click: () => tellWhy(request.id) } }, mark, id);
    const phase = element("span");
    const part = element("i");
    const answer = element("span");
    const cells = Object.fromEntries(["prompt", "cached", "pages", "priority", "age"].map((name) => [name, element("td", { class: name === "cached" || name === "priority" ? "n wide-only" : "n", "data-label": name })]));
    const line = element("tr", { on: { pointerenter: () => this.onPoint(request.number), pointerleave: () => this.onPoint(null), focusin: () => this.onPoint(request.number), focusout: () => this.onPoint(null) } },
      element("td", {}, button), element("td", {}, phase),
      element("td", {}, element("div", { class: "progress" }, element("div", { class: "bar" }, part), answer)),
      ...Object.values(cells));
    const update = (now) => {
      const isRunning = now.pages > 0;
      mark.style.background = isRunning ? ownerColor(now.number) : "";
      phase.className = `phase ${now.phase.split(" ")[0]}`;
      setText(phase, now.preemptions && (now.phase === "answer" || now.phase === "prompt") ? `${now.phase}, again` : now.phase);
      const isReading = now.phase === "prompt";
      const share = isReading ? now.computed_tokens / now.prompt_tokens : now.new_tokens / Math.max(1, now.max_new_tokens);
      part.style.width = `${(100 * Math.min(1, share)).toFixed(1)}%`;
      part.style.background = isReading ? "var(--second)" : "";
      const most = `at most ${number(now.max_new_tokens)}`;
      const drawn = now.new_tokens ? `${number(now.new_tokens)} of ${most}` : most;
      setText(answer, isReading ? `${number(now.computed_tokens)} of ${number(now.prompt_tokens)} read` : drawn);
      setText(cells.prompt, number(now.prompt_tokens));
      setText(cells.cached, number(now.cached_tokens));
      setText(cells.pages, number(now.pages));
      setText(cells.priority, number(now.priority));
      setText(cells.age, seconds(now.age_seconds));
    };
    return { line, update };
  }
}

async function tellWhy(id) {
  const story = byId("why-story");
  setText(byId("why-id"), id);
  story.replaceChildren(element("li", { class: "quiet", text: "asking the engine…" }));
  byId("why").showModal();
  try {
    const { requests } = await getJson(`/debug/requests/${encodeURIComponent(id)}/why`);
    story.replaceChildren(...requests.flatMap(({ decisions }) => decisions.map((decision) => tellDecision(decision, decisions))));
  } catch (error) {
    story.replaceChildren(element("li", { text: error.message }));
  }
}

/** When it was, counted from the first decision that has a time; in which step; and why. */
function tellDecision(decision, all) {
  const start = all.find((other) => other.seconds !== null)?.seconds ?? 0;
  const hasSamples = all.some((other) => other.sample);
  return element("li", {},
    element("span", { class: "when", text: decision.seconds === null ? "" : `+${seconds(decision.seconds - start)}` }),
    element("span", { class: "when", text: `step ${number(decision.step)}` }),
    element("span", { text: (hasSamples ? `sample ${decision.sample}: ` : "") + decision.why }));
}
