// Every page of the KV cache as a small square, coloured by who holds it.
import { explore, prepare } from "./canvas.js";
import { color, ownerColor } from "./colors.js";
import { element } from "./dom.js";
import { number, shortId } from "./format.js";

// The same numbers as in kv_cache/page_map.py.
const FREE = 0;
const IDLE = 1;
const SHARED = 2;
const HELD = 3;
const FIRST_OWNER = 4;
const WORDS = {
  [FREE]: "free",
  [IDLE]: "kept in the prefix cache, held by nobody",
  [SHARED]: "shared by several requests",
  [HELD]: "held by a request",
};
const AREA = { wide: 300_000, narrow: 100_000 }; // square pixels that the map may take

export function decodeCells(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Uint16Array(bytes.buffer);
}

export class PageMap {
  constructor(parent) {
    this.title = element("h3", { hidden: true });
    this.canvas = element("canvas", { role: "img", tabindex: "0" });
    this.box = element("div", { class: "map" }, this.title, this.canvas);
    parent.append(this.box);
    this.cells = new Uint16Array();
    this.owners = [];
    this.requests = new Map();
    this.stride = 1;
    this.marked = null; // the number of the request whose pages stand out
    explore(this.canvas, {
      find: (x, y) => this.at(x, y),
      count: () => this.cells.length,
      rowLength: () => this.columns,
      tell: (index) => this.tell(index),
      place: (index) => ({
        x: ((index % this.columns) + 0.5) * this.size,
        y: (Math.floor(index / this.columns) + 0.5) * this.size,
      }),
      select: (index) => this.mark(index === null ? null : this.owner(this.cells[index])),
    });
    new ResizeObserver(() => this.draw()).observe(this.box);
    document.addEventListener("themechange", () => this.draw());
  }

  show(group, requests, title) {
    this.title.hidden = !title;
    this.title.textContent = title;
    this.requests = requests;
    this.owners = group.owners;
    this.stride = group.stride;
    this.cells = decodeCells(group.cells);
    const counts = [0, 0, 0, 0];
    for (const cell of this.cells) counts[Math.min(cell, HELD)] += 1;
    const share = (count) => `${Math.round((100 * count) / Math.max(1, this.cells.length))} %`;
    const words = [
      `${share(counts[FREE])} free`,
      `${share(counts[IDLE])} kept`,
      `${share(counts[SHARED] + counts[HELD])} held`,
    ];
    this.canvas.setAttribute("aria-label", `${number(group.num_pages)} pages: ${words.join(", ")}`);
    this.draw();
  }

  mark(number) {
    if (number === this.marked) return;
    this.marked = number;
    this.draw();
  }

  owner(cell) {
    return cell >= FIRST_OWNER ? this.owners[cell - FIRST_OWNER] : null;
  }

  draw() {
    const width = Math.max(1, this.box.clientWidth);
    const area = Math.min(width * 420, width > 700 ? AREA.wide : AREA.narrow);
    this.size = Math.max(2, Math.min(13, Math.floor(Math.sqrt(area / Math.max(1, this.cells.length)))));
    this.columns = Math.max(1, Math.floor(width / this.size));
    const rows = Math.max(1, Math.ceil(this.cells.length / this.columns));
    const { context } = prepare(this.canvas, rows * this.size);
    const gap = this.size > 3 ? 1 : 0;
    const paints = [color("free"), color("idle"), color("shared"), color("muted"), ...this.owners.map(ownerColor)];
    for (let index = 0; index < this.cells.length; index += 1) {
      const cell = this.cells[index];
      context.globalAlpha = this.marked === null || this.owner(cell) === this.marked ? 1 : 0.25;
      context.fillStyle = paints[cell] ?? paints[HELD];
      context.fillRect(
        (index % this.columns) * this.size,
        Math.floor(index / this.columns) * this.size,
        this.size - gap,
        this.size - gap,
      );
    }
    context.globalAlpha = 1;
  }

  at(x, y) {
    const column = Math.floor(x / this.size);
    const index = Math.floor(y / this.size) * this.columns + column;
    return column < this.columns && index >= 0 && index < this.cells.length ? index : null;
  }

  tell(index) {
    const cell = this.cells[index];
    const owner = this.owner(cell);
    const request = this.requests.get(owner);
    const words = cell < FIRST_OWNER ? WORDS[cell] : request ? `held by ${shortId(request.id)}` : "held by a request";
    const lines = [element("b", { text: `Page ${number(index * this.stride)}` }), element("div", { text: words })];
    if (request)
      lines.push(
        element("div", {
          class: "quiet",
          text: `${request.phase}, ${request.pages} pages, ${request.new_tokens} tokens drawn`,
        }),
      );
    return lines;
  }
}
