// An answer on the page: Markdown over the tokens it came in, each of which can tell how likely it was.
import { element, hideTip, showTip } from "./dom.js";
import { percent } from "./format.js";
import { parse } from "./markdown.js";

const DOUBT = [
  [0.08, "doubt-3"],
  [0.25, "doubt-2"],
  [0.5, "doubt-1"],
]; // less likely than this

/** Text and the tokens it is made of: `starts[i]` is where token i begins in the text. */
export class TokenText {
  constructor() {
    this.text = "";
    this.tokens = [];
    this.starts = [];
    this.decoder = new TextDecoder();
    this.place = 0;
  }

  /** A delta of the stream and the scores that came with it. Text may lag behind tokens, never the other way round. */
  add(text, scores) {
    this.text += text;
    for (const score of scores) {
      const piece = this.decoder.decode(Uint8Array.from(score.bytes ?? []), { stream: true });
      this.tokens.push(score);
      this.starts.push(this.place);
      const isFirst = this.starts.length === 1;
      this.place += isFirst && !this.text.startsWith(piece) ? piece.trimStart().length : piece.length;
    }
  }

  /** The text from `start` to `end` in parts, each with the number of the token it belongs to, or null. */
  *parts(start, end) {
    let index = this.tokenAt(start);
    while (start < end) {
      const next = index === null ? (this.starts[0] ?? end) : this.nextStart(index);
      const stop = Math.min(end, next > start ? next : end);
      yield { text: this.text.slice(start, stop), token: index };
      start = stop;
      index = this.tokenAt(start);
    }
  }

  tokenAt(place) {
    let low = 0;
    let high = this.starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= place) low = middle + 1;
      else high = middle;
    }
    return low && place < this.place ? low - 1 : null;
  }

  nextStart(index) {
    const here = this.starts[index];
    for (let next = index + 1; next < this.starts.length; next += 1)
      if (this.starts[next] > here) return this.starts[next];
    return this.place;
  }
}

export class AnswerView {
  constructor() {
    this.source = new TokenText();
    this.box = element("div", { class: "text" });
    this.blocks = []; // {key, node} as they stand in the box
    this.chosen = null;
    this.isGrowing = true;
    this.box.addEventListener("pointerover", (event) => this.point(event));
    this.box.addEventListener("click", (event) => this.point(event));
    this.box.addEventListener("pointerleave", () => this.choose(null));
    this.box.addEventListener("blur", () => this.choose(null));
    this.box.addEventListener("keydown", (event) => this.walk(event));
  }

  add(text, scores) {
    this.source.add(text, scores);
    if (scores.length && !this.box.hasAttribute("tabindex")) {
      this.box.setAttribute("tabindex", "0");
      this.box.setAttribute("aria-description", "The arrow keys go from token to token");
    }
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      this.draw();
    });
  }

  finish() {
    this.isGrowing = false;
    this.draw();
  }

  /** Blocks that have not changed keep their nodes. */
  draw() {
    const parsed = parse(this.source.text);
    parsed.forEach((block, i) => {
      const isLast = i === parsed.length - 1;
      const key = `${block.kind} ${block.start} ${block.end} ${isLast ? this.source.tokens.length : ""}`;
      if (this.blocks[i]?.key === key) return;
      const node = this.makeBlock(block);
      if (this.blocks[i]) this.blocks[i].node.replaceWith(node);
      else this.box.append(node);
      this.blocks[i] = { key, node };
    });
    for (const { node } of this.blocks.splice(parsed.length)) node.remove();
    this.cursor?.remove();
    if (this.isGrowing) {
      this.cursor = element("span", { class: "cursor", "aria-hidden": "true" });
      const last = this.blocks.at(-1)?.node ?? this.box;
      (last.querySelector("li:last-child, code") ?? last).append(this.cursor);
    }
  }

  makeBlock(block) {
    const pieces = (all) => all.flatMap((piece) => this.makePiece(piece));
    if (block.kind === "code") {
      const lines = block.lines.flatMap((line, i) => [...(i ? ["\n"] : []), ...this.makeParts(line.start, line.end)]);
      return element("pre", {}, element("code", {}, ...lines));
    }
    if (block.kind === "list") {
      const items = block.items.map((item) =>
        element("li", { "data-depth": item.depth || null, value: item.value }, ...pieces(item.pieces)),
      );
      return element(block.isOrdered ? "ol" : "ul", {}, ...items);
    }
    return element({ heading: "h3", quote: "blockquote", paragraph: "p" }[block.kind], {}, ...pieces(block.pieces));
  }

  makePiece({ start, end, style }) {
    const parts = this.makeParts(start, end);
    return style ? [element(style, {}, ...parts)] : parts;
  }

  makeParts(start, end) {
    return [...this.source.parts(start, end)].map(({ text, token }) => {
      if (token === null) return document.createTextNode(text);
      const chance = Math.exp(this.source.tokens[token].logprob);
      const doubt = DOUBT.find(([most]) => chance < most)?.[1] ?? "";
      return element("span", { class: `token ${doubt}`, "data-token": token, text });
    });
  }

  point(event) {
    const token = event.target.closest?.(".token");
    if (token) this.choose(Number(token.dataset.token), event.clientX, event.clientY);
    else if (event.type === "pointerover") this.choose(null);
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") return this.choose(null);
    if (!step || !this.source.tokens.length) return;
    event.preventDefault();
    let next = this.chosen === null ? (step > 0 ? 0 : this.source.tokens.length - 1) : this.chosen + step;
    while (next >= 0 && next < this.source.tokens.length && !this.spans(next).length) next += step;
    const [span] = this.spans(next);
    if (!span) return;
    span.scrollIntoView({ block: "nearest" });
    const box = span.getBoundingClientRect();
    this.choose(next, box.left, box.bottom - 12);
  }

  spans(token) {
    return [...this.box.querySelectorAll(`[data-token="${token}"]`)];
  }

  choose(token, x, y) {
    for (const span of this.box.querySelectorAll(".chosen")) span.classList.remove("chosen");
    this.chosen = token;
    if (token === null) return hideTip();
    for (const span of this.spans(token)) span.classList.add("chosen");
    showTip(tellOdds(this.source.tokens[token]), x, y);
  }
}

/** What the model could have said here, the likeliest first; the token it did say is always among them. */
export function tellOdds(score) {
  const others = score.top_logprobs ?? [];
  const isOwn = (other) => other.token === score.token && other.logprob === score.logprob;
  const all = others.some(isOwn) ? others : [...others, score];
  const rows = all.flatMap((other) => {
    const chance = Math.exp(other.logprob);
    const part = element("i");
    part.style.width = `${(100 * chance).toFixed(1)}%`;
    const own = isOwn(other);
    return [
      element("span", { class: own ? "word taken" : "word", text: showSpaces(other.token) }),
      element("span", { class: own ? "track own" : "track" }, part),
      element("span", { class: "share", text: percent(chance, 1) }),
    ];
  });
  return [element("b", { text: "What the model could have said here" }), element("div", { class: "odds" }, ...rows)];
}

function showSpaces(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "(nothing)";
}
