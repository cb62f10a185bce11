// The scheduler's last steps, the newest at the right: a bar as high as the step took long, and what was decided in it.
// Bars that would dwarf all others are cut, and have a notch.
import { explore, prepare } from "./canvas.js";
import { color } from "./colors.js";
import { element } from "./dom.js";
import { number, seconds, shortId } from "./format.js";

const HEIGHT = 128;
const MARKS = 30; // room for the dots below the bars
const TOP = 14;
const LEFT = 52;
const STARTED = new Set(["admitted", "resumed", "forked"]);
const PUSHED = new Set(["preempted", "made_way"]);
const ENDED = new Set(["finished", "cancelled", "refused"]);
const MOST_TOLD = 6;

/** All of them, unless a few are more than twice as long as nearly all others. */
function topOf(times) {
  const sorted = times.toSorted((a, b) => a - b);
  const usual = sorted[Math.floor(0.9 * sorted.length)] ?? 1;
  return Math.max(1, Math.min(sorted.at(-1) ?? 1, 2 * usual));
}

export class StepStrip {
  constructor(canvas) {
    this.canvas = canvas;
    this.steps = [];
    this.marked = null;
    explore(canvas, {
      find: (x) => this.at(x),
      count: () => this.steps.length,
      tell: (index) => this.tell(this.steps[index]),
      place: (index) => ({ x: this.x(index) + this.width / 2, y: HEIGHT / 2 }),
      select: (index) => {
        this.marked = index;
        this.draw();
      },
    });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    document.addEventListener("themechange", () => this.draw());
  }

  show(steps) {
    this.steps = steps;
    const last = steps.at(-1);
    this.canvas.setAttribute(
      "aria-label",
      last
        ? `The last ${steps.length} steps; step ${last.step} took ${last.milliseconds} ms for ${last.rows} rows`
        : "No step yet",
    );
    this.draw();
  }

  get shown() {
    return Math.max(1, Math.min(128, Math.floor((this.canvas.parentElement.clientWidth - LEFT) / 7)));
  }

  x(index) {
    return LEFT + (index - (this.steps.length - this.shown)) * this.width;
  }

  at(x) {
    const index = Math.floor((x - LEFT) / this.width) + this.steps.length - this.shown;
    return x >= LEFT && index >= 0 && index < this.steps.length ? index : null;
  }

  draw() {
    const { context, width } = prepare(this.canvas, HEIGHT);
    this.width = (width - LEFT) / this.shown;
    const first = Math.max(0, this.steps.length - this.shown);
    const visible = this.steps.slice(first);
    const top = topOf(visible.map((step) => step.milliseconds));
    const base = HEIGHT - MARKS;
    this.drawAxis(context, width, top, base);
    visible.forEach((step, i) => this.drawStep(context, step, first + i, top, base));
  }

  drawAxis(context, width, top, base) {
    context.strokeStyle = color("line");
    context.beginPath();
    context.moveTo(LEFT, base + 0.5);
    context.lineTo(width, base + 0.5);
    context.stroke();
    context.fillStyle = color("muted");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(seconds(top / 1000), LEFT - 8, TOP);
    context.fillText("0", LEFT - 8, base);
  }

  drawStep(context, step, index, top, base) {
    const x = this.x(index);
    const wide = Math.max(1, this.width - (this.width > 5 ? 2 : 1));
    const high = Math.max(2, (base - TOP) * Math.min(1, step.milliseconds / top));
    const drawn = step.tokens ? Math.min(1, step.drawn / step.tokens) : 0;
    context.globalAlpha = this.marked === null || this.marked === index ? 1 : 0.4;
    context.fillStyle = color("second");
    context.fillRect(x, base - high, wide, high * (1 - drawn));
    context.fillStyle = color("accent");
    context.fillRect(x, base - high * drawn, wide, high * drawn);
    if (step.milliseconds > top) context.clearRect(x, base - high + 6, wide, 3);
    const kinds = step.decisions.map((decision) => decision.kind);
    const dots = [
      [kinds.some((kind) => STARTED.has(kind)), "good"],
      [kinds.some((kind) => ENDED.has(kind)), "muted"],
      [kinds.some((kind) => PUSHED.has(kind)), "bad"],
    ];
    dots.forEach(([is, name], line) => {
      if (!is) return;
      context.beginPath();
      context.arc(x + wide / 2, base + 7 + 9 * line, Math.min(3, wide / 2 + 0.5), 0, 7);
      context.fillStyle = color(name);
      context.fill();
    });
    context.globalAlpha = 1;
  }

  tell(step) {
    const counts = `${step.rows} rows, ${number(step.tokens)} tokens computed, ${step.drawn} drawn`;
    const told = step.decisions
      .slice(0, MOST_TOLD)
      .map((decision) => element("div", { text: `${shortId(decision.request)}: ${decision.text}` }));
    const more = step.decisions.length - told.length;
    return [
      element("b", { text: `Step ${number(step.step)}: ${number(step.milliseconds, 1)} ms` }),
      element("div", { class: "quiet", text: counts }),
      ...told,
      more > 0 ? element("div", { class: "quiet", text: `and ${more} more decisions` }) : "",
    ];
  }
}
