// A quantity, or a few of the same unit, over the last minutes.
import { explore, prepare } from "./canvas.js";
import { color } from "./colors.js";
import { element } from "./dom.js";

const LEFT = 44;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
const SPAN_SECONDS = 300;

/** The next larger of 1, 2, 4, 10, 20 and so on: their halves are round, too. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((factor) => factor * power).find((step) => step >= value * 0.999);
}

export class Plot {
  /** `series`: [{name, color, area}]; `format` writes a value; `least` is the smallest height of the scale. */
  constructor(canvas, { series, format, height, least = 1, most = Infinity }) {
    Object.assign(this, { canvas, series, format, height, least, most });
    this.ago = [];
    this.values = series.map(() => []);
    this.marked = null;
    explore(canvas, {
      find: (x) => this.nearest(x),
      count: () => this.ago.length,
      tell: (index) => this.tell(index),
      place: (index) => ({ x: this.x(this.ago[index]), y: this.height / 2 }),
      select: (index) => {
        this.marked = index;
        this.draw();
      },
    });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    document.addEventListener("themechange", () => this.draw());
  }

  show(ago, ...values) {
    this.ago = ago;
    this.values = values;
    const last = this.series.map(({ name }, i) => `${name} ${this.format(values[i].at(-1) ?? 0)}`).join(", ");
    this.canvas.setAttribute("aria-label", `Over the last five minutes; now ${last}`);
    this.draw();
  }

  x(ago) {
    return LEFT + (this.width - LEFT - RIGHT) * (1 - ago / SPAN_SECONDS);
  }

  draw() {
    const { context, width } = prepare(this.canvas, this.height);
    this.width = width;
    const top = Math.min(this.most, roundUp(Math.max(this.least, ...this.values.flat())));
    const y = (value) => this.height - BOTTOM - (this.height - TOP - BOTTOM) * Math.min(1, value / top);
    this.drawAxes(context, top, y);
    this.series.forEach((series, i) => this.drawSeries(context, series, this.values[i], y));
    if (this.marked !== null && this.marked < this.ago.length) this.drawMark(context, y);
  }

  drawAxes(context, top, y) {
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    context.strokeStyle = color("line");
    context.fillStyle = color("muted");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of [0, top / 2, top]) {
      const line = Math.round(y(value)) + 0.5;
      context.beginPath();
      context.moveTo(LEFT, line);
      context.lineTo(this.width - RIGHT, line);
      context.stroke();
      context.fillText(this.format(value).replace(/\.0$/, ""), LEFT - 8, line);
    }
    context.textBaseline = "alphabetic";
    for (const [ago, text, align] of [
      [SPAN_SECONDS, "5 min ago", "left"],
      [SPAN_SECONDS / 2, "2:30", "center"],
      [0, "now", "right"],
    ]) {
      context.textAlign = align;
      context.fillText(text, this.x(ago), this.height - 4);
    }
  }

  drawSeries(context, series, values, y) {
    if (!values.length) return;
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height);
    context.clip();
    context.beginPath();
    values.forEach((value, i) => context.lineTo(this.x(this.ago[i]), y(value)));
    context.lineWidth = 1.75;
    context.lineJoin = "round";
    context.strokeStyle = color(series.color);
    context.stroke();
    if (series.area) {
      context.lineTo(this.x(this.ago.at(-1)), y(0));
      context.lineTo(this.x(this.ago[0]), y(0));
      context.closePath();
      context.globalAlpha = 0.14;
      context.fillStyle = color(series.color);
      context.fill();
    }
    context.restore();
  }

  drawMark(context, y) {
    const x = this.x(this.ago[this.marked]);
    context.strokeStyle = color("muted");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, TOP);
    context.lineTo(x, this.height - BOTTOM);
    context.stroke();
    this.series.forEach((series, i) => {
      context.beginPath();
      context.arc(x, y(this.values[i][this.marked]), 3.5, 0, 7);
      context.fillStyle = color(series.color);
      context.fill();
    });
  }

  nearest(x) {
    const ago = SPAN_SECONDS * (1 - (x - LEFT) / (this.width - LEFT - RIGHT));
    let best = null;
    this.ago.forEach((one, i) => {
      if (best === null || Math.abs(one - ago) < Math.abs(this.ago[best] - ago)) best = i;
    });
    return best;
  }

  tell(index) {
    const lines = this.series.map(({ name }, i) =>
      element("div", { text: `${name}: ${this.format(this.values[i][index])}` }),
    );
    return [element("b", { text: `${Math.round(this.ago[index])} s ago` }), ...lines];
  }
}
